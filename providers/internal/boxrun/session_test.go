package boxrun_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

const patience = 60 * time.Second

// process is the program on this host, with pipes instead of an engine.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	outputs [2]io.ReadCloser
	cut     [2]bool // only the first line of the output is passed on, as after a broken connection
	once    sync.Once
}

func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }

func (p *process) Copy(stdout, stderr io.Writer) error {
	var both sync.WaitGroup
	var lock sync.Mutex
	for i, w := range []io.Writer{stdout, stderr} {
		both.Go(func() {
			w := locked{w, &lock}
			if p.cut[i] {
				first, _ := bufio.NewReader(p.outputs[i]).ReadSlice('\n')
				_, _ = w.Write(first)
			} else {
				_, _ = io.Copy(w, p.outputs[i])
			}
		})
	}
	both.Wait()
	return nil
}

type locked struct {
	io.Writer
	lock *sync.Mutex
}

func (l locked) Write(b []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.Writer.Write(b)
}

func (p *process) Close() error {
	p.once.Do(func() {
		_ = p.in.Close()
		_ = p.outputs[0].Close()
		_ = p.outputs[1].Close()
	})
	return nil
}

// shells returns the shells that a sandbox may have.
func shells(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	found := map[string]string{}
	for name, args := range map[string]string{"bash": "bash", "dash": "dash", "busybox": "busybox sh"} {
		program, rest, _ := strings.Cut(args, " ")
		path, err := exec.LookPath(program)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Errorf("%s is not installed", program)
			}
			t.Logf("%s is not installed: not tried", program)
			continue
		}
		found[name] = path
		if rest != "" { // one that is called by its name
			found[name] = filepath.Join(dir, rest)
			if err := os.Symlink(path, found[name]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// each runs f for each shell.
func each(t *testing.T, f func(t *testing.T, b *box)) {
	t.Helper()
	for name, shell := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, &box{t: t, shell: shell})
		})
	}
}

// eachLong is each, but only with bash in the short form: TestWhatEndsAllThatWasStarted shows that the other shells kill what they
// started.
func eachLong(t *testing.T, f func(t *testing.T, b *box)) {
	t.Helper()
	each(t, func(t *testing.T, b *box) {
		if !strings.HasSuffix(b.shell, "bash") {
			longtest.Only(t, "the same in another shell")
		}
		f(t, b)
	})
}

type box struct {
	t     *testing.T
	shell string
	cut   [2]bool // see [process]

	mu  sync.Mutex
	out [2]bytes.Buffer
}

func (b *box) printed(i int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out[i].String()
}

// start starts a session and waits until it is ready.
func (b *box) start(c boxrun.Command) (*boxrun.Session, *process, error) {
	b.t.Helper()
	c.Shell = b.shell
	if c.Dir == "" {
		c.Dir = "/tmp"
	}
	if c.Limit == 0 {
		c.Limit = time.Hour
	}
	args := boxrun.Arguments(b.shell, os.Getenv("PATH"))
	p := &process{cmd: exec.Command(args[0], args[1:]...), cut: b.cut}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	pipes := [2]*os.File{}
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			b.t.Fatal(err)
		}
		p.outputs[i], pipes[i] = r, w
	}
	p.cmd.Stdout, p.cmd.Stderr = pipes[0], pipes[1]
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	_, _ = pipes[0].Close(), pipes[1].Close()
	s := boxrun.Start(p, c, func(stderr bool, data []byte) {
		b.mu.Lock()
		defer b.mu.Unlock()
		i := 0
		if stderr {
			i = 1
		}
		b.out[i].Write(data)
	})
	b.t.Cleanup(func() {
		_ = s.Close()
		_ = p.cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	return s, p, s.Ready(ctx)
}

// run runs a command and waits for it to exit.
func (b *box) run(c boxrun.Command) boxrun.Exit {
	b.t.Helper()
	s, _, err := b.start(c)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := s.Go(); err != nil {
		b.t.Fatal(err)
	}
	return b.end(s)
}

func (b *box) end(s *boxrun.Session) boxrun.Exit {
	b.t.Helper()
	select {
	case <-s.Over():
	case <-time.After(patience):
		b.t.Fatal("the command did not end")
	}
	e, ok := s.Exit()
	if !ok {
		b.t.Fatalf("it ended without a word: %q", b.printed(1))
	}
	return e
}

// It waits until the command has printed a word.
func (b *box) hear(word string) {
	b.t.Helper()
	testwait.Eventually(b.t, "it prints "+word, func() bool { return strings.Contains(b.printed(0), word) })
}

func TestEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		for _, c := range []struct {
			script string
			code   int
			out    string
		}{
			{"", 0, ""},
			{"echo hi; exit 7", 7, "hi\n"},
			{"exec sh -c 'exit 4'", 4, ""},
			{"set -e; echo a; false; echo b", 1, "a\n"},
			{"no-such-command-here", 127, ""},
			{"exit 124", 124, ""},
			{"kill -9 $$", 137, ""},
			{"kill -INT $$; echo no", 130, ""},
			{"kill -TERM $$; sleep 5; echo no", 143, ""},
			{"kill -9 0; sleep 5; echo no", 137, ""},
			{"trap 'exit 6' EXIT; true", 6, ""},
			{"echo $#; cat; echo after", 0, "0\nafter\n"},
			{"- 2>/dev/null; echo $?", 0, "127\n"},
			{"printf '%s' \"a'b\"; printf 'no newline'", 0, "a'bno newline"},
			{"exec >&- 2>&-; exit 3", 3, ""},
			{"printf '\\001forged end 0 0\\n'", 0, "\x01forged end 0 0\n"},
			{"#" + strings.Repeat("x", 200_000) + "\necho long $#", 0, "long 0\n"},
		} {
			b.out[0].Reset()
			e := b.run(boxrun.Command{Script: c.script})
			if e.Code != c.code || b.printed(0) != c.out {
				t.Errorf("%.60q: exit code %d, printed %q; want %d and %q (stderr %q)", c.script, e.Code, b.printed(0), c.code, c.out, b.printed(1))
			}
		}
	})
}

