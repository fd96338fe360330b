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

func keyOf(i int) string { return fmt.Sprintf("%s.call_%d", testAccount, i) }

func TestCancelSetRemembers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newCancelSet(10, time.Hour)
	if !s.add(cancelOf(1), now, now) || s.add(cancelOf(1), now, now) {
		t.Error("a request is new once")
	}
	if reason, found, sure := s.find(keyOf(1), now, now); reason != "enough" || !found || !sure {
		t.Errorf("find = %q, %v, %v", reason, found, sure)
	}
	if _, found, sure := s.find(keyOf(2), now, now); found || !sure {
		t.Errorf("a call that nobody cancelled: found %v, sure %v", found, sure)
	}
}

func TestCancelSetSaysWhatItForgot(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newCancelSet(10, time.Hour)
	for i := range 11 {
		at := start.Add(time.Duration(i) * time.Minute)
		s.add(cancelOf(i), at, at)
	}
	now := start.Add(10 * time.Minute)
	if _, found, sure := s.find(keyOf(0), start, now); found || sure {
		t.Errorf("the one above the bound: found %v, sure %v; want neither", found, sure)
	}
	if _, found, sure := s.find(keyOf(10), start, now); !found || !sure {
		t.Errorf("the newest: found %v, sure %v", found, sure)
	}
	if _, _, sure := s.find(keyOf(0), start, start.Add(time.Hour)); !sure {
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
		if len(s.known) > 62 || cap(s.order) > 1000 {
			t.Fatalf("after %d requests: %d kept, room for %d", i, len(s.known), cap(s.order))
		}
		if _, _, sure := s.find("acct_1.other", at, at); !sure {
			t.Fatalf("after %d requests: what ended by age is not forgotten", i)
		}
	}
}

func TestCancelSetBoundsReasons(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := cancelOf(1)
	c.Reason = strings.Repeat("é", 10_000)
	s := newCancelSet(10, time.Hour)
	s.add(c, now, now)
	if reason, _, _ := s.find(keyOf(1), now, now); len(reason) > 256 || strings.Contains(reason, "\uFFFD") {
		t.Errorf("kept %d bytes: %q", len(reason), reason)
	}
}

func TestCancelSetKnowsWhichUseOfAnID(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := newCancelSet(2, 24*time.Hour)
	s.add(cancelOf(1), start, start)
	again := start.Add(5 * time.Hour)
	if _, found, sure := s.find(keyOf(1), again, again); found || !sure {
		t.Errorf("a later use of the id: found %v, sure %v; want it left alone", found, sure)
	}
	if !s.add(cancelOf(1), again.Add(time.Minute), again) {
		t.Error("the request for the end of the later use is not new")
	}
	if _, found, _ := s.find(keyOf(1), again, again); !found {
		t.Error("the later use is not cancelled")
	}
	s.add(cancelOf(2), again.Add(2*time.Minute), again)
	if _, found, sure := s.find(keyOf(1), again, again); !found || !sure {
		t.Errorf("two requests with room for two: found %v, sure %v", found, sure)
	}
	s.add(cancelOf(3), again.Add(3*time.Minute), again)
	if _, found, sure := s.find(keyOf(1), again, again); found || sure {
		t.Errorf("three requests with room for two: found %v, sure %v", found, sure)
	}
}
