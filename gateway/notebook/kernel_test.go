package notebook

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// shown is what a kernel shows of code.
type shown struct {
	stdout, stderr string
	count          int
	results        []map[string]any // without type
	errors         []string         // name: value
	trace          string
	errorSize      int // bytes of JSON, of the largest
	exit           int
}

func (s shown) main() (text string) {
	for _, r := range s.results {
		if r["is_main_result"] == true {
			text, _ = r["text"].(string)
		}
	}
	return text
}

// python is the folder of an interpreter: what is on PATH may be a script that looks for the real one, which takes longer than the code.
func python(t *testing.T) string {
	t.Helper()
	where, err := exec.CommandContext(t.Context(), "python3", "-c", `import sys; print(sys.executable, end="")`).Output()
	if err != nil {
		longtest.Missing(t, "python3: %v", err)
	}
	return filepath.Dir(string(where))
}

// sandbox is a folder and an environment in which kernels run.
type sandbox struct {
	dir      string
	env      []string
	patience time.Duration
}

func newSandbox(t *testing.T, modules map[string]string) sandbox {
	t.Helper()
	lib := t.TempDir()
	for name, text := range modules {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(lib, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lib, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	short, err := os.MkdirTemp("", "k") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	return sandbox{t.TempDir(), append(os.Environ(), "TMPDIR="+short, "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=1",
		"PATH="+python(t)+":"+os.Getenv("PATH")), time.Minute}
}

func (s sandbox) command(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// kernel starts one, and ends it with the test.
func (s sandbox) kernel(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := s.command(context.WithoutCancel(t.Context()), Kernel(name))
	var problems strings.Builder
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text := problems.String(); text != "" {
			t.Errorf("the kernel says:\n%s", text)
		}
	})
	return cmd
}

// ask has code run, and reads what is shown until its end. each is called with each line.
func (s sandbox) ask(ctx context.Context, t *testing.T, name, code string, env map[string]string, each func(kind string)) (got shown) {
	t.Helper()
	command, err := Ask(name, s.patience, env)
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.command(ctx, "exec "+Feed(command, code))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var m map[string]any
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Errorf("%q: %v", lines.Text(), err)
			continue
		}
		kind, _ := m["type"].(string)
		delete(m, "type")
		switch kind {
		case "stdout":
			got.stdout += m["text"].(string)
		case "stderr":
			got.stderr += m["text"].(string)
		case "result":
			got.results = append(got.results, m)
		case "error":
			got.errors = append(got.errors, fmt.Sprintf("%s: %s", m["name"], m["value"]))
			got.trace, _ = m["traceback"].(string)
			got.errorSize = max(got.errorSize, len(lines.Bytes()))
		case "number_of_executions":
			got.count = int(m["execution_count"].(float64))
		default:
			t.Errorf("%q", lines.Text())
		}
		if each != nil {
			each(kind)
		}
	}
	_ = cmd.Wait()
	got.exit = cmd.ProcessState.ExitCode()
	return got
}

