package delivery

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		tried   int
		verdict Verdict
		handed  int
		chance  float64
		kind    stepKind
		wait    time.Duration // from now
		counted int           // number of tries so far
	}{
		{"what arrived is done", 0, Verdict{Kind: Delivered}, 1, 0.5, stepDone, 0, 0},
		{"what nobody wants is done", 3, Verdict{Kind: Dropped}, 1, 0.5, stepDone, 0, 0},
		{"the second try comes after five seconds", 0, Verdict{Kind: Failed}, 1, 0.5, stepLater, 5 * time.Second, 1},
		{"a tenth earlier at best", 0, Verdict{Kind: Failed}, 1, 0, stepLater, 4500 * time.Millisecond, 1},
		{"the third after five minutes", 1, Verdict{Kind: Failed}, 1, 0.5, stepLater, 5 * time.Minute, 2},
		{"the last after a day", 8, Verdict{Kind: Failed}, 1, 0.5, stepLater, 24 * time.Hour, 9},
		{"then no more", 9, Verdict{Kind: Failed}, 1, 0.5, stepDead, 0, 0},
		{"nor beyond", 30, Verdict{Kind: Failed}, 1, 0.5, stepDead, 0, 0},
		{"the receiver may ask for longer", 0, Verdict{Kind: Failed, After: time.Hour}, 1, 0.5, stepLater, time.Hour, 1},
		{"but not for shorter", 1, Verdict{Kind: Failed, After: time.Second}, 1, 0.5, stepLater, 5 * time.Minute, 2},
		{"and for a day at most", 0, Verdict{Kind: Failed, After: 1000 * time.Hour}, 1, 0.5, stepLater, 24 * time.Hour, 1},
		{"without a place it waits in hand", 2, Verdict{Kind: Busy}, 1, 0.5, stepPark, time.Second, 0},
		{"longer each time", 2, Verdict{Kind: Busy}, 3, 0.5, stepPark, 3 * time.Second, 0},
		{"up to a bound", 2, Verdict{Kind: Busy}, 10, 0.5, stepPark, 4 * time.Second, 0},
		{"however often", 2, Verdict{Kind: Busy}, 9000, 0.5, stepPark, 4 * time.Second, 0},
		{"held it waits on the log, without a try counted", 2, Verdict{Kind: Held, After: time.Minute}, 1, 0, stepLater, time.Minute, 2},
		{"and does not come back with all others", 2, Verdict{Kind: Held, After: time.Minute}, 1, 0.5, stepLater,
			time.Minute + 7500*time.Millisecond, 2},
		{"held for nothing is held for a moment", 2, Verdict{Kind: Held, After: -time.Minute}, 1, 0.5, stepLater, 5 * time.Second, 2},
		{"of a receiver that gets nothing any more it is given up", 2, Verdict{Kind: Stopped, Reason: "disabled"}, 1, 0.5, stepDead, 0, 0},
	} {
		d := schemas.Delivery{ID: "msg_1", Endpoint: "wh_1", Attempt: c.tried}
		s := next(d, schemas.DeliveryTry{Status: 500}, c.verdict, c.handed, Schedule(), now, c.chance)
		wait := s.wait
		if s.kind == stepLater {
			wait = s.at.Sub(now)
			if s.later.Attempt != c.counted || (s.later.Last != nil) != (c.verdict.Kind == Failed) {
				t.Errorf("%s: %d tries, last %v; want %d", c.name, s.later.Attempt, s.later.Last, c.counted)
			}
		}
		if s.kind != c.kind || wait != c.wait {
			t.Errorf("%s: got step %d in %s, want %d in %s", c.name, s.kind, wait, c.kind, c.wait)
		}
	}
}

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestWhatIsNeverTriedEndsAfterThreeDays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const day = 24 * time.Hour
	for _, c := range []struct {
		name string
		d    schemas.Delivery
		kind stepKind
	}{
		{"two days", schemas.Delivery{Created: now.Add(-2 * day)}, stepLater},
		{"four days", schemas.Delivery{Created: now.Add(-4 * day)}, stepDead},
		{"tried since", schemas.Delivery{Created: now.Add(-4 * day), Attempt: 3, Last: &schemas.DeliveryTry{Time: now.Add(-day)}}, stepLater},
		{"not tried since", schemas.Delivery{Created: now.Add(-9 * day), Attempt: 3,
			Last: &schemas.DeliveryTry{Time: now.Add(-4 * day)}}, stepDead},
		{"begun anew", schemas.Delivery{Created: now.Add(-6 * day), Replay: 1, Begun: now.Add(-day)}, stepLater},
		{"begun anew long ago", schemas.Delivery{Created: now.Add(-6 * day), Replay: 1, Begun: now.Add(-4 * day)}, stepDead},
		{"begun anew by an earlier version", schemas.Delivery{Created: now.Add(-6 * day), Replay: 1}, stepLater},
	} {
		for _, v := range []Verdict{{Kind: Held, After: time.Hour}, {Kind: Busy}} {
			s, want := next(c.d, schemas.DeliveryTry{}, v, 11, Schedule(), now, 0.5), c.kind
			if v.Kind == Busy && want == stepLater {
				want = stepPark
			}
			if s.kind != want {
				t.Errorf("%s, %s: step %d, want %d", c.name, v.Kind, s.kind, want)
			}
			if s.kind == stepDead && (s.err == nil || schemas.CodeOf(s.err).Retryable()) {
				t.Errorf("%s: %v, want a reason that is not retried", c.name, s.err)
			}
		}
	}
}

