package schemas

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func seeds(f *testing.F) {
	f.Helper()
	for _, s := range []string{
		`{"tool":"bash","input":{"command":"echo 😀"}}`,
		`{"tool":"read","input":{"file_path":"a","base":0},"timeout":1.5,"id":"a.b:c"}`,
		`{"tool":"grep","input":{"pattern":"a"},"origin":{"kind":"api","route":{"a":[1,{"b":null}]}},"deadline":"2026-11-21T12:00:00Z"}`,
		`{"tool":"bash","tool":"bash"}`, `{"Tool":"bash"}`, `{"tool":"\ud83d\ude00"}`, `{"tool":"\ud83d"}`, `null`, `[]`, ``, "\xff", `{"a":`,
	} {
		f.Add([]byte(s))
	}
}

// What DecodeRequest accepts is valid text of bounded size that survives being written and read, and names the same thing afterwards.
//
//guarantee:bad-input-is-answered-not-guessed
func FuzzDecodeRequest(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRequest(b)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			if msg := Public(err).Error(); len(msg) > 2000 {
				t.Fatalf("an answer of %d bytes", len(msg))
			}
			return
		}
		out := mustJSON(r)
		again, err := DecodeRequest(out)
		if err != nil {
			t.Fatalf("%s\nbecame %s\nwhich is refused: %v", b, out, err)
		}
		if again.Digest() != r.Digest() || again.ID != r.ID {
			t.Fatalf("%s\nbecame %s\nwhich is another call", b, out)
		}
		if strings.ContainsAny(r.TraceParent+string(r.ID)+string(r.Conversation)+r.Workspace+r.Sandbox, "\r\n\x00") {
			t.Fatal("a line break where a header, a subject or a path will be made of it")
		}
	})
}

