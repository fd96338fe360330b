package streams

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// CountPause is for the tests of the package.
const CountPause = countPause

func TestQuotas(t *testing.T) {
	const room = 400
	for _, c := range []struct {
		name    string
		q       Quotas
		account schemas.AccountID
		class   usageClass
		want    int64
	}{
		{"a quarter", Quotas{}, "acct_1", usageCalls, 100},
		{"said", Quotas{Log: 7}, "acct_1", usageEvents, 7},
		{"said for others", Quotas{Log: 7}, "acct_1", usageDurable, 100},
		{"any", Quotas{Durable: -1}, "acct_1", usageDurable, 0},
		{"the operator's", Quotas{Log: 7, Exempt: "acct_1"}, "acct_1", usageCalls, 0},
	} {
		if got := c.q.of(c.account, c.class, room); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := (Quotas{}).of("acct_1", usageCalls, 0); got != 0 {
		t.Errorf("without a bound of the log: %d", got)
	}
}

func TestWhoseAMessageIs(t *testing.T) {
	for subject, want := range map[string]struct {
		account schemas.AccountID
		class   usageClass
	}{
		"sandjet.calls.local.acct_1.aWQ":                {"acct_1", usageCalls},
		"sandjet.calls._parked.acct_1.aWQ":              {"acct_1", usageCalls},
		"sandjet.intake.acct_1":                         {"acct_1", usageCalls},
		"sandjet.cancels.acct_1.aWQ":                    {"acct_1", usageCalls},
		"sandjet.events.00.acct_1.Yw":                   {"acct_1", usageEvents},
		"sandjet.jobs.acct_1.job_1":                     {"acct_1", usageEvents},
		"sandjet.turns.acct_1.Yw.f_1":                   {"acct_1", usageEvents},
		"sandjet.deliveries.webhook.acct_1.dl_1":        {"acct_1", usageEvents},
		"sandjet.timers.calls.local.acct_1.aWQ":         {"acct_1", usageCalls},
		"sandjet.timers.deliveries.webhook.acct_1.dl_1": {"acct_1", usageEvents},
		"sandjet.timers.wakes.acct_1.Yw":                {"acct_1", usageEvents},
		"sandjet.timers.calls.acct_1":                   {"", usageCalls},
		"sandjet.dead.CALLS.acct_1.7":                   {"acct_1", usageEvents},
		"sandjet.dead.CALLS._.7":                        {"", usageEvents},
		"sandjet.durable.acct_1.ds_1._":                 {"acct_1", usageDurable},
		"sandjet.durable.acct_1":                        {"", usageDurable},
		"$KV.leases.w1":                                 {"", usageEvents},
		"$KV.jobs.acct_1.job_1":                         {"acct_1", usageEvents},
		"$KV.open_jobs.acct_1.job_1":                    {"", usageEvents},
		"$KV.chats.acct_1":                              {"", usageEvents},
		"$KV.groups.acct_1.Zw":                          {"acct_1", usageEvents},
		"$KV.approvals.acct_1.appr_1":                   {"acct_1", usageEvents},
		"$KV.remembered.acct_1.mem_1":                   {"acct_1", usageEvents},
		"$KV.durable.acct_1.cA":                         {"acct_1", usageDurable},
		"$KV.records.sandbox.acct_1.sb_1":               {"", usageEvents},
		"$KV.usage.acct_1":                              {"", usageEvents},
	} {
		if a, class := usageOf(subject); a != want.account || class != want.class {
			t.Errorf("%s: %q %d", subject, a, class)
		}
	}
}

// TestACountIsSpared: the longer one takes, the more rarely there is one. One of the future is from before the log's clock was set back: an account
// over its limit must not wait until that time comes.
func TestACountIsSpared(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		ago, took time.Duration
		want      bool
	}{
		{countPause / 2, 0, false}, {2 * countPause, 0, true}, {2 * countPause, time.Minute, false},
		{countShare*time.Minute + 1, time.Minute, true},
		{-time.Hour, 0, true}, {-ClocksApart, 0, false},
	} {
		if got := (usageRecord{Counted: now.Add(-c.ago), Took: c.took}).dueAt(now); got != c.want {
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
	held := func(n int64) (u usage) {
		u[usageCalls] = schemas.Amount{Bytes: n, Messages: 1}
		return u
	}
	r := usageRecord{Usage: held(100), Counted: now}
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

func FuzzPayloadOf(f *testing.F) {
	f.Add([]byte(`{"name":"acct_1.p_1","nuid":"x","size":10}`))
	f.Add([]byte(`{"name":"p_1","size":10}`))
	f.Add([]byte(`{"name":".p_1","size":10}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, n := payloadOf(data); n < 0 || n > maxWhole || a == "" && n != 0 {
			t.Errorf("%q %d", a, n)
		}
	})
}