func TestAKernelKeepsWhatCodeLeaves(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, map[string]string{"matplotlib/__init__.py": "", "matplotlib/pyplot.py": fakePyplot, "pandas/__init__.py": fakePandas})
	s.kernel(t, "a")
	for i, c := range []struct {
		code, main, stdout, stderr, fails, trace string
		env                                      map[string]string
	}{
		{code: "x = 1", main: ""},
		{code: "x += 1; x", main: "2"},
		{code: "x += 1; x;"},
		{code: "_", main: "2"},
		{code: "print('a')\nimport sys; print('b', file=sys.stderr)\n'c'", stdout: "a\n", stderr: "b\n", main: "'c'"},
		{code: "print('no end of line', end='')", stdout: "no end of line"},
		{code: "import os; _ = os.system('echo from outside; echo wrong >&2')", stdout: "from outside\n", stderr: "wrong\n"},
		{code: "!echo it\\'s $((1+1))\nif True:\n    !echo in a block\nx", stdout: "it's 2\nin a block\n", main: "3"},
		{code: "%matplotlib inline\ny = (7\n % 4)\ny", main: "3"},
		{code: "%nothing", fails: "SyntaxError"},
		{code: "def f():\n    return 1 / 0\nx = 10"},
		{code: "print('before')\nf()", stdout: "before\n", fails: "ZeroDivisionError: division by zero", trace: "return 1 / 0"},
		{code: "x", main: "10"},
		{code: "import sys\nsys.exit(3)", fails: "SystemExit: 3"},
		{code: "x", main: "10"},
		{code: "x = = 1", fails: "SyntaxError"},
		{code: "import asyncio\nawait asyncio.sleep(0)\nasync def g(): return 5\nawait g()", main: "5"},
		{code: "import os; os.environ['A'], os.environ.get('HOME')", main: "('it\\'s \"x\"', '/h')", env: map[string]string{"A": `it's "x"`, "HOME": "/h"}},
		{code: "os.environ.get('A')"},
		{code: "input()", fails: "EOFError"},
		{code: "import sys\nsys.stdout = open(os.devnull, 'w')\nprint('lost')"},
		{code: "sys.stdout = sys.__stdout__\nprint('ä\\ud800\\0')", stdout: "ä\\ud800\x00\n"},
		{code: "sys.stdout.buffer.write(b'\\xff\\n')\nNone", stdout: "\uFFFD\n"},
		{code: "__name__, sorted(n for n in globals() if not n.startswith('_'))[:3]", main: "('__main__', ['asyncio', 'f', 'g'])"},
		{code: "import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))).__name__", main: "'P'"},
		{code: "class B(Exception):\n    def __str__(self): raise ValueError\nraise B", fails: "B: "},
		{code: "class R:\n    def __repr__(self): raise ValueError('no text')\nR()", fails: "ValueError: no text"},
		{code: "import multiprocessing as m\ndef w(q): q.put(6)\nq = m.get_context('fork').Queue(); p = m.get_context('fork').Process(target=w, args=(q,)); p.start(); q.get()", main: "6"},
	} {
		got := s.ask(t.Context(), t, "a", c.code, c.env, nil)
		if got.exit != 0 || got.main() != c.main || got.stdout != c.stdout || got.stderr != c.stderr || got.count != i+1 {
			t.Errorf("%s\n%+v\nmain %q, want %+v", c.code, got, got.main(), c)
		}
		if fails := strings.Join(got.errors, "|"); !strings.HasPrefix(fails, c.fails) || (fails == "") != (c.fails == "") ||
			!strings.Contains(got.trace, c.trace) || strings.Contains(got.trace, "run_kernel") {
			t.Errorf("%s\n%q, want %q\n%s", c.code, got.errors, c.fails, got.trace)
		}
	}
}

func TestAKernelShowsPicturesAndTables(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, map[string]string{"matplotlib/__init__.py": "", "matplotlib/pyplot.py": fakePyplot, "pandas/__init__.py": fakePandas})
	s.kernel(t, "a")
	for _, c := range []struct{ code, want string }{
		{"import matplotlib.pyplot as p\np.plot()\np.plot()\nNone",
			`[{"is_main_result":false,"png":"UE5HIG9mIDE="},{"is_main_result":false,"png":"UE5HIG9mIDI="}]`},
		{"p.plot()", `[{"is_main_result":true,"png":"UE5HIG9mIDE=","text":"<Figure>"}]`}, // those before were closed
		{"f = p.plot(); display(f); display(f)\n1 / 0",
			`[{"is_main_result":false,"png":"UE5HIG9mIDE=","text":"<Figure>"},{"is_main_result":false,"text":"<Figure>"}]`},
		{"import pandas\npandas.DataFrame([1])", `[{"html":"<table>","is_main_result":true,"text":"frame of 1"}]`},
		{"class B:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'image/png': 'aGk=', 'application/json': {'a': [1]}, 'a/b': 'c'}, {}\n" +
			"    def _repr_latex_(self): return '$x$'\n    def _repr_png_(self): raise ValueError\n    def __repr__(self): return 'b'\ndisplay(B())",
			`[{"extra":{"a/b":"c"},"is_main_result":false,"json":{"a":[1]},"latex":"$x$","png":"aGk=","text":"b"}]`},
	} {
		got := s.ask(t.Context(), t, "a", c.code, nil, nil)
		text, err := json.Marshal(got.results)
		if got.exit != 0 || err != nil || strings.ReplaceAll(strings.ReplaceAll(string(text), `\u003c`, "<"), `\u003e`, ">") != c.want {
			t.Errorf("%s\n%+v\n%s, want %s", c.code, got, text, c.want)
		}
	}
}

