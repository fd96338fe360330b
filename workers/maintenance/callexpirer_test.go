package maintenance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// FuzzCallOf decodes arbitrary dead letters: a decoded call has valid ids, and its result can be stored.
func FuzzCallOf(f *testing.F) {
	f.Add([]byte(`{"id":"call_1","account":"acct_1","conversation":"c_1","tool":"bash","input":7}`))
	f.Add([]byte(`{"id":"call 1","account":"acct_1","conversation":"c_1"}`))
	f.Add([]byte(`{"id":"call_1","account":"","conversation":"c_1"}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, ok := callOf(schemas.DeadLetter{ID: "CALLS.1", Payload: payload})
		if !ok {
			return
		}
		if err := errors.Join(c.ID.Validate(), c.Account.Validate(), c.Conversation.Validate()); err != nil {
			t.Fatalf("%q was taken for a call: %v", payload, err)
		}
		for _, started := range []bool{true, false} {
			r := deadResult(c, schemas.DeadLetter{ID: "CALLS.1"}, c.Deadline, started)
			if r.Call != c.ID || r.Text == "" || r.Error == nil {
				t.Fatalf("result %+v", r)
			}
		}
	})
}

func testCall() schemas.Call {
	return schemas.Call{ID: "call_1", Account: testAccount, Conversation: "c_1", Tool: schemas.ToolBash}
}

func TestHowLongAStartedCallIsWaitedForThatWasGivenUp(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		deadline, since time.Duration
		want            bool
	}{
		"at once":                {time.Hour, 0, true},
		"a run later":            {time.Hour, schemas.MaxTimeout, true},
		"longer than any run":    {time.Hour, longestEnd, false},
		"its deadline is over":   {time.Minute, 90 * time.Second, true},
		"and so is its worker's": {time.Minute, 2 * time.Minute, false},
	} {
		if got := waitsForWorker(at.Add(tc.deadline), at, at.Add(tc.since)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

//guarantee:one-result-for-every-accepted-call
func TestADeadLetterOfAStartedCallHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	letter := schemas.DeadLetter{ID: "CALLS.7", Reason: "dial unix /secret", Code: schemas.Unavailable, Deliveries: 20}
	if r := deadResult(testCall(), letter, testCall().Deadline, true); r.Status != schemas.StatusInterrupted {
		t.Errorf("started: %+v", r)
	}
	r := deadResult(testCall(), letter, testCall().Deadline, false)
	if r.Status != schemas.StatusFailed || r.Error.Code != schemas.Unavailable || !strings.Contains(r.Text, "CALLS.7") ||
		strings.Contains(r.Text, "/secret") {
		t.Errorf("not started: %+v", r)
	}
	c := testCall()
	c.Tool = schemas.ToolRead
	if r := deadResult(c, letter, c.Deadline, true); r.Status != schemas.StatusFailed {
		t.Errorf("a reading tool: %+v", r)
	}
}
