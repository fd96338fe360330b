package workers

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

func testCall() schemas.Call {
	return schemas.Call{
		ID: "call_1", Account: testAccount, Conversation: "c_1", Tool: schemas.ToolBash,
		Deadline: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
	}
}

func TestResultsOfCallsThatWereNotRun(t *testing.T) {
	t.Parallel()
	for v, want := range map[verdict]struct {
		status schemas.Status
		code   schemas.Code
		text   string
	}{
		toInterrupt: {schemas.StatusInterrupted, schemas.Interrupted, "not run again"},
		toCancel:    {schemas.StatusCancelled, "", "before it was started. Reason: enough"},
		toAbandon:   {schemas.StatusFailed, schemas.Internal, "every one of the 10"},
		toExpire:    {schemas.StatusExpired, schemas.Timeout, "It was not run"},
	} {
		r := unrunResult(testCall(), v, "enough")
		var code schemas.Code
		if r.Error != nil {
			code = r.Error.Code
		}
		if r.Status != want.status || code != want.code || !strings.Contains(r.Text, want.text) {
			t.Errorf("%s: %+v, want %+v", v, r, want)
		}
		if r.Call != "call_1" || r.Conversation != "c_1" || r.Tool != schemas.ToolBash {
			t.Errorf("%s: the result does not name its call: %+v", v, r)
		}
	}
}

func TestAnEndedRunKeepsWhatItPrinted(t *testing.T) {
	t.Parallel()
	partial := &schemas.Result{Text: "half of it\n", Output: &schemas.Output{Stdout: "half of it\n"}}
	r := endedResult(testCall(), schemas.StatusCancelled, lifecycle.Because(lifecycle.TextKilled, ""), partial)
	if r.Status != schemas.StatusCancelled || !strings.HasPrefix(r.Text, lifecycle.TextKilled) ||
		!strings.HasSuffix(r.Text, "half of it") || r.Output == nil {
		t.Errorf("%+v", r)
	}
	r = endedResult(testCall(), schemas.StatusInterrupted, lifecycle.TextStopped, nil)
	if r.Error == nil || r.Error.Code != schemas.Interrupted || r.Text != lifecycle.TextStopped {
		t.Errorf("%+v", r)
	}
}

func TestAFailureShowsOnlyItsPublicSide(t *testing.T) {
	t.Parallel()
	r := lifecycle.FailedResult(testCall(), schemas.Wrap(schemas.Unavailable, "reserve", "the provider is away", errLog))
	if r.Status != schemas.StatusFailed || r.Error.Code != schemas.Unavailable || strings.Contains(r.Text, errLog.Error()) {
		t.Errorf("%+v", r)
	}
	if r := lifecycle.FailedResult(testCall(), errLog); r.Error.Code != schemas.Internal || strings.Contains(r.Text, errLog.Error()) {
		t.Errorf("%+v", r)
	}
	if r := lifecycle.FailedResult(testCall(), schemas.Invalidf("input.command", "is missing or empty")); !strings.Contains(r.Text,
		"input.command: is missing") {
		t.Errorf("%+v", r)
	}
}
