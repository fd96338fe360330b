package providertest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

func runCases() []testCase {
	return []testCase{
		{"an exit code is a result", exitCodes},
		{"death by a signal is 128+n", signals},
		{"a script that bash cannot read fails", badScripts},
		{"standard input arrives whole", stdinWhole},
		{"without standard input it is at its end", stdinNone},
		{"standard input need not be read", stdinUnread},
		{"the environment is cleared", environmentCleared},
		{"declared variables arrive as they are", environmentDeclared},
		{"reserved names win", environmentReserved},
		{"home and temporary directory can be written", environmentWritable},
		{"it starts in the first mount", workingDirDefault},
		{"it starts in the named directory", workingDirNamed},
		{"it does not start where there is no such directory", workingDirMissing},
		{"files of a workspace stay", filesStay},
		{"workspaces do not share files", filesApart},
		{"fresh boxes share nothing else", freshBoxes},
		{"a long script is a script", longScripts},
		{"a script is text, whatever is in it", scriptText},
		{"there is no terminal", noTerminal},
		{"only three files are open", threeFiles},
		{"the result says where and how long", resultFacts},
		{"many runs do not mix", concurrentRuns},
		{"what must not begin is not started", mustNotBegin},
		{"a missing box is not found", missingBox},
	}
}

func exitCodes(t *testing.T, s subject) {
	for script, code := range map[string]int{
		"true": 0, "": 0, "false": 1, "exit 3": 3, "exit 255": 255, "exit 256": 0, "exit 300": 44,
		"no-such-command-here": 127, "/etc/passwd": 126, "exec false": 1, "set -e; false; exit 9": 1,
		"trap 'exit 7' EXIT; exit 3": 7,
	} {
		want(t, fmt.Sprintf("exit code of %q", script), s.run(t, s.command(script)).ExitCode, code)
	}
}

func signals(t *testing.T, s subject) {
	for signal, code := range map[string]int{"KILL": 137, "TERM": 143, "INT": 130, "HUP": 129, "USR1": 138, "SEGV": 139, "PIPE": 141} {
		res := s.run(t, s.command("kill -"+signal+" $$; sleep 5; echo survived"))
		want(t, "exit code after "+signal, res.ExitCode, code)
		want(t, "output after "+signal, string(res.Stdout), "")
		want(t, "TimedOut after "+signal, res.TimedOut, false)
	}
}

func badScripts(t *testing.T, s subject) {
	for _, script := range []string{"if", "echo 'open", "cat <<", ")"} {
		res := s.run(t, s.command(script))
		if res.ExitCode == 0 && script != "cat <<" || len(res.Stderr) == 0 {
			t.Errorf("%q: exit code %d, stderr %q: want a failure with a reason", script, res.ExitCode, res.Stderr)
		}
	}
}

func stdinWhole(t *testing.T, s subject) {
	for _, size := range []int{1, 4096, 64 << 10, 64<<10 + 1, 1 << 20} {
		in := randomBytes(size)
		cmd := s.command("cat >file; wc -c <file; sha256sum file | cut -c1-64; read -r x && echo more || echo end")
		cmd.Stdin = in
		lines := strings.Fields(s.ok(t, cmd))
		if len(lines) != 3 || lines[0] != strconv.Itoa(size) || lines[1] != sha256Hex(in) || lines[2] != "end" {
			t.Errorf("%d bytes of input: got %q", size, lines)
		}
	}
}

func stdinNone(t *testing.T, s subject) {
	want(t, "input", s.sh(t, "wc -c; head -c 1 | wc -c"), "0\n0")
	want(t, "the script is not the input", s.sh(t, "cat\necho after"), "after")
}

func stdinUnread(t *testing.T, s subject) {
	cmd := s.command("echo done")
	cmd.Stdin = randomBytes(1 << 20)
	want(t, "output", s.ok(t, cmd), "done")
	cmd.Script = "head -c 10 >/dev/null; echo done"
	want(t, "output", s.ok(t, cmd), "done")
}

func environmentCleared(t *testing.T, s subject) {
	// It stays set: suites may run beside one another, where T.Setenv refuses, and only this case looks for it.
	if err := os.Setenv("SANDJET_CANARY", "canary-6f1c"); err != nil { //nolint:usetesting // as said above
		t.Fatal(err)
	}
	names := map[string]bool{"PATH": true, "HOME": true, "TMPDIR": true, "LANG": true, "USER": true, "LOGNAME": true, "PWD": true,
		"SHLVL": true, "_": true, "OLDPWD": true}
	for name := range environmentOf(t, s, s.command("env -0")) {
		if !names[name] {
			t.Errorf("%s is set and was not declared", name)
		}
	}
	if out := s.sh(t, "cat /proc/self/environ 2>/dev/null; env; cat /proc/$$/environ 2>/dev/null; true"); strings.Contains(out,
		"canary-6f1c") {
		t.Error("a variable of the worker is seen")
	}
}

// environmentOf runs cmd, which prints variables ended by NUL.
func environmentOf(t *testing.T, s subject, cmd providers.Command) map[string]string {
	t.Helper()
	env := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(s.ok(t, cmd), "\x00"), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return env
}

