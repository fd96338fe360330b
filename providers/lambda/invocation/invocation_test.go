package invocation_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/schemas"
)

// FuzzRequest: whatever comes, it is refused as invalid, or keeps the limits and is the same again when it is sent on.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"runtime":"bash","code":"true"}`, `{"runtime":"py","code_base64":"/w==","env":{"A":"b"},"stdin_base64":"AAE="}`,
		`{"runtime":"bash","namespace":"../x"}`, `{"runtime":"bash","timeout_ms":-1}`, `{"runtime":"bash","args":["a","b"],"dir":"x"}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := invocation.DecodeRequest(payload)
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Fatalf("%q: %v", payload, err)
			}
			return
		}
		if r.Timeout() <= 0 || r.Timeout() > invocation.MaxTimeout || r.Limit() > invocation.MaxOutput || strings.Contains(r.Namespace, "/") {
			t.Fatalf("%q: %+v", payload, r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := invocation.DecodeRequest(again); err != nil || back.Script() != r.Script() {
			t.Fatalf("%q became %q: %v", payload, again, err)
		}
	})
}

// FuzzResponse: an answer that is taken says how the command ended, or that nothing was started.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		`{"ok":true,"exit_code":0,"stdout":"x"}`, `{"ok":true,"exit_code":null,"timed_out":true}`, `{"ok":true}`, `{"ok":false,"stderr":"no"}`,
		`{"ok":true,"exit_code":300}`, `{"ok":true,"exit_code":1,"stdout_base64":"/w=="}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := invocation.DecodeResponse(payload)
		if err == nil && r.OK && (r.ExitCode == nil) != r.TimedOut {
			t.Fatalf("%q: %+v", payload, r)
		}
	})
}

// TestBytes: what is no text comes through as it is.
func TestBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "ä🚀", "\xff\x00\xfe", "half \xc3"} {
		var req invocation.Request
		req.SetScript(text)
		if req.Script() != text {
			t.Errorf("script %q became %q", text, req.Script())
		}
		var res invocation.Response
		res.SetOut([]byte(text))
		res.SetErr([]byte(text))
		b, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		var back invocation.Response
		if err := json.Unmarshal(b, &back); err != nil || !bytes.Equal(back.Out(), []byte(text)) || !bytes.Equal(back.Err(), []byte(text)) {
			t.Errorf("%q became %q and %q, %v", text, back.Out(), back.Err(), err)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	many := make([]string, invocation.MaxArgs+1)
	for name, r := range map[string]invocation.Request{
		"runtime":      {Runtime: "perl"},
		"code":         {Runtime: "bash", Code: strings.Repeat("x", invocation.MaxCode+1)},
		"args":         {Runtime: "bash", Args: many},
		"env":          {Runtime: "bash", Env: map[string]string{"A": strings.Repeat("x", invocation.MaxEnv)}},
		"timeout_ms":   {Runtime: "bash", TimeoutMS: 300_001},
		"grace_ms":     {Runtime: "bash", GraceMS: 60_000},
		"output_limit": {Runtime: "bash", OutputLimit: invocation.MaxOutput + 1},
		"namespace":    {Runtime: "bash", Namespace: ".."},
		"dir":          {Runtime: "bash", Dir: "relative"},
	} {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = invocation.DecodeRequest(b)
		if e := schemas.Public(err); schemas.CodeOf(err) != schemas.Invalid || e.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
