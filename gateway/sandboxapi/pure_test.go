package sandboxapi

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestPaths(t *testing.T) {
	for in, want := range map[string]string{
		"a": "a", "a/./b//c": "a/b/c", "/workspace": ".", "/workspace/a": "a", "/workspace//a/": "a", "..a/b..": "..a/b..", "": ".",
	} {
		if got, err := checkPath("path", in, true); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"..", "a/..", "../a", "/etc", "/", "/workspace/../etc", "/workspacex/a", "a\x00b", strings.Repeat("x", 4097)} {
		if got, err := checkPath("path", in, true); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", ".", "/workspace", "a/"} {
		if got, err := checkFile("path", in); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// FuzzRequests: whatever is sent is refused as invalid, or stays in the workspace.
func FuzzRequests(f *testing.F) {
	f.Add(`{"session_id":"s","path":"a/../b"}`)
	f.Add(`{"session_id":"s","path":"/workspace/a","content_base64":"aGk=","if_match":"x"}`)
	f.Add(`{"files":[{"path":"a","content_base64":"aGk=","mode":"0755"}],"overwrite":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		var w WriteRequest
		if schemas.DecodeStrict([]byte(text), schemas.MaxRequest, &w) == nil {
			inside(t, w.Path)
			if _, data, _, err := w.content(); err == nil && len(data) > MaxTransfer {
				t.Errorf("%d bytes", len(data))
			}
			if err := checkCommon(w.common()); err == nil && len(w.SessionID) > schemas.MaxSandboxSessionID {
				t.Errorf("%q", w.SessionID)
			}
		}
		var c CopyRequest
		if schemas.DecodeStrict([]byte(text), schemas.MaxRequest, &c) == nil {
			files, bad, err := c.files()
			if err == nil && len(files) != len(c.Files) {
				t.Errorf("%d of %d", len(files), len(c.Files))
			}
			for i, f := range files {
				if bad[i] == nil && (len(f.mode) != 3 || strings.Trim(f.mode, "01234567") != "") {
					t.Errorf("mode %q", f.mode)
				}
			}
		}
	})
}

func inside(t *testing.T, p string) {
	t.Helper()
	got, err := checkPath("path", p, true)
	switch {
	case err != nil && !errors.Is(err, schemas.ErrInvalid):
		t.Errorf("%q: %v", p, err)
	case err == nil && (path.IsAbs(got) || got == ".." || strings.HasPrefix(got, "../") || strings.IndexByte(got, 0) >= 0):
		t.Errorf("%q leads to %q", p, got)
	}
}

// TestTextsStayTexts runs what is made of hostile texts, and wants each to be what it was.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestTextsStayTexts(t *testing.T) {
	hostile := "it's $(touch x) `touch y` \"\\\n; exit 3 #"
	run := func(command string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	if got := run(commandOf(BashRequest{Command: `printf %s "$A"`, Env: map[string]string{"A": hostile}}, ".")); got != hostile {
		t.Errorf("%q", got)
	}
	command, err := program(ExecuteRequest{Language: "bash", Code: "cat <<'EOF'\n" + hostile + "\nEOF\nSANDJET_0=1"})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(command); got != hostile+"\n" {
		t.Errorf("%q", got)
	}
	names := []string{"a b", "new\nline|1|2|3|x", "it's", "none"}
	var script strings.Builder
	for _, n := range names[:3] {
		script.WriteString("printf 12345 > " + quote("./"+n) + "\n")
	}
	list := described(run(script.String()+statAll(names)), names)
	for i, p := range list {
		if there := p.Size != nil && *p.Size == 5 && p.Modified != nil && !p.IsDir; there != (i < 3) || p.Path != names[i] {
			t.Errorf("%q: %+v", names[i], p)
		}
	}
	files := []file{
		{path: "d/it's", data: []byte("\x00\xff"), mode: "640"}, {path: "d", data: []byte("x"), mode: "644", replace: true},
		{path: "d/it's/x", data: nil, mode: "644"}, {path: "d/it's", data: []byte("y"), mode: "644"},
		{path: "d/it's", data: []byte("z"), mode: "644", replace: true, ifMatch: strings.Repeat("0", 64)}, {path: "e", data: nil, mode: "600"},
	}
	got := run("printf %s " + quote(bundle(files)) + " > .b\n" + unpack(".b", files) + "\nstat -c %a -- \"d/it's\"; " +
		"ls -A | tr '\\n' ' '")
	for i, want := range []string{"ok ", "directory", "folder", "exists", "changed", "ok e3b0c44298fc", "640"} {
		if lines := strings.Split(got, "\n"); len(lines) <= i || !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is not %q:\n%s", i, want, got)
		}
	}
	if strings.Contains(got, ".b") {
		t.Errorf("the bundle is left:\n%s", got)
	}
}

// TestSessionsByChance makes random changes, and wants the limit and the names to hold.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestSessionsByChance(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const limit = 3
	now := time.Unix(1_000_000, 0)
	l := schemas.SandboxSessions{}
	for step := range 20_000 {
		now = now.Add(time.Duration(r.IntN(40)) * time.Second)
		id := "s" + strconv.Itoa(r.IntN(8))
		switch r.IntN(6) {
		case 0, 1, 2:
			was, there := active(l.Sessions), find(l.Sessions, id)
			s, began, err := enter(&l, id, now, limit, settings{workspace: schemas.WorkspaceID("ws_" + strconv.Itoa(step))})
			var full *fullError
			if errors.As(err, &full) && (was < limit || full.active != was) || began && err != nil {
				t.Fatalf("step %d: %v with %d active", step, err, was)
			}
			if err == nil && (!s.Active || s.Ending || began != (active(l.Sessions) == was+1) || now.Sub(s.Used) >= schemas.SandboxSessionLag) {
				t.Fatalf("step %d: %+v %v", step, s, began)
			}
			if there < 0 && err == nil && s.Created != now {
				t.Fatalf("step %d: %+v", step, s)
			}
		case 3:
			for _, s := range evictable(l.Sessions, now) {
				if now.Sub(s.Used) < unused || !rest(&l, s) {
					t.Fatalf("step %d: %+v", step, s)
				}
			}
		case 4:
			i := find(l.Sessions, id)
			if i < 0 {
				break
			}
			s := l.Sessions[i]
			if _, err := takeTurn(&l, s, "who", now); err == nil {
				if _, _, err := enter(&l, id, now, limit, settings{}); !errors.Is(err, schemas.ErrConflict) {
					t.Fatalf("step %d: %v", step, err)
				}
				if r.IntN(2) == 0 {
					drop(&l, s)
				}
			}
		case 5:
			if i := find(l.Sessions, id); i >= 0 {
				seen := l.Sessions[i]
				l.Sessions[i].Used = seen.Used.Add(time.Second) // a request has come since
				if rest(&l, seen) {
					t.Fatalf("step %d: it rests while it is used", step)
				}
			}
		}
		for i, s := range l.Sessions {
			if i > 0 && l.Sessions[i-1].ID >= s.ID {
				t.Fatalf("step %d: not in order: %+v", step, l)
			}
		}
		if n := active(l.Sessions); n > limit {
			t.Fatalf("step %d: %d active", step, n)
		}
	}
}

func TestWhatBecomesOfACall(t *testing.T) {
	for status, want := range map[schemas.Status]schemas.Code{
		schemas.StatusDenied: schemas.Denied, schemas.StatusCancelled: schemas.Conflict, schemas.StatusInterrupted: schemas.Interrupted,
		schemas.StatusExpired: schemas.Timeout, schemas.StatusFailed: schemas.Internal,
	} {
		if err := failure(schemas.Result{Status: status}); schemas.CodeOf(err) != want {
			t.Errorf("%s: %v", status, err)
		}
	}
	refused := schemas.Result{Status: schemas.StatusFailed, Error: &schemas.Error{Code: schemas.NotFound, Message: "x"}}
	if err := failure(refused); !errors.Is(err, schemas.ErrNotFound) {
		t.Error(err)
	}
	if err := failure(schemas.Result{Status: schemas.StatusCompleted, Output: &schemas.Output{}}); err != nil {
		t.Error(err)
	}
	if b, err := json.Marshal(GlobPath{}); err != nil || !strings.Contains(string(b), `"size":null`) {
		t.Error(string(b), err)
	}
}

// TestLeases: a sandbox with a time of its own is entered as long as that lasts, made again only alike, and never by another way.
func TestLeases(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	lease := schemas.SandboxLease{Expires: now.Add(time.Minute), Template: "base", Metadata: map[string]string{"a": "b"}}
	l := schemas.SandboxSessions{}
	if err := (entry{leased: true}).check(&l, "s", now); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, _, err := enter(&l, "s", now, 3, settings{lease: &lease}); err != nil {
		t.Fatal(err)
	}
	other := lease
	other.Metadata = nil
	ending := l
	ending.Sessions = []schemas.SandboxSession{l.Sessions[0]}
	ending.Sessions[0].Ending = true
	full := lease
	full.Metadata = map[string]string{"a": strings.Repeat("x", schemas.MaxSandboxLeases)}
	for name, c := range map[string]struct {
		how  entry
		in   *schemas.SandboxSessions
		id   string
		when time.Time
		want error
	}{
		"entered":                  {entry{leased: true}, &l, "s", now, nil},
		"after its end":            {entry{leased: true}, &l, "s", now.Add(time.Minute), schemas.ErrNotFound},
		"while it ends":            {entry{leased: true}, &ending, "s", now, schemas.ErrNotFound},
		"made alike":               {entry{lease: &lease}, &l, "s", now, nil},
		"made otherwise":           {entry{lease: &other}, &l, "s", now, schemas.ErrConflict},
		"made alike after its end": {entry{lease: &lease}, &l, "s", now.Add(time.Hour), schemas.ErrConflict},
		"another":                  {entry{lease: &lease}, &l, "t", now, nil},
		"too much":                 {entry{lease: &full}, &l, "t", now, schemas.ErrExhausted},
		"by a plain request":       {entry{}, &l, "s", now, nil},
	} {
		if err := c.how.check(c.in, c.id, c.when); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