func environmentDeclared(t *testing.T, s subject) {
	declared := map[string]string{
		"PLAIN": "value", "EMPTY": "", "SPACES": "  a  b ", "QUOTES": `'"\$(echo no)` + "`echo no`", "LINES": "one\ntwo\n",
		"EQUALS": "a=b=c", "UNICODE": "äöü ᚱᛖ 🚀", "lower_case": "x", "LONG": strings.Repeat("x", 30_000),
	}
	cmd := s.command("env -0")
	cmd.Env = maps.Clone(declared)
	cmd.Spec.Env = map[string]string{"OF_THE_BOX": "box", "PLAIN": "overridden by the command"}
	declared["OF_THE_BOX"] = "box"
	got := environmentOf(t, s, cmd)
	for name, value := range declared {
		want(t, name, got[name], value)
	}
}

func environmentReserved(t *testing.T, s subject) {
	reserved := []string{"PATH", "HOME", "TMPDIR", "LANG"}
	plain := environmentOf(t, s, s.command("env -0"))
	cmd := s.command("env -0")
	cmd.Env, cmd.Spec.Env = map[string]string{}, map[string]string{}
	for _, name := range reserved {
		cmd.Env[name], cmd.Spec.Env[name] = "/declared", "/declared"
	}
	got := environmentOf(t, s, cmd)
	for _, name := range reserved {
		if got[name] == "" || got[name] == "/declared" || plain[name] == "" {
			t.Errorf("%s is %q, without a declaration %q", name, got[name], plain[name])
		}
	}
}

func environmentWritable(t *testing.T, s subject) {
	s.sh(t,
		`set -e; for d in "$HOME" "$TMPDIR"; do echo x >"$d/file"; mkdir "$d/dir"; rm -r "$d/file" "$d/dir"; done; f=$(mktemp); echo x >"$f"`)
}

func workingDirDefault(t *testing.T, s subject) {
	s.sh(t, "echo content >here")
	want(t, "file in the working directory", s.sh(t, "cat here"), "content")
	if s.hasRoot() {
		want(t, "working directory", s.sh(t, "pwd -P"), s.mount.Path())
	}
	cmd := s.command("echo x >f && cat f")
	cmd.Mounts, cmd.Spec.Mounts = nil, nil
	want(t, "a box without files can write somewhere", s.ok(t, cmd), "x")
}

func workingDirNamed(t *testing.T, s subject) {
	s.sh(t, "mkdir -p 'a b/c'; echo deep >'a b/c/file'")
	cmd := s.command("cat file")
	cmd.Dir = s.mount.Path() + "/a b/c"
	want(t, "file", s.ok(t, cmd), "deep")
}

func workingDirMissing(t *testing.T, s subject) {
	cmd := s.command("echo ran")
	cmd.Dir = s.mount.Path() + "/missing"
	res, err := s.Run(t.Context(), cmd)
	if err == nil && res.ExitCode == 0 || strings.Contains(string(res.Stdout), "ran") {
		t.Errorf("it ran all the same: %q, exit code %d, error %v", res.Stdout, res.ExitCode, err)
	}
}

func filesStay(t *testing.T, s subject) {
	s.sh(t, "mkdir -p dir; echo one >dir/file; ln -s dir/file link; chmod 755 dir; printf '#!/bin/sh\necho ran\n' >tool; chmod +x tool")
	want(t, "what another run sees", s.sh(t, "cat link; echo two >>dir/file; cat dir/file; ./tool"), "one\none\ntwo\nran")
	want(t, "what a third run sees", s.sh(t, "wc -l <dir/file; rm -r dir link tool; ls -A"), "2")
}

func filesApart(t *testing.T, s subject) {
	s.sh(t, "echo secret >file")
	other := s
	other.mount.Namespace = schemas.Namespace(account, "another")
	want(t, "another workspace", other.sh(t, "ls -A | grep -c '^file$'; true"), "0")
}

func freshBoxes(t *testing.T, s subject) {
	s.sh(t, `echo x >"$HOME/left"; echo x >"$TMPDIR/left"`)
	want(t, "what is left", s.sh(t, `ls -A "$HOME" "$TMPDIR" | grep -c left; true`), "0")
}

func longScripts(t *testing.T, s subject) {
	for _, size := range []int{60 << 10, 64 << 10, 64<<10 + 1, 130 << 10, 256 << 10, schemas.MaxCommand} {
		head, tail := "echo begin\n", "\necho end; wc -c </proc/$$/cmdline; cat"
		script := head + "#" + strings.Repeat("x", size-len(head)-len(tail)-1) + tail
		cmd := s.command(script)
		cmd.Stdin = []byte("input\n")
		lines := strings.Fields(s.ok(t, cmd))
		if len(lines) != 4 || lines[0] != "begin" || lines[1] != "end" || lines[3] != "input" {
			t.Fatalf("%d bytes of script: got %q", size, lines)
		}
		if n, err := strconv.Atoi(lines[2]); err != nil || n > 64<<10+1024 {
			t.Errorf("%d bytes of script: %s bytes of arguments", size, lines[2])
		}
	}
}

