package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) {
	longtest.SideBySide()
	testscript.Main(withEngine{m}, map[string]func(){"sandjet": main})
}

// withEngine ends the Docker engine that tests have started.
type withEngine struct{ tests *testing.M }

func (w withEngine) Run() int { return dockertest.Main(w.tests) }

// TestScripts runs the command line as people do. Scripts that start processes of their own use
// these words beside those of testscript:
//
//	start NAME sandjet ARGS…     starts a command; what it prints goes to NAME.out and NAME.err
//	await FILE TEXT              waits until the file holds the text
//	signal NAME SIGNAL           sends a signal
//	halt NAME SIGNAL [CODE]      sends it, and wants the end with exit code 0 or CODE; signal: by that signal
//	ends NAME [CODE]             waits for the end by itself, with exit code 0 or CODE
//	field FILE KEY VAR           puts a field of a JSON file into a variable
//	exits CODE sandjet ARGS…     runs a command and wants that exit code
//	mode OCTAL FILE              wants a file to have a mode
//	plain ROLE SUBJECT TEXT      publishes by the text protocol of NATS, with the credential of a role.json
//	letter DIR VAR               waits for a dead letter and puts its id into a variable
//	hostport FILE KEY VAR        puts host:port of a field that is a URL into a variable
//	lastword FILE VAR            puts the last word of a file into a variable
//	telegram FILE VAR TOKEN      is a double of Telegram that knows a bot, writes a line of "CHAT TEXT" for each message into the file, and
//	                             puts its URL into a variable
//	receiver FILE VAR            takes webhooks, a line of "ID TYPE" each into the file, and puts its URL into a variable
//	askmode DIR MODE             sets the permission mode of all sandboxes
//	redis start|kill|restart     runs a Redis server; its URL is in $REDIS
//	[long]                       holds in the long form: what the short form leaves out begins with [!long] skip
//	kms                          runs a key service; its URL is in $KMS, the name of its key in $KMSKEY
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestScripts(t *testing.T) {
	scripts := &processes{}
	caps := &redisServers{t: t}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Condition:           condition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": scripts.start, "await": await, "halt": scripts.halt, "ends": scripts.ends, "signal": scripts.signal,
			"field": field, "exits": exits, "mode": mode,
			"plain": plain, "letter": letter, "hostport": hostport, "kms": kms, "lastword": lastword, "receiver": receiver,
			"telegram": telegramDouble,
			"askmode":  askmode, "redis": caps.do,
		},
	})
}

// condition evaluates the one condition that scripts have in addition to those of testscript: [long], true in long test runs.
func condition(name string) (bool, error) {
	if name != "long" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return longtest.Asked(), nil
}

// setup clears the settings of the user that runs the tests.
func setup(e *testscript.Env) error {
	kept := e.Vars[:0]
	for _, v := range e.Vars {
		if !strings.HasPrefix(v, "SANDJET_") {
			kept = append(kept, v)
		}
	}
	deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
	if err != nil {
		return fmt.Errorf("find the examples: %w", err)
	}
	e.Vars = append(kept, "ANY=127.0.0.1:0", "DEPLOY="+deploy)
	if err := os.Chmod(e.WorkDir, 0o755); err != nil { // boxes of root run as another user
		return fmt.Errorf("open the test's folder: %w", err)
	}
	return nil
}

// patience is for what must happen at all: generous, because the machine may be busy.
const patience = 3 * time.Minute

// await waits for a text in a file that another process writes.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE TEXT")
	}
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(patience); ; {
		b, err := os.ReadFile(path) // the test's own file
		if err == nil && strings.Contains(string(b), args[1]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s has no %q after %s; it has:\n%s", args[0], args[1], patience, b)
		}
		time.Sleep(10 * time.Millisecond) // polls another process
	}
}

func field(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: field FILE KEY VAR")
	}
	v, err := readJSON[map[string]any](ts.MkAbs(args[0]))
	ts.Check(err)
	got, ok := v[args[1]]
	if !ok {
		ts.Fatalf("%s has no field %s: %v", args[0], args[1], v)
	}
	if f, ok := got.(float64); ok {
		got = int64(f)
	}
	ts.Setenv(args[2], fmt.Sprint(got))
}

// exits runs a command and compares its exit code, which testscript's exec does not report.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS…")
	}
	err := ts.Exec(args[1], args[2:]...)
	want := "exit status " + args[0]
	switch {
	case args[0] == "0" && err == nil:
	case err == nil || err.Error() != want:
		ts.Fatalf("%s: %v, want %s", strings.Join(args[1:], " "), err, want)
	}
}

// mode fails unless a file has the given mode, in octal.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode OCTAL FILE")
	}
	want, err := strconv.ParseUint(args[0], 8, 32)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := info.Mode().Perm(); got != os.FileMode(want) {
		ts.Fatalf("%s has mode %o, want %s", filepath.Base(args[1]), got, args[0])
	}
}

func plain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: plain ROLE SUBJECT TEXT")
	}
	r, err := readJSON[role](ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(publishPlain(context.Background(), credentials(r.URL, r.User, r.Password), args[1], []byte(args[2])))
}

func letter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: letter DIR VAR")
	}
	for end := time.Now().Add(patience); ; {
		ts.Check(ts.Exec("sandjet", "--json", "dead", "ls", "--data-dir", args[0]))
		var d schemas.DeadLetter
		if out := ts.ReadFile("stdout"); json.Unmarshal([]byte(out), &d) == nil && d.ID != "" {
			ts.Setenv(args[1], d.ID)
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("there is no dead letter after %s", patience)
		}
	}
}

func hostport(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: hostport FILE KEY VAR")
	}
	v, err := readJSON[map[string]any](ts.MkAbs(args[0]))
	ts.Check(err)
	u, err := url.Parse(fmt.Sprint(v[args[1]]))
	ts.Check(err)
	ts.Setenv(args[2], u.Host)
}

func lastword(ts *testscript.TestScript, neg bool, args []string) {
	words := strings.Fields(ts.ReadFile(args[0]))
	if neg || len(args) != 2 || len(words) == 0 {
		ts.Fatalf("usage: lastword FILE VAR, with a word in the file")
	}
	ts.Setenv(args[1], words[len(words)-1])
}
