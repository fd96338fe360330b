package notebook

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// ran is what code left that ran as a cell.
type ran struct {
	stdout, stderr string
	ok             bool
	files          map[string]string // in outputs/, by the end of the name
}

// runCell runs code as execute does, by the interpreter in a folder. modules are files beside it, such as stand-ins for libraries.
func runCell(t *testing.T, python, code string, modules map[string]string) ran {
	t.Helper()
	dir, lib := t.TempDir(), t.TempDir()
	for name, text := range modules {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(lib, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lib, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := Feed(Cell(), code)
	var out, problems strings.Builder
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=1", "PATH="+python+":"+os.Getenv("PATH"))
	got := ran{ok: cmd.Run() == nil, files: map[string]string{}}
	got.stdout, got.stderr = out.String(), problems.String()
	all, err := filepath.Glob(filepath.Join(dir, "outputs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		if !strings.HasPrefix(name, "result-") {
			t.Errorf("it left %s", name)
		}
		got.files[name[strings.LastIndex(name, "-")+1:]] = string(b)
	}
	return got
}

func (r ran) names() string {
	var all []string
	for n := range r.files {
		all = append(all, n)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Stand-ins with what the cell looks for in the libraries.
const (
	fakePyplot = `
class Figure:
    def __init__(self, n): self.n = n
    def savefig(self, to, format=None, **_): to.write(b"PNG of %d" % self.n)
    def __repr__(self): return "<Figure>"
Figure.__module__ = "matplotlib.figure"
figures = {}
def plot():
    figures[len(figures) + 1] = Figure(len(figures) + 1)
    return figures[len(figures)]
def get_fignums(): return list(figures)
def figure(n): return figures[n]
def close(which): figures.clear()
`
	fakePandas = `
class DataFrame:
    def __init__(self, rows): self.rows = rows
    def head(self, n): return DataFrame(self.rows[:n])
    def to_csv(self): return "".join("%s\n" % r for r in self.rows)
    def _repr_html_(self): return "<table>"
    def __repr__(self): return "frame of %d" % len(self.rows)
DataFrame.__module__ = "pandas.core.frame"
`
)

func TestCodeRunsAsInANotebook(t *testing.T) {
	t.Parallel()
	modules := map[string]string{
		"matplotlib/__init__.py": "", "matplotlib/pyplot.py": fakePyplot, "pandas/__init__.py": fakePandas,
	}
	where := python(t)
	for name, c := range map[string]struct {
		code, stdout, stderr, files string
		fails                       bool
	}{
		"the last expression":   {code: "x = 20\nx * 2 + 2", stdout: "42\n"},
		"nothing":               {code: "x = 1", stdout: ""},
		"no value":              {code: "print('a')", stdout: "a\n"},
		"its names":             {code: "sorted(n for n in globals() if not n.startswith('__'))", stdout: "[]\n"},
		"what it defines":       {code: "def f(): return g\ng = 3\nclass A: pass\nf(), A.__module__", stdout: "(3, '__main__')\n"},
		"its own end":           {code: "import sys\nsys.exit(3)", fails: true},
		"an error":              {code: "def f():\n    return 1 / 0\nprint('a')\nf()", stdout: "a\n", stderr: "Traceback (most recent call last):\n  File \"main.py\", line 4, in <module>\n    f()", fails: true},
		"no Python":             {code: "x = = 1", stderr: "SyntaxError", fails: true},
		"a figure at the end":   {code: "import matplotlib.pyplot as p\np.plot()", stdout: "", files: "1.png"},
		"two figures":           {code: "import matplotlib.pyplot as p\np.plot()\np.plot()\nNone", files: "1.png 2.png"},
		"a figure and an error": {code: "import matplotlib.pyplot as p\np.plot()\n1 / 0", stderr: "ZeroDivisionError", files: "1.png", fails: true},
		"a table":               {code: "import pandas\npandas.DataFrame(list(range(20000)))", stdout: "frame of 20000\n", files: "1.csv 1.html"},
		"shown on the way":      {code: "import pandas\ndisplay(pandas.DataFrame([1]), 7)\n8", stdout: "frame of 1\n7\n8\n", files: "1.csv 1.html"},
		"a bundle": {
			code: "class B:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'image/png': 'aGk=', 'application/json': {'a': [1]}}, {}\n" +
				"    def _repr_html_(self): return '<b>'\n    def __repr__(self): return 'b'\nB()",
			stdout: "b\n", files: "1.html 1.json 1.png",
		},
		"a bundle that fails": {
			code:   "class B:\n    def _repr_html_(self): raise ValueError('x')\n    def _repr_png_(self): return 'no base64!'\n    def __repr__(self): return 'b'\nB()",
			stdout: "b\n", stderr: "a result is not kept as image/png",
		},
		"a class is no value of it": {code: "import pandas\npandas.DataFrame", stdout: "<class 'pandas.core.frame.DataFrame'>\n"},
		"elsewhere":                 {code: "import os, pandas\nos.chdir('/')\npandas.DataFrame([1])", stdout: "frame of 1\n", files: "1.csv 1.html"},
		"quotes":                    {code: "'it\\'s \"$HOME\" `x`'", stdout: `'it\'s "$HOME" ` + "`x`'\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCell(t, where, c.code, modules)
			if got.stdout != c.stdout || got.ok == c.fails || !strings.Contains(got.stderr, c.stderr) || got.names() != c.files {
				t.Errorf("%+v\nfiles %q, want %+v", got, got.names(), c)
			}
			if c.stderr == "" && got.stderr != "" || strings.Contains(got.stderr, "<string>") {
				t.Errorf("stderr:\n%s", got.stderr)
			}
			if csv := got.files["1.csv"]; strings.Count(csv, "\n") > 10_000 {
				t.Errorf("the table has %d lines", strings.Count(csv, "\n"))
			}
		})
	}
}

// TestCodeWithTheRealLibraries: what the cell looks for in Matplotlib and pandas is there.
func TestCodeWithTheRealLibraries(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it needs Matplotlib and pandas")
	where := ""
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		out, err := exec.CommandContext(t.Context(), p, "-c", `import sys, matplotlib, pandas; print(sys.executable, end="")`).Output()
		if err == nil {
			where = filepath.Dir(string(out))
		}
	}
	if where == "" {
		longtest.Missing(t, "no python3 has Matplotlib and pandas: .ci/install plots")
	}
	got := runCell(t, where, `
import matplotlib.pyplot as plt, pandas as pd
f = pd.DataFrame({"a": range(20000), "b": 1.5})
f.head(50).plot(x="a", y="b")
plt.show()
fig, ax = plt.subplots()
ax.plot([1, 2])
display(fig)
display(f.groupby("b").size())
f
`, nil)
	if !got.ok || got.stderr != "" || got.names() != "1.png 2.csv 3.csv 3.html 4.png" {
		t.Fatalf("%+v: %q", got, got.names())
	}
	for _, n := range []string{"1.png", "4.png"} {
		if !strings.HasPrefix(got.files[n], "\x89PNG") {
			t.Errorf("%s: %.20q", n, got.files[n])
		}
	}
	if lines := strings.Count(got.files["3.csv"], "\n"); lines != 10_001 {
		t.Errorf("the table has %d lines", lines)
	}
	if !strings.Contains(got.files["3.html"], "<table") || !strings.Contains(got.stdout, "[20000 rows x 2 columns]") {
		t.Errorf("%.200s\n%s", got.files["3.html"], got.stdout)
	}
}