func scriptText(t *testing.T, s subject) {
	want(t, "here-document", s.sh(t, "cat <<'END'\n$HOME `x` \"q\" 'q' \\\nEND\n"), "$HOME `x` \"q\" 'q' \\")
	want(t, "characters", s.sh(t, "printf '%s' 'äᚱ🚀'"), "äᚱ🚀")
	want(t, "carriage return", s.sh(t, "printf '%s' 'a\rb'"), "a\rb")
	want(t, "functions and arrays", s.sh(t, "f() { local a=(\"$@\"); echo ${#a[@]}; }; f 1 '2 3'"), "2")
	want(t, "no arguments", s.sh(t, "echo $#"), "0")
	want(t, "leading dash", s.sh(t, "- 2>/dev/null; echo $?"), "127")
}

func noTerminal(t *testing.T, s subject) {
	want(t, "terminal",
		s.sh(t, "[ -t 0 ] && echo in; [ -t 1 ] && echo out; [ -t 2 ] && echo err; (exec 3<>/dev/tty) 2>/dev/null && echo tty; true"), "")
}

func threeFiles(t *testing.T, s subject) {
	s.needIsolation(t) // a bare process gets what the test's own parent left open
	// The one above 2 is the directory that ls itself reads.
	got := strings.Fields(s.sh(t, "ls /proc/self/fd"))
	if !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("open files: %q", got)
	}
}

func resultFacts(t *testing.T, s subject) {
	res := s.run(t, s.command("sleep 0.2"))
	if res.Duration.Seconds() < 0.2 || res.Duration > patience {
		t.Errorf("duration %v of a run of 200 ms", res.Duration)
	}
	if res.Runtime == "" || res.TimedOut || res.OOMKilled || res.Truncated || !res.Sandbox.IsZero() || res.FullOutput != "" {
		t.Errorf("%+v", res)
	}
	if res.Isolation == nil || res.Isolation.Level != s.profile.Isolation.Level {
		t.Errorf("isolation %+v, the profile says %+v", res.Isolation, s.profile.Isolation)
	}
}

func concurrentRuns(t *testing.T, s subject) {
	const n = 12
	outcomes := make([]<-chan outcome, n)
	for i := range n {
		if s.profile.ExclusiveWorkspaces { // they would wait for one another
			s.mount.Namespace = schemas.Namespace(account, schemas.WorkspaceID(t.Name()+strconv.Itoa(i)))
		}
		cmd := s.command("cat; for i in $(seq 500); do echo $ID; done; echo $ID >&2; exit $ID")
		cmd.Env = map[string]string{"ID": strconv.Itoa(i)}
		cmd.Stdin = fmt.Appendf(nil, "%d\n", i)
		outcomes[i] = s.start(t.Context(), cmd)
	}
	for i, done := range outcomes {
		got := receive(t, "a run's end", done)
		id := strconv.Itoa(i) + "\n"
		if got.err != nil || string(got.res.Stdout) != strings.Repeat(id, 501) || string(got.res.Stderr) != id || got.res.ExitCode != i {
			t.Errorf("run %d: exit code %d, error %v, %d bytes, stderr %q", i, got.res.ExitCode, got.err, len(got.res.Stdout), got.res.Stderr)
		}
	}
}

func mustNotBegin(t *testing.T, s subject) {
	refused := errors.New("another worker has its call")
	cmd := s.command("echo ran; echo ran >begun")
	cmd.ID = "refused-" + strconv.Itoa(rand.Int())
	cmd.Begin = func() error { return schemas.Wrap(schemas.Denied, "begin", "it must not", refused) }
	res, err := s.Run(t.Context(), cmd)
	if !errors.Is(err, refused) {
		t.Errorf("the error is %v, want that of Begin", err)
	}
	want(t, "Started", res.Started, false)
	want(t, "standard output", string(res.Stdout), "")

	asked := 0
	cmd.ID += "-not"
	cmd.Script, cmd.Begin = "ls", func() error { asked++; return nil }
	want(t, "what the next one finds", strings.Contains(s.ok(t, cmd), "begun"), false)
	if asked == 0 {
		t.Error("Begin was not asked")
	}
}

func missingBox(t *testing.T, s subject) {
	cmd := s.command("echo ran")
	cmd.Sandbox = schemas.Ref{ID: "no-such-box", Epoch: "none"}
	res, err := s.Run(t.Context(), cmd)
	code := schemas.NotFound
	if _, ok := providers.As[providers.Reserver](s.Provider); !ok {
		code = schemas.Unsupported
	}
	wantCode(t, err, code)
	want(t, "Started", res.Started, false)
}

// randomBytes returns pseudo-random bytes, the same for the same size.
func randomBytes(size int) []byte {
	src := rand.NewChaCha8([32]byte{byte(size)})
	b := make([]byte, size)
	_, _ = src.Read(b) // never fails
	return b
}

// dropped returns the number of missing bytes in the line that replaces them.
func dropped(line []byte) (int64, error) {
	digits := regexp.MustCompile(`\d+`).Find(line)
	return strconv.ParseInt(string(bytes.TrimSpace(digits)), 10, 64)
}