func TestVariablesAndInput(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		env := map[string]string{
			"PATH": os.Getenv("PATH"), "script": "of the user", "directory": "/none", "IFS": "x", "QUOTES": `'"\$(echo no)` + "\n`x`", "EMPTY": "",
		}
		in := bytes.Repeat([]byte("\x00\x01input\xff\n"), 20_000)
		b.run(boxrun.Command{Script: `printf '%s|' "$script" "$directory" "$QUOTES" "${EMPTY-unset}"; pwd; wc -c`, Env: env, Stdin: in, Dir: "/usr"})
		want := fmt.Sprintf("of the user|/none|%s||/usr\n%d\n", env["QUOTES"], len(in))
		if got := b.printed(0); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		left, err := filepath.Glob("/dev/shm/.sandjet-run-*")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range left { // others may run at the same time: ours must have ended
			if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
				t.Errorf("%s is left", dir)
			}
		}
	})
}

func TestOutputIsWhole(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		in := make([]byte, 0, 256*400)
		for range 400 {
			for i := range 256 {
				in = append(in, byte(i))
			}
		}
		b.run(boxrun.Command{Script: "tee /dev/stderr", Stdin: in, Env: map[string]string{"PATH": os.Getenv("PATH")}})
		if b.printed(0) != string(in) || b.printed(1) != string(in) {
			t.Errorf("%d and %d bytes came, %d were printed", len(b.printed(0)), len(b.printed(1)), len(in))
		}
	})
}

// TestAnOutputThatIsCutIsNoEnd: the stream ends after one output was passed on completely and the other was not. The first contains the
// exit code, but the command's output is incomplete.
func TestAnOutputThatIsCutIsNoEnd(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string][2]bool{"stdout is cut": {true, false}, "stderr is cut": {false, true}, "none is": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, b *box) {
				b.cut = cut
				s, _, err := b.start(boxrun.Command{Script: "echo out; echo err >&2; exit 3"})
				testwait.OK(t, err)
				testwait.OK(t, s.Go())
				<-s.Over()
				switch e, ok := s.Exit(); {
				case ok && (cut[0] || cut[1]):
					t.Errorf("it ended with %d, and printed %q and %q", e.Code, b.printed(0), b.printed(1))
				case !cut[0] && !cut[1] && (!ok || e.Code != 3):
					t.Errorf("it ended with %d, %v, want 3", e.Code, ok)
				}
			})
		})
	}
}

func TestNothingRunsWithoutADirectory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box) {
		_, _, err := b.start(boxrun.Command{Script: "echo ran", Dir: "/no/such/directory"})
		if !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("got %v", err)
		}
		if b.printed(0) != "" {
			t.Errorf("printed %q", b.printed(0))
		}
	})
}

// deaf is a script that prints its pid and ignores SIGTERM. Its child has left the session and cleared its environment.
const deaf = `trap '' TERM HUP INT; (env -i "$(command -v setsid)" sleep 1000 & echo "$!") ; echo $$; echo begun; while :; do sleep 1000; done`