func FuzzDecodeCall(f *testing.F) {
	seeds(f)
	f.Add([]byte(mustJSON(exampleCall())))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCall(b)
		if err != nil {
			return
		}
		if strings.ContainsAny(string(c.Account), ".*> ") || c.Deadline.IsZero() {
			t.Fatalf("not fit for a subject: %+v", c)
		}
		if _, err := json.Marshal(c); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(mustJSON(NewEvent(exampleCall(), CallOutput, "id", time.Unix(0, 0), OutputData{Text: "a"}))))
	f.Add([]byte(`{"source":"/accounts/acct_1.>"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEvent(b)
		if err == nil && e.Account != "" && (e.Account.Validate() != nil || AccountSource(e.Account) != e.Source) {
			t.Fatalf("account %q from source %q", e.Account, e.Source)
		}
	})
}

// One target per tool: a value comes back exactly when it keeps its limits.
//
//guarantee:bad-input-is-answered-not-guessed
func FuzzDecodeInput(f *testing.F) {
	for i, s := range []string{
		`{"command":"true"}`, `{"file_path":"a","offset":3,"limit":0}`, `{"file_path":"a","content":"b","mode":"append"}`,
		`{"file_path":"a","old_string":"b","new_string":"c"}`, `{"pattern":"**/*.go","sort":"name"}`, `{"pattern":"a","head_limit":3}`,
	} {
		f.Add(uint8(i), []byte(s))
	}
	f.Fuzz(func(t *testing.T, n uint8, b []byte) {
		tool := Tools()[int(n)%len(Tools())]
		in, err := DecodeInput(tool, b)
		accepted, readErr := DecodeAcceptedInput(tool, b)
		if readErr != nil && CodeOf(readErr) != Invalid || err == nil && !reflect.DeepEqual(accepted, in) {
			t.Fatalf("%s is %v, and read again %v, %v", b, in, accepted, readErr)
		}
		if err != nil {
			if in != nil || CodeOf(err) != Invalid {
				t.Fatalf("%v beside %v", in, err)
			}
			return
		}
		out, err := json.Marshal(in)
		if err != nil || bytes.Contains(out, []byte(`\u0000`)) && tool != ToolEdit && !strings.Contains(string(b), `\\u0000`) {
			t.Fatalf("%s: %v", out, err)
		}
		if _, err := DecodeInput(tool, out); err != nil {
			t.Fatalf("%s\nbecame %s\nwhich is refused: %v", b, out, err)
		}
	})
}

func FuzzDecodeManifestRequest(f *testing.F) {
	for _, s := range []string{
		`{"manifest":{"version":1,"project":"p","resources":[{"kind":"workspace","name":"w","config":{}}]},"prune":true,"dryRun":true}`,
		`{"manifest":{}}`, `{"manifest":null}`, `{"prune":1}`, `[]`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := DecodeManifestRequest(b); err != nil && CodeOf(err) != Invalid {
			t.Fatalf("code %s: %v", CodeOf(err), err)
		}
	})
}

// A completion that was read is written and read again the same.
func FuzzDecodeCompletion(f *testing.F) {
	for _, s := range []string{
		`{"job":"job_1","account":"acct_1","state":"completed","via":"provider","finished":"2030-01-01T00:00:00Z","exit_code":3,"logs":"a"}`,
		`{"job":"job_1","account":"acct_1","state":"not_started","via":"call","finished":"2030-01-01T00:00:00Z"}`, `{}`, `null`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCompletion(b)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeCompletion(out); err != nil {
			t.Fatalf("%s\nbecame %s\nwhich is refused: %v", b, out, err)
		}
	})
}

// A request for the artifacts of a job names both, or is refused; an answer is read or refused.
func FuzzDecodeJobArtifacts(f *testing.F) {
	for _, s := range []string{
		`{"account":"acct_1","job":"job_1"}`, `{"account":"acct_1"}`, `{"artifacts":[{"id":"art_1","size":3}],"skipped_artifacts":[{"count":2}]}`, `null`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := DecodeJobArtifactsRequest(b)
		if err == nil && (q.Account.Validate() != nil || q.Job.Validate() != nil) || err != nil && CodeOf(err) != Invalid {
			t.Fatalf("%+v: %v", q, err)
		}
		a, err := DecodeJobArtifacts(b)
		if err != nil && CodeOf(err) != Invalid {
			t.Fatalf("code %s: %v", CodeOf(err), err)
		}
		if got, most := a.Within(1000), 1000+200; got.ListSize() > most {
			t.Fatalf("%d bytes, want at most %d", got.ListSize(), most)
		}
	})
}

// Whatever a supervisor reports becomes a completion that the log takes and settlers read.
func FuzzDecodeJobCallback(f *testing.F) {
	for _, s := range []string{
		`{"status":"completed","response":{"exitCode":0,"logs":"a\u0000\ufffd","logBytes":9}}`,
		`{"status":"failed","error":"no disk","response":{"exitCode":137,"stopped":true,"childrenLeft":2}}`,
		`{"status":"failed","response":{"timedOut":true}}`, `{"status":"done"}`, `{}`, `null`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeJobCallback(b)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		d := c.Completion(Job{ID: "job_1", Account: "acct_1"}, time.Unix(1, 0))
		if len(d.Logs) > MaxJobLogs || len(d.Reason) > 4<<10 || d.LogBytes < int64(len(d.Logs)) || !utf8.ValidString(d.Logs+d.Reason) {
			t.Fatalf("%s\nbecame %d bytes of logs of %d, %d of reason", b, len(d.Logs), d.LogBytes, len(d.Reason))
		}
		again, err := DecodeCompletion(mustJSON(d))
		if err != nil || !bytes.Equal(mustJSON(again), mustJSON(d)) {
			t.Fatalf("%s\nbecame %s\nwhich reads as %s: %v", b, mustJSON(d), mustJSON(again), err)
		}
	})
}

// What a client may add to a conversation is an object of a type that is theirs, under an id that can
// stand in a header.
func FuzzDecodeAppendedEvent(f *testing.F) {
	for _, s := range []string{
		`{"type":"message","data":{"text":"hi"}}`, `{"id":"a.b:c-1","type":"agent.finished","agent":"agent_1","turn":"turn_1","data":{}}`,
		`{"type":"job.finished","data":{}}`, `{"type":"message","data": [1]}`, `{"type":"message","data":null}`,
		`{"id":"a b","type":"message","data":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeAppendedEvent(b)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		var data map[string]json.RawMessage
		if err := json.Unmarshal(e.Data, &data); err != nil || data == nil {
			t.Fatalf("%s is taken for an object: %v", e.Data, err)
		}
		if strings.ContainsAny(e.ID+string(e.Agent)+string(e.Turn), "\r\n\x00 ") {
			t.Fatalf("%q, %q, %q", e.ID, e.Agent, e.Turn)
		}
		if _, err := DecodeAppendedEvent(mustJSON(e)); err != nil {
			t.Fatalf("%s\nbecame %s\nwhich is refused: %v", b, mustJSON(e), err)
		}
	})
}

