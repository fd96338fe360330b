package schemas

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
)

func TestAsyncStatusInput(t *testing.T) {
	for text, field := range map[string]string{
		`{"statusId":"job_1"}`:                                                                      "",
		`{"statusId":"job_1","action":"logs","offset":7}`:                                           "",
		`{"statusId":"job_1","action":"stdin","data":"y\n"}`:                                        "",
		`{"statusId":"job_1","action":"stdin","eof":true}`:                                          "",
		`{"statusId":"job_1","action":"signal","signal":"USR1"}`:                                    "",
		`{"statusId":"job_1","action":"stop"}`:                                                      "",
		`{}`:                                                                                        "input.statusId",
		`{"statusId":"call_1"}`:                                                                     "input.statusId",
		`{"statusId":"job_1","action":"restart"}`:                                                   "input.action",
		`{"statusId":"job_1","offset":7}`:                                                           "input.offset",
		`{"statusId":"job_1","action":"logs","offset":-1}`:                                          "input.offset",
		`{"statusId":"job_1","action":"logs","data":"y"}`:                                           "input.data",
		`{"statusId":"job_1","action":"stdin"}`:                                                     "input.data",
		`{"statusId":"job_1","action":"signal"}`:                                                    "input.signal",
		`{"statusId":"job_1","action":"signal","signal":"SIGTERM"}`:                                 "input.signal",
		`{"statusId":"job_1","action":"stop","signal":"TERM"}`:                                      "input.signal",
		`{"statusId":"job_1","status_id":"job_1"}`:                                                  "input.status_id",
		`{"statusId":"job_1","action":"stdin","data":"` + strings.Repeat("x", MaxJobStdin+1) + `"}`: "input.data",
	} {
		_, err := DecodeInput(ToolAsyncStatus, json.RawMessage(text))
		got := ""
		if e, ok := err.(*Error); ok { //nolint:errorlint // it is not wrapped
			got = e.Field
		}
		if got != field || (err == nil) != (field == "") {
			t.Errorf("%.80s: field %q (%v), want %q", text, got, err, field)
		}
	}
}

func TestSideEffectsOfACall(t *testing.T) {
	for text, want := range map[string]bool{
		`{"statusId":"job_1"}`:                                   false,
		`{"statusId":"job_1","action":"logs"}`:                   false,
		`{"statusId":"job_1","action":"stop"}`:                   false,
		`{"statusId":"job_1","action":"stdin","data":"x"}`:       true,
		`{"statusId":"job_1","action":"signal","signal":"TERM"}`: true,
	} {
		if got := (Call{Tool: ToolAsyncStatus, Input: json.RawMessage(text)}).SideEffects(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if !(Call{Tool: ToolBash}).SideEffects() || (Call{Tool: ToolRead}).SideEffects() {
		t.Error("other calls have not the side effects of their tool")
	}
}

func TestGroupIsForBackgroundCalls(t *testing.T) {
	for text, field := range map[string]string{
		`{"tool":"bash","input":{"command":"a","background":true},"group":{"id":"g","size":2}}`:   "",
		`{"tool":"bash","input":{"command":"a"},"group":{"id":"g","size":2}}`:                     "group",
		`{"tool":"read","input":{"file_path":"a"},"group":{"id":"g","size":2}}`:                   "group",
		`{"tool":"bash","input":{"command":"a","background":true},"group":{"id":"","size":2}}`:    "group.id",
		`{"tool":"bash","input":{"command":"a","background":true},"group":{"id":"g","size":0}}`:   "group.size",
		`{"tool":"bash","input":{"command":"a","background":true},"group":{"id":"g","size":101}}`: "group.size",
	} {
		_, err := DecodeRequest([]byte(text))
		got := ""
		if e, ok := err.(*Error); ok { //nolint:errorlint // it is not wrapped
			got = e.Field
		}
		if got != field {
			t.Errorf("%s: field %q (%v), want %q", text, got, err, field)
		}
	}
}

func TestJobCallback(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]JobState{
		`{"status":"completed"}`: JobCompleted,
		`{"status":"completed","response":{"exitCode":0,"logs":"ok"}}`:                JobCompleted,
		`{"status":"completed","response":{"exitCode":3}}`:                            JobFailed, // the exit code knows better
		`{"status":"failed","error":"no disk"}`:                                       JobFailed,
		`{"status":"failed","response":{"exitCode":137}}`:                             JobFailed,
		`{"status":"failed","error":"x","response":{"exitCode":143,"stopped":true}}`:  JobStopped,
		`{"status":"failed","error":"x","response":{"exitCode":143,"timedOut":true}}`: JobExpired,
		`{"status":"failed"}`: "",
		`{"status":"done"}`:   "",
		`{"status":"completed","response":{"logBytes":-1}}`: "",
		`{"status":"completed","exitCode":0}`:               "",
		`{"status":"completed","status":"failed"}`:          "",
		`[]`: "",
	} {
		c, err := DecodeJobCallback([]byte(text))
		if (err == nil) != (want != "") {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want == "" {
			continue
		}
		d := c.Completion(Job{ID: "job_1", Account: "acct_1"}, now)
		if d.State != want || d.Validate() != nil || d.ReportedBy != ReportedByCallback || !d.Finished.Equal(now) {
			t.Errorf("%s: %+v, want %s", text, d, want)
		}
	}
}

func TestTailTextIsTextOfBoundedSize(t *testing.T) {
	proptest.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes"))
		limit := rapid.IntRange(1, 100).Draw(t, "limit")
		got := TailText(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%q to %d bytes: %q", s, limit, got)
		}
		if utf8.ValidString(s) && !strings.HasSuffix(s, got) {
			t.Fatalf("%q is no end of %q", got, s)
		}
	})
	if got := TailText("aé", 2); got != "é" {
		t.Errorf("got %q", got)
	}
}

func TestFinalStates(t *testing.T) {
	open := 0
	for _, s := range JobStates() {
		if !s.Final() {
			open++
		}
		c := Completion{Job: "job_1", Account: "acct_1", State: s}
		if err := c.Validate(); (err == nil) != s.Final() {
			t.Errorf("a completion as %s: %v", s, err)
		}
	}
	if open != 3 {
		t.Errorf("%d states are open, want 3", open)
	}
	if JobState("").Final() {
		t.Error("no state counts as final")
	}
}

func TestAPublicJobHasNoSecrets(t *testing.T) {
	j := Job{ID: "job_1", TokenHash: "secret-hash", Places: []JobPlace{{Key: "k", Token: 7}}}
	if text := string(mustJSON(j.Public())); strings.Contains(text, "secret") || strings.Contains(text, "places") {
		t.Error(text)
	}
	if j.TokenHash == "" {
		t.Error("the record itself was changed")
	}
}
