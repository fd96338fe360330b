def display_of():
    """What a notebook shows of a value: bundle(value), and figures() that were drawn and not shown."""
    import os, sys, warnings
    os.environ.setdefault("MPLBACKEND", "Agg")
    warnings.filterwarnings("ignore", message=".*non-interactive.*")
    methods = (("image/png", "_repr_png_"), ("image/svg+xml", "_repr_svg_"), ("text/html", "_repr_html_"),
               ("image/jpeg", "_repr_jpeg_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
               ("application/pdf", "_repr_pdf_"), ("application/json", "_repr_json_"))
    drawn = set()

    def ask(value, method):
        try:
            got = getattr(value, method)()
        except Exception:
            return None
        return got[0] if isinstance(got, tuple) else got

    def is_figure(value):
        return type(value).__module__.startswith("matplotlib.") and hasattr(value, "savefig")

    def draw(figure):
        import io
        if id(figure) in drawn:
            return {}
        drawn.add(id(figure))
        to = io.BytesIO()
        figure.savefig(to, format="png", bbox_inches="tight")
        return {"image/png": to.getvalue()}

    def bundle(value):
        if isinstance(value, type):
            return {}
        if is_figure(value):
            return draw(value)
        got = ask(value, "_repr_mimebundle_")
        got = dict(got) if isinstance(got, dict) else {}
        for mime, method in methods:
            if mime not in got and hasattr(value, method):
                got[mime] = ask(value, method)
        return {mime: data for mime, data in got.items() if data is not None}

    def figures():
        plots = sys.modules.get("matplotlib.pyplot")
        try:
            for n in plots.get_fignums() if plots else ():
                made = draw(plots.figure(n))
                if made:
                    yield made
            if plots:
                plots.close("all")
        finally:
            drawn.clear()

    return bundle, figures, is_figure


