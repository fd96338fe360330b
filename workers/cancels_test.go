package workers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const testAccount = schemas.AccountID("acct_1")

func cancelOf(i int) schemas.Cancel {
	return schemas.Cancel{Account: testAccount, Call: schemas.CallID(fmt.Sprint("call_", i)), Reason: "enough"}
}

func callOfCancel(i int) schemas.CallID { return schemas.CallID(fmt.Sprint("call_", i)) }

func TestCancelSetRemembers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newCancelSet(4*10, time.Hour)
	if !s.add(cancelOf(1), now, now) || s.add(cancelOf(1), now, now) {
		t.Error("a request is new once")
	}
	if reason, found, sure := s.find(testAccount, callOfCancel(1), now, now); reason != "enough" || !found || !sure {
		t.Errorf("find = %q, %v, %v", reason, found, sure)
	}
	if _, found, sure := s.find(testAccount, callOfCancel(2), now, now); found || !sure {
		t.Errorf("a call that nobody cancelled: found %v, sure %v", found, sure)
	}
}

func TestCancelSetSaysWhatItForgot(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newCancelSet(4*10, time.Hour)
	for i := range 11 {
		at := start.Add(time.Duration(i) * time.Minute)
		s.add(cancelOf(i), at, at)
	}
	now := start.Add(10 * time.Minute)
	if _, found, sure := s.find(testAccount, callOfCancel(0), start, now); found || sure {
		t.Errorf("the one above the bound: found %v, sure %v; want neither", found, sure)
	}
	if _, found, sure := s.find(testAccount, callOfCancel(10), start, now); !found || !sure {
		t.Errorf("the newest: found %v, sure %v", found, sure)
	}
	if _, _, sure := s.find(testAccount, callOfCancel(0), start, start.Add(time.Hour)); !sure {
		t.Error("once the forgotten one cannot matter any more, nothing is missing")
	}
}

func TestCancelSetLetsGoOfTheOld(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newCancelSet(1000, time.Hour)
	for i := range 100_000 {
		at := start.Add(time.Duration(i) * time.Minute)
		s.add(cancelOf(i), at, at)
		if len(s.of[testAccount].known) > 62 || cap(s.of[testAccount].order) > 1000 {
			t.Fatalf("after %d requests: %d kept, room for %d", i, len(s.of[testAccount].known), cap(s.of[testAccount].order))
		}
		if _, _, sure := s.find(testAccount, "other", at, at); !sure {
			t.Fatalf("after %d requests: what ended by age is not forgotten", i)
		}
	}
}

// TestCancelsOfOneAccountLeaveOthersTheirMemory: calls of others are not looked up because one account cancels without end.
//
//guarantee:bounds
func TestCancelsOfOneAccountLeaveOthersTheirMemory(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newCancelSet(100, time.Hour)
	flood := func(a schemas.AccountID, from, n int) {
		for i := range n {
			c := cancelOf(from + i)
			c.Account = a
			s.add(c, now, now)
		}
	}
	flood("acct_quiet", 0, 1)
	flood("acct_1", 0, 1000)
	if _, found, sure := s.find("acct_quiet", callOfCancel(0), now, now); !found || !sure || len(s.of["acct_1"].known) != 25 || s.kept != 26 {
		t.Errorf("the request of another account: found %v, sure %v, beside %d", found, sure, len(s.of["acct_1"].known))
	}
	if _, _, sure := s.find("acct_quiet", "call_other", now, now); !sure {
		t.Error("a call of another account is looked up for what one has forgotten")
	}
	if _, _, sure := s.find("acct_1", callOfCancel(0), now, now); sure {
		t.Error("what the account itself has forgotten is taken for known")
	}
	for n := range 6 { // together they have more than there is room for
		flood(schemas.AccountID(fmt.Sprint("acct_", n)), 0, 1000)
	}
	if _, found, sure := s.find("acct_quiet", callOfCancel(0), now, now); !found || !sure || s.kept != 100 {
		t.Errorf("beside six that flood: found %v, sure %v, %d kept", found, sure, s.kept)
	}
	later := now.Add(2 * time.Hour)
	c := cancelOf(1)
	c.Account = "acct_late"
	s.add(c, later, later)
	if s.kept != 1 || len(s.of) != 1 {
		t.Errorf("%d requests of %d accounts are kept when all but one are over", s.kept, len(s.of))
	}
}

func TestCancelSetBoundsReasons(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := cancelOf(1)
	c.Reason = strings.Repeat("é", 10_000)
	s := newCancelSet(4*10, time.Hour)
	s.add(c, now, now)
	if reason, _, _ := s.find(testAccount, callOfCancel(1), now, now); len(reason) > 256 || strings.Contains(reason, "\uFFFD") {
		t.Errorf("kept %d bytes: %q", len(reason), reason)
	}
}

func TestCancelSetKnowsWhichUseOfAnID(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newCancelSet(4*2, 24*time.Hour)
	s.add(cancelOf(1), start, start)
	again := start.Add(5 * time.Hour)
	if _, found, sure := s.find(testAccount, callOfCancel(1), again, again); found || !sure {
		t.Errorf("a later use of the id: found %v, sure %v; want it left alone", found, sure)
	}
	if !s.add(cancelOf(1), again.Add(time.Minute), again) {
		t.Error("the request for the end of the later use is not new")
	}
	if _, found, _ := s.find(testAccount, callOfCancel(1), again, again); !found {
		t.Error("the later use is not cancelled")
	}
	s.add(cancelOf(2), again.Add(2*time.Minute), again)
	if _, found, sure := s.find(testAccount, callOfCancel(1), again, again); !found || !sure {
		t.Errorf("two requests with room for two: found %v, sure %v", found, sure)
	}
	s.add(cancelOf(3), again.Add(3*time.Minute), again)
	if _, found, sure := s.find(testAccount, callOfCancel(1), again, again); found || sure {
		t.Errorf("three requests with room for two: found %v, sure %v", found, sure)
	}
}
