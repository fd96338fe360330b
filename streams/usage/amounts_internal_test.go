package usage

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestQuotas(t *testing.T) {
	const room = 400
	for _, c := range []struct {
		name    string
		q       Quotas
		account schemas.AccountID
		class   Class
		want    int64
	}{
		{"a quarter", Quotas{}, "acct_1", Calls, 100},
		{"said", Quotas{Log: 7}, "acct_1", Events, 7},
		{"said for others", Quotas{Log: 7}, "acct_1", Durable, 100},
		{"any", Quotas{Durable: -1}, "acct_1", Durable, 0},
		{"the operator's", Quotas{Log: 7, Exempt: "acct_1"}, "acct_1", Calls, 0},
	} {
		if got := c.q.of(c.account, c.class, room); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := (Quotas{}).of("acct_1", Calls, 0); got != 0 {
		t.Errorf("without a bound of the log: %d", got)
	}
}

// TestACountIsSpared: the longer one takes, the more rarely there is one. One of the future is from before the log's clock was set back: an account
// over its limit must not wait until that time comes.
func TestACountIsSpared(t *testing.T) {
	const apart = 30 * time.Second
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		ago, took time.Duration
		want      bool
	}{
		{CountPause / 2, 0, false}, {2 * CountPause, 0, true}, {2 * CountPause, time.Minute, false},
		{countShare*time.Minute + 1, time.Minute, true},
		{-time.Hour, 0, true}, {-apart, 0, false},
	} {
		if got := (Record{Counted: now.Add(-c.ago), Took: c.took}).dueAt(now, apart); got != c.want {
			t.Errorf("%s after one of %s: %v", c.ago, c.took, got)
		}
	}
}

// TestATimerThatHasFiredIsTakenOffOnce: it counts no more, unless a count has found it gone already. What was taken off is known until the
// next count.
//
//guarantee:what-one-tenant-can-do-to-another
func TestATimerThatHasFiredIsTakenOffOnce(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	held := func(n int64) (u Amounts) {
		u[Calls] = schemas.Amount{Bytes: n, Messages: 1}
		return u
	}
	r := Record{Usage: held(100), Counted: now}
	early, late := fired{held(30), now.Add(-time.Second)}, fired{held(20), now.Add(time.Second)}
	for _, c := range []struct {
		name     string
		f        fired
		want     int64
		takenOff int64
	}{
		{"none", fired{}, 100, 0}, {"before the count", early, 100, 0}, {"as it ended", fired{held(30), now}, 100, 0},
		{"after it", late, 80, 20}, {"before and after", late.and(early), 100, 0}, {"either way", early.and(late), 100, 0},
		{"twice", late.and(late), 60, 40}, {"one alone", fired{}.and(late).and(fired{}), 80, 20}, {"more than there is", fired{held(500), late.since}, 0, 500},
	} {
		got := r.without(c.f)
		if got.Usage.logBytes() != c.want || got.Fired.logBytes() != c.takenOff || got.Counted != r.Counted {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
