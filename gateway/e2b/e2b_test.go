package e2b

import (
	"errors"
	"maps"
	"net/http"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// refusal wants an error that a client can be shown: of what it sent, and nothing else.
func refusal(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, schemas.ErrInvalid) && !errors.Is(err, schemas.ErrUnsupported) && !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func FuzzCreate(f *testing.F) {
	f.Add([]byte(`{"templateID":"base","timeout":300,"metadata":{"a":"b"},"envVars":{"A":"b"},"autoPause":false}`))
	f.Add([]byte(`{"templateID":"base","network":{"denyOut":["10.0.0.0/8"]},"allow_internet_access":false,"volumeMounts":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		lease, life, err := decodeCreate(body, schemas.AllowAll)
		refusal(t, err)
		if err == nil && (lease.Bytes() > schemas.MaxSandboxLease || life < minLife || life > maxLife || lease.Template == "") {
			t.Errorf("%+v, %s", lease, life)
		}
		if life, err := decodeLifetime(body); err == nil && (life < minLife || life > maxLife) {
			t.Errorf("%s", life)
		}
	})
}

func FuzzStart(f *testing.F) {
	p := map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", "echo"}, "cwd": "/tmp"}
	f.Add(frame(0, map[string]any{"process": p}), "A", "it's")
	f.Add([]byte("\x00\x00\x00\x00\x02{}"), "", "")
	f.Add([]byte("\x02\xff\xff\xff\xff"), "1", "\x00")
	f.Fuzz(func(t *testing.T, body []byte, name, value string) {
		in, err := decodeStart(body)
		refusal(t, err)
		if err != nil {
			return
		}
		input, timeout, err := in.call(map[string]string{name: value}, time.Minute)
		refusal(t, err)
		if err != nil {
			return
		}
		if len(input.Command) > schemas.MaxCommand || strings.ContainsRune(input.Command, 0) || input.Background == (timeout != 0) {
			t.Errorf("%+v %s", input, timeout)
		}
		got, ok := processOf(input.Command)
		if _, mine := in.Process.Envs[name]; !ok || got.Cmd != in.Process.Cmd || !slices.Equal(got.Args, in.Process.Args) ||
			!mine && got.Envs[name] != value || got.Dir != dirOf(in.Process.Dir) {
			t.Errorf("%q is %+v, and not %+v", input.Command, got, in.Process)
		}
	})
}

func FuzzUnary(f *testing.F) {
	f.Add([]byte(`{"process":{"pid":7},"input":{"stdin":"aGk="},"signal":"SIGNAL_SIGKILL"}`))
	f.Add([]byte(`{"process":{"tag":"x"},"signal":9}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var s selector
		err := s.decode(body)
		refusal(t, err)
		if err == nil && s.Process.PID == nil {
			t.Error("no process")
		}
		var in inputRequest
		if decode(body, &in) == nil {
			err := in.check()
			refusal(t, err)
			if err == nil && (in.Process.PID == nil || len(in.Input.Stdin) > schemas.MaxJobStdin) {
				t.Errorf("%+v", in)
			}
		}
		var sig signalRequest
		if decode(body, &sig) == nil {
			name, err := sig.name()
			refusal(t, err)
			if err == nil && name != "KILL" && name != "TERM" {
				t.Errorf("%q", name)
			}
		}
		_, _ = processOf(string(body)) // does not panic
	})
}

func FuzzList(f *testing.F) {
	f.Add("metadata=a%3Db%2526c&state=running,paused&limit=3&order=asc&nextToken=2026-01-02T03:04:05Z_i00&startedAfter=2026-01-02T03:04:05Z")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := decodeList(raw)
		refusal(t, err)
		if err == nil && (q.limit < 1 || q.limit > maxPage) {
			t.Errorf("%+v", q)
		}
	})
}

// FuzzPaths: whatever a client names is refused, or is in the workspace.
func FuzzPaths(f *testing.F) {
	for _, p := range []string{"", "a/../b", "/home/user/x", "/workspace", "../x", "/home/user/../../etc", "/home/username", "a\x00"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p, err := inside("path", name)
		refusal(t, err)
		if err == nil && (path.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) || path.Clean(p) != p) {
			t.Errorf("%q leads to %q", name, p)
		}
		_, _ = inside("path", fileName(name))
		_, _ = inside("path", fileName(`form-data; name="file"; filename="`+name+`"`))
	})
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x02{}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		message, err := readFrame(body)
		refusal(t, err)
		if err == nil && len(message) != len(body)-frameHead {
			t.Errorf("%q of %q", message, body)
		}
	})
}

// keyring signs with a text that it knows.
type keyring struct{}

func (keyring) Sign(purpose string, message []byte) (string, []byte, error) {
	mac := make([]byte, macBytes)
	copy(mac, purpose)
	mac[macBytes-1] = byte(len(message))
	return "k1", mac, nil
}