// TestAKernelShowsNoMoreThanFits: neither prints nor pictures, and what is left out is an error that says so.
//
//guarantee:bounds
func TestAKernelShowsNoMoreThanFits(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	s.kernel(t, "a")
	for code, want := range map[string]string{
		"for i in range(100): print('x' * 9000)":                   "",
		"for i in range(200): print('x' * 9000)":                   "OutputTooLarge: ",
		"'x' * 2000000":                                            "OutputTooLarge: ",
		"print('x' * 3000000)\n1 / 0":                              "ZeroDivisionError: ",
		"raise ValueError('x' * 3000000)":                          "ValueError: x",
		"print('x' * 3000000)\nraise ValueError('\u20ac' * 30000)": "ValueError: \u20ac",
		"raise ValueError('\\0' * 30000)":                          "ValueError: \x00",
		"import os; _ = os.system('yes | head -c 5000000')":        "OutputTooLarge: ",
	} {
		bytes := 0
		got := s.ask(t.Context(), t, "a", code, nil, nil)
		for _, r := range got.results {
			text, _ := r["text"].(string)
			bytes += len(text)
		}
		bytes += len(got.stdout) + len(got.trace)
		const beside = 64 << 10 // the room that is left for an error
		if got.errorSize > beside {
			t.Errorf("%s: an error of %d bytes", code, got.errorSize)
		}
		if fails := strings.Join(got.errors, "|"); got.exit != 0 || !strings.HasPrefix(fails, want) || (fails == "") != (want == "") || bytes > 1<<20 {
			t.Errorf("%s: exit %d, %d bytes, %.200q", code, got.exit, bytes, got.errors)
		}
	}
}

// TestCodeEndsWithWhoAsked: the code of one who is gone is interrupted, also where it does not want that; the kernel keeps what was
// there, and one code runs after the other.
//
//guarantee:bounds
func TestCodeEndsWithWhoAsked(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	s.kernel(t, "a")
	for _, code := range []string{
		"n = 1\nprint('begun')\nimport time\ntime.sleep(600)",
		"n = 2\nimport time\nprint('begun')\nfor i in range(3):\n    try: time.sleep(600)\n    except BaseException: n += 10",
		"n = 3\nprint('begun')\nimport asyncio\nawait asyncio.sleep(600)",
		"n = 4\nprint('begun')\nwhile True: pass",
	} {
		ctx, leave := context.WithCancel(t.Context())
		s.ask(ctx, t, "a", code, nil, func(kind string) {
			if kind == "stdout" {
				leave()
			}
		})
		leave()
	}
	if got := s.ask(t.Context(), t, "a", "n", nil, nil); got.main() != "4" || got.count != 5 {
		t.Errorf("%+v", got)
	}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if got := s.ask(t.Context(), t, "a", "was = n\nimport time\ntime.sleep(.02)\nn = was + 1", nil, nil); got.exit != 0 || len(got.errors) > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
	if got := s.ask(t.Context(), t, "a", "n", nil, nil); got.main() != "9" {
		t.Errorf("%+v", got)
	}
}

// TestAKernelThatEnds is no success of the code that it had, and no kernel for the next.
func TestAKernelThatEnds(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, nil)
	hasty := s
	hasty.patience = 50 * time.Millisecond
	if got := hasty.ask(t.Context(), t, "none", "1", nil, nil); got.exit != ExitNoKernel {
		t.Errorf("%+v", got)
	}
	k := s.kernel(t, "a")
	got := s.ask(t.Context(), t, "a", "print('on the way')\nimport os\nos.kill(os.getpid(), 9)", nil, nil)
	if got.exit != ExitKernelEnded || got.stdout != "" && got.stdout != "on the way\n" {
		t.Errorf("%+v", got)
	}
	_ = k.Wait()
	if got := s.ask(t.Context(), t, "a", "1", nil, nil); got.exit != ExitNoKernel || got.count != 0 {
		t.Errorf("%+v", got)
	}
	s.kernel(t, "b")
	if got := s.ask(t.Context(), t, "b", "1", nil, nil); got.main() != "1" || got.count != 1 {
		t.Errorf("%+v", got)
	}
}