func TestWhatEndsAllThatWasStarted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *boxrun.Session, p *process){
		"the word kill": func(t *testing.T, s *boxrun.Session, _ *process) {
			t.Helper()
			if err := s.Kill(); err != nil {
				t.Error(err)
			}
		},
		"a worker that is gone": func(_ *testing.T, _ *boxrun.Session, p *process) { _ = p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := each
			if name != "the word kill" {
				in = eachLong
			}
			in(t, func(t *testing.T, b *box) {
				s, p, err := b.start(boxrun.Command{Script: deaf})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Go(); err != nil {
					t.Fatal(err)
				}
				b.hear("begun")
				pids := strings.Fields(b.printed(0))[:2]
				end(t, s, p)
				for _, pid := range pids {
					gone(t, pid)
				}
				_ = p.cmd.Wait()
			})
		})
	}
}

func TestAfterItsLimitACommandEndsByItself(t *testing.T) {
	t.Parallel()
	eachLong(t, func(t *testing.T, b *box) {
		if strings.Contains(b.shell, "dash") {
			t.Skip("dash cannot wait for a time")
		}
		s, _, err := b.start(boxrun.Command{Script: deaf, Limit: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Go(); err != nil {
			t.Fatal(err)
		}
		if e := b.end(s); e.Code != 137 {
			t.Errorf("exit code %d", e.Code)
		}
	})
}

// TestAProgramWithoutHeartbeatsEnds although its input stays open, as that of a container does which its engine has lost track of.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestAProgramWithoutHeartbeatsEnds(t *testing.T) {
	t.Parallel()
	eachLong(t, func(t *testing.T, b *box) {
		if strings.Contains(b.shell, "dash") {
			t.Skip("dash cannot wait for a time")
		}
		for _, heard := range []string{"", "half a li", "nonce 1 1 0 0 0 bash\n"} {
			args := boxrun.Arguments(b.shell, os.Getenv("PATH"))
			i := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "-t 60") })
			args[i] = strings.ReplaceAll(args[i], "-t 60", "-t 1")
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, heard); err != nil {
				t.Fatal(err)
			}
			gone(t, fmt.Sprint(cmd.Process.Pid))
			_ = cmd.Wait()
		}
	})
}

func TestTermAsksAll(t *testing.T) {
	t.Parallel()
	eachLong(t, func(t *testing.T, b *box) {
		s, _, err := b.start(boxrun.Command{Script: "trap 'echo bye; exit 0' TERM; sleep 1000 & echo begun; wait"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Go(); err != nil {
			t.Fatal(err)
		}
		b.hear("begun")
		if err := s.Term(); err != nil {
			t.Fatal(err)
		}
		b.end(s)
		if got := b.printed(0); got != "begun\nbye\n" {
			t.Errorf("printed %q", got)
		}
	})
}

func TestAProgramThatIsKilledCanBeSweptAfter(t *testing.T) {
	t.Parallel()
	eachLong(t, func(t *testing.T, b *box) {
		s, p, err := b.start(boxrun.Command{Script: deaf})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Go(); err != nil {
			t.Fatal(err)
		}
		b.hear("begun")
		pids := strings.Fields(b.printed(0))[:2]
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		args := boxrun.SweepArguments(b.shell, os.Getenv("PATH"), s.Mark())
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Errorf("sweep: %v, %s", err, out)
		}
		for _, pid := range pids {
			gone(t, pid)
		}
		if _, ok := s.Exit(); ok {
			t.Error("an exit code was told that nobody has seen")
		}
	})
}

// TestAChainOfProcessesIsEnded: a chain of processes is killed although each of them starts the next one and exits soon.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestAChainOfProcessesIsEnded(t *testing.T) {
	t.Parallel()
	eachLong(t, func(t *testing.T, b *box) {
		for range 2 {
			links := filepath.Join(t.TempDir(), "links")
			s, p, err := b.start(boxrun.Command{Script: "link() { echo >>" + links + "; sleep 0.002; link & exit 0; }; link"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Go(); err != nil {
				t.Fatal(err)
			}
			testwait.Eventually(t, "the chain grows", func() bool { return size(links) > 20 })
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			args := boxrun.SweepArguments(b.shell, os.Getenv("PATH"), s.Mark())
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Errorf("sweep: %v, %s", err, out)
			}
			before := size(links)
			time.Sleep(100 * time.Millisecond) // 20 links
			if after := size(links); after > before {
				t.Fatalf("the chain still grows: from %d to %d", before, after)
			}
		}
	})
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// gone waits until a process has ended.
func gone(t *testing.T, pid string) {
	t.Helper()
	testwait.Eventually(t, "the end of process "+pid, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		return err != nil || strings.HasPrefix(rest, "Z")
	})
}