func TestTheScheduleIsOfThreeDays(t *testing.T) {
	t.Parallel()
	sum := time.Duration(0)
	for _, d := range Schedule() {
		sum += d
	}
	if want := 75*time.Hour + 35*time.Minute + 5*time.Second; sum != want || len(Schedule()) != 10 {
		t.Errorf("%d tries over %s, want 10 over %s", len(Schedule()), sum, want)
	}
}

func TestWhatIsGivenUpSaysWhyAndIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		try  schemas.DeliveryTry
		want string
	}{
		{schemas.DeliveryTry{Status: 503, Response: "we are closed"}, "status 503: we are closed"},
		{schemas.DeliveryTry{Error: "connection refused"}, "error connection refused"},
	} {
		d := schemas.Delivery{ID: "msg_1", Endpoint: "wh_1", Attempt: 9}
		err := next(d, c.try, Verdict{Kind: Failed}, 1, Schedule(), time.Now(), 0.5).err
		if err == nil || schemas.CodeOf(err).Retryable() || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "wh_1 failed 10 times") {
			t.Errorf("got %v, want one that is not retried and says %q", err, c.want)
		}
		if errors.Is(err, schemas.ErrInternal) {
			t.Errorf("%v reads as if it were our fault", err)
		}
	}
}

// A test delivery to a paused receiver fails at once with the reason. It waits if an earlier try may still arrive, or if its tries are not
// limited.
func TestATestDoesNotWait(t *testing.T) {
	t.Parallel()
	now := time.Now()
	resting := Verdict{Kind: Held, After: time.Minute, Reason: "its service wants rest"}
	for name, c := range map[string]struct {
		tries int
		v     Verdict
		want  stepKind
	}{
		"a test":                  {1, resting, stepDead},
		"an ordinary delivery":    {0, resting, stepLater},
		"another has it in hand":  {1, Verdict{Kind: Held, After: time.Minute}, stepLater},
		"there is no place today": {1, Verdict{Kind: Busy}, stepPark},
	} {
		s := next(schemas.Delivery{ID: "msg_1", Tries: c.tries, Created: now}, schemas.DeliveryTry{}, c.v, 1, Schedule(), now, 0.5)
		if s.kind != c.want || s.kind == stepDead && !strings.Contains(s.err.Error(), "wants rest") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