func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"", "-1", "now", "ab12_00000000000000000007", "e_18446744073709551615", "_", "e_+0000000000000000007",
		"e_00000000000000000007_00ff", "e_00000000000000000007_0000", "e_00000000000000000007_00FF", "e_00000000000000000007_"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err != nil {
			return
		}
		if s != "" && c.String() != s {
			t.Fatalf("%q reads as %q", s, c)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{`30`, `1.5`, `"5m"`, `-1`, `1e300`, `null`, `9223372036.8547745`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var d Duration
		if json.Unmarshal(b, &d) != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%s is negative: %d", b, d)
		}
		var again Duration
		if err := json.Unmarshal(mustJSON(d), &again); err != nil || again != d {
			t.Fatalf("%s became %s: %v", b, mustJSON(d), err)
		}
	})
}

func FuzzHalfSurrogate(f *testing.F) {
	f.Add([]byte(`"\ud83d\ude00"`))
	f.Add([]byte(`"\\ud83d"`))
	f.Add([]byte(`"\ud83d\u0041"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s string
		if json.Unmarshal(b, &s) != nil || !utf8.Valid(b) {
			return
		}
		// A replacement character that was not written as one is half a pair.
		written := strings.Count(string(b), "\ufffd") + strings.Count(strings.ToLower(strings.ReplaceAll(string(b), `\\`, "")), `\ufffd`)
		if got, want := hasHalfSurrogate(b), strings.Count(s, "\ufffd") > written; got != want {
			t.Fatalf("%s: %v, want %v", b, got, want)
		}
	})
}

// An answer to an approval that is let in says yes or no, and nothing is let in without it.
func FuzzDecodeApprovalAnswer(f *testing.F) {
	seeds(f)
	for _, s := range []string{`{"approved":true}`, `{"approved":false,"reason":"no"}`, `{"approved":null}`,
		`{"reason":"x"}`, `{"approved":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := DecodeApprovalAnswer(b)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		if in.Approved == nil || len(in.Reason) > MaxApprovalReason {
			t.Fatalf("%+v", in)
		}
		again, err := DecodeApprovalAnswer(mustJSON(in))
		if err != nil || *again.Approved != *in.Approved || again.Reason != in.Reason {
			t.Fatalf("%+v became %+v, %v", in, again, err)
		}
	})
}

// An operation on approvals that is let in is one of three, and an answer in it says yes or no.
func FuzzDecodeApprovalOp(f *testing.F) {
	seeds(f)
	for _, s := range []string{
		`{"op":"list","state":"pending","conversation":"c","limit":3}`, `{"op":"show","approval":"appr_1"}`,
		`{"op":"approve","approval":"appr_1","approved":true,"reason":"fine","remember":"conversation"}`, `{"op":"approve"}`,
		`{"op":"list","approved":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeApprovalOp(b)
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		if o.Op != ApprovalsList && o.Approval == "" || (o.Op == ApprovalApprove) != (o.Approved != nil) ||
			o.Limit < 0 || o.Limit > MaxApprovalsPage {
			t.Fatalf("%+v", o)
		}
		again, err := DecodeApprovalOp(mustJSON(o))
		if err != nil || !bytes.Equal(mustJSON(again), mustJSON(o)) {
			t.Fatalf("%+v became %+v, %v", o, again, err)
		}
	})
}
