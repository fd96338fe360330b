package markdown

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/longtest"
)

// hostile returns documents for which some Markdown parsers take time quadratic in the length, or worse.
func hostile(n int) map[string]string {
	docs := map[string]string{
		"nested items": func() string {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				b.WriteString(strings.Repeat(" ", 2*i) + "- a\n")
			}
			return b.String()
		}(),
		"wide table":   strings.Repeat("|a", n/8) + "\n" + strings.Repeat("|-", n/8) + "\n" + strings.Repeat("|\n", n/4),
		"long table":   strings.Repeat("|a", 60) + "\n" + strings.Repeat("|-", 60) + "\n" + strings.Repeat("|\n", n/2),
		"wide columns": strings.Repeat("|"+strings.Repeat("a", 400), 60) + "\n" + strings.Repeat("|-", 60) + "\n" + strings.Repeat("|b\n", n/3),
		"lazy quotes":  strings.Repeat(">", n/200) + "a\n" + strings.Repeat("a\n", n/2),
		"one cluster":  "a" + strings.Repeat("\u0301", n/2),
		"growing ticks": func() (s string) {
			var b strings.Builder
			for i := 1; b.Len() < n; i++ {
				b.WriteString(strings.Repeat("`", i) + " ")
			}
			return b.String()
		}(),
		"deep and blank": strings.Repeat(strings.Repeat("> ", 60)+"a\n\n", n/123),
		"many brackets":  strings.Repeat(strings.Repeat("[](", 900)+"\n\n", n/2702),
		"many emphases":  strings.Repeat(strings.Repeat("*a_ ", 1900)+"\n\n", n/7602),
	}
	for _, s := range []string{"*", "**", "_", "~", "`", "``a`", "[", "![", "]", "[a](", "<", "<a ", "<!--", "&", "\\", "*a_ ", "**a *b ", "[a]: b\n", "> ", "- ", "1. ", "* a\n",
		"|", "a|", "|a\n", "http://a ", "www.", "a@b.", "@", "[a][b]", "a\n", "# a\n", "a **b", "[[a]](", "\t", "    a\n", ">a\n", "- [ ] a\n", "x", "日", "\n", "```\n", "@everyone "} {
		docs[s] = strings.Repeat(s, n/len(s))
	}
	return docs
}

// The work, including undone writes, grows with the sum of document and parts, not with their product.
func TestHostileDocumentsCostNoMore(t *testing.T) {
	t.Parallel()
	n := 24 << 10
	if longtest.Asked() {
		n = 256 << 10
	}
	for name, document := range hostile(n) {
		for _, f := range []channel.Format{channel.GitHubText, channel.TelegramHTML} {
			o := Options{Format: f, Limit: 65_536, Unit: channel.CodePoints, MaxParts: 8}
			p := newPacker(o, dialectOf(o))
			p.all(parse(document, dialectOf(o), o))
			if *p.work > 40*n {
				t.Errorf("%q as %s: %d bytes written", name, f, *p.work)
			}
		}
	}
}

// The parser would take quadratic time for some of these, so it never gets them.
func TestUntamedDocumentsAreShownAsTheyStand(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"wide table", "long table", "[", "[a](", "*a_ ", "> ", "1. ", "- ", "nested items"} {
		if document := hostile(128 << 10)[name]; tame(document) {
			t.Errorf("%s: the parser is given it", name)
		}
	}
	document := strings.Repeat("[", 2000) + " **all** of it\n"
	r := Render(document, Options{Format: channel.TelegramHTML, Limit: 4096})
	if len(r.Parts) != 1 || r.Parts[0].Text != strings.TrimSuffix(document, "\n") {
		t.Errorf("shown is %.60q", r.Parts)
	}
	if !tame(strings.Repeat("- **item** with [link](https://example.com) and `code`\n", 5000)) {
		t.Error("a long list is refused")
	}
}