func (k keyring) Verify(key, purpose string, message, signature []byte) bool {
	_, mac, _ := k.Sign(purpose, message)
	return key == "k1" && string(mac) == string(signature)
}

func (keyring) KeyHashes(schemas.AccountID) []string { return nil }

func FuzzToken(f *testing.F) {
	made := New(Options{})
	made.Credentials.Keys = keyring{}
	token, err := made.token("acct_a", "i00", "sk_1")
	if err != nil {
		f.Fatal(err)
	}
	if c, err := readToken(keyring{}, token); err != nil || c.Account != "acct_a" || c.Sandbox != "i00" {
		f.Fatalf("%+v, %v", c, err)
	}
	f.Add(token)
	f.Add(token + "\n")
	f.Add(tokenPrefix)
	f.Fuzz(func(t *testing.T, token string) {
		c, err := readToken(keyring{}, token)
		if err != nil && !errors.Is(err, schemas.ErrDenied) || err == nil && len(c.Key) == 0 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestWhatIsNotServedIsRefused: each setting of a new sandbox that would change what its client gets.
func TestWhatIsNotServedIsRefused(t *testing.T) {
	for body, want := range map[string]error{
		`{"templateID":"base"}`: nil, `{"templateID":"code-interpreter-v1","secure":true,"allow_internet_access":true,"later":1}`: nil,
		`{"templateID":"base","network":{},"iam":null,"volumeMounts":[],"autoResume":{"enabled":false}}`: nil,
		`{}`: schemas.ErrInvalid, `{"templateID":"mine"}`: schemas.ErrNotFound, `[]`: schemas.ErrInvalid,
		`{"templateID":"base","timeout":0}`: schemas.ErrInvalid, `{"templateID":"base","timeout":86401}`: schemas.ErrInvalid,
		`{"templateID":"base","envVars":{"A-B":""}}`: schemas.ErrInvalid, `{"templateID":"base","metadata":{"":"x"}}`: schemas.ErrInvalid,
		`{"templateID":"base","metadata":{"a":"` + strings.Repeat("x", schemas.MaxSandboxLease) + `"}}`: schemas.ErrInvalid,
		`{"templateID":"base","autoPause":true}`:                                                        schemas.ErrUnsupported,
		`{"templateID":"base","autoResume":{"enabled":true}}`:                                           schemas.ErrUnsupported,
		`{"templateID":"base","network":{"denyOut":["0.0.0.0/0"]}}`:                                     schemas.ErrUnsupported,
		`{"templateID":"base","mcp":{"x":{}}}`:                                                          schemas.ErrUnsupported,
		`{"templateID":"base","iam":{"tokens":{}}}`:                                                     schemas.ErrUnsupported,
		`{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`:                               schemas.ErrUnsupported,
		`{"templateID":"base","allow_internet_access":false}`:                                           schemas.ErrUnsupported,
	} {
		if _, _, err := decodeCreate([]byte(body), schemas.AllowAll); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
	if _, _, err := decodeCreate([]byte(`{"templateID":"base","allow_internet_access":false}`), schemas.DenyAll); err != nil {
		t.Error(err)
	}
}

// TestAScriptIsItsProcess runs what is made of hostile words, and wants each to be what it was.
func TestAScriptIsItsProcess(t *testing.T) {
	hostile := "it's $(exit 9) `exit 8` \"\\\nexec '"
	p := process{Cmd: "printf", Args: []string{"%s|%s|%s", hostile, "", "-x"}, Envs: map[string]string{"A": hostile}, Dir: "/"}
	script, err := p.script()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script).CombinedOutput()
	if err != nil || string(out) != hostile+"||-x" {
		t.Errorf("%q, %v", out, err)
	}
	got, ok := processOf(script)
	if !ok || got.Cmd != p.Cmd || !slices.Equal(got.Args, p.Args) || !maps.Equal(got.Envs, p.Envs) || got.Dir != p.Dir {
		t.Errorf("%+v", got)
	}
}

// TestOutputsAreWhole: what is shown of a command is all of it, or it is said that it is not.
func TestOutputsAreWhole(t *testing.T) {
	piece := func(stream string, offset int64, text string) schemas.OutputData {
		return schemas.OutputData{Stream: stream, Offset: offset, Text: text, Bytes: len(text), Attempt: 1}
	}
	capped := piece("stdout", 2, "")
	capped.Capped = true
	again := piece("stdout", 2, "cd")
	again.Attempt = 2
	for name, c := range map[string]struct {
		pieces []schemas.OutputData
		result schemas.Output
		shown  string
		whole  bool
	}{
		"all of it live": {[]schemas.OutputData{piece("stdout", 0, "ab"), piece("stdout", 2, "cd")},
			schemas.Output{Stdout: "abcd", TotalBytes: 4}, "abcd", true},
		"nothing live": {nil, schemas.Output{Stdout: "abcd", TotalBytes: 4}, "abcd", true},
		"its beginning live": {[]schemas.OutputData{piece("stdout", 0, "ab")},
			schemas.Output{Stdout: "abcd", TotalBytes: 4}, "abcd", true},
		"with a hole": {[]schemas.OutputData{piece("stdout", 0, "ab"), piece("stdout", 3, "d")},
			schemas.Output{Stdout: "abcd", TotalBytes: 4}, "abcd", true},
		"a piece twice": {[]schemas.OutputData{piece("stdout", 0, "ab"), piece("stdout", 0, "ab")},
			schemas.Output{Stdout: "abcd", TotalBytes: 4}, "abcd", true},
		"of another attempt": {[]schemas.OutputData{piece("stdout", 0, "ab"), again},
			schemas.Output{Stdout: "abcd", TotalBytes: 4}, "abcd", true},
		"cut, but live": {[]schemas.OutputData{piece("stdout", 0, "abcd")},
			schemas.Output{Stdout: "a", TotalBytes: 4, Truncated: true}, "abcd", true},
		"cut, and capped live": {[]schemas.OutputData{piece("stdout", 0, "ab"), capped},
			schemas.Output{Stdout: "a", TotalBytes: 4, Truncated: true}, "ab", false},
		"cut, and nothing live": {nil, schemas.Output{Stdout: "a", TotalBytes: 4, Truncated: true}, "", false},
	} {
		var o outputs
		var shown strings.Builder
		for _, d := range c.pieces {
			text, _ := o.take(d)
			shown.WriteString(text)
		}
		rest, _, err := o.rest(c.result)
		if shown.String()+rest != c.shown || (err == nil) != c.whole {
			t.Errorf("%s: %q, %v", name, shown.String()+rest, err)
		}
	}
}

// TestNothingThatDidNotEndWellLooksAsIfItHad: a command that was not seen to its end has no exit code 0.
func TestNothingThatDidNotEndWellLooksAsIfItHad(t *testing.T) {
	for _, status := range schemas.Statuses() {
		for _, out := range []*schemas.Output{nil, {TimedOut: true}, {ExitCode: 3}} {
			if end, err := endOf(schemas.Result{Status: status, Output: out}); err == nil && end.ExitCode == 0 {
				t.Errorf("%s %+v: %+v", status, out, end)
			}
		}
	}
	well := schemas.Result{Status: schemas.StatusCompleted, Output: &schemas.Output{OK: true}}
	if end, err := endOf(well); err != nil || end.ExitCode != 0 || !end.Exited {
		t.Errorf("%+v, %v", end, err)
	}
	for _, state := range schemas.JobStates() {
		if end := endOfJob(schemas.Completion{State: state}); end.ExitCode == 0 {
			t.Errorf("%s: %+v", state, end)
		}
	}
}

// TestPages: each sandbox is on one page, though some end meanwhile.
func TestPages(t *testing.T) {
	var all []schemas.SandboxSession
	for i := range 25 {
		all = append(all, schemas.SandboxSession{
			ID: "i" + string(rune('a'+i)), Created: time.Unix(int64(i/3), 5).UTC(), Lease: &schemas.SandboxLease{Template: "base"},
		})
	}
	for _, order := range []string{"asc", "desc"} {
		seen, token := map[string]bool{}, ""
		for {
			q, err := decodeList("limit=4&order=" + order + "&nextToken=" + token)
			if err != nil {
				t.Fatal(err)
			}
			page, next := q.page(all)
			for _, s := range page {
				if seen[s.ID] {
					t.Errorf("%s twice", s.ID)
				}
				seen[s.ID] = true
			}
			if len(page) > 4 {
				t.Errorf("%d on a page", len(page))
			}
			if token = next; token == "" {
				break
			}
		}
		if len(seen) != len(all) {
			t.Errorf("%s: %d of %d", order, len(seen), len(all))
		}
	}
}

func TestNumbersOfProcesses(t *testing.T) {
	if id := callOf("i00", 4711); pidOf("i00", id) != 4711 || pidOf("i01", id) != 0 || id.Validate() != nil {
		t.Error(id)
	}
	for _, id := range []schemas.CallID{"e2b_i00_", "e2b_i00_04711", "e2b_i00_-1", "e2b_i00_99999999999", "exec_1"} {
		if pidOf("i00", id) != 0 {
			t.Error(id)
		}
	}
	for header, want := range map[string]string{"sk_1": "sk_1", "e2b_sk_1": "sk_1", "e2b_736b5f31": "sk_1", "": ""} {
		if got := keyOf(header); got != want {
			t.Errorf("%q is %q", header, got)
		}
	}
	for v, want := range map[string]time.Duration{"": 0, "60000": time.Minute, "0": 0} {
		if got, err := withinOf(http.Header{"Connect-Timeout-Ms": {v}}); err != nil || got != want {
			t.Errorf("%q: %s, %v", v, got, err)
		}
	}
	if _, err := withinOf(http.Header{"Connect-Timeout-Ms": {"soon"}}); !errors.Is(err, schemas.ErrInvalid) {
		t.Error(err)
	}
}
