package fair

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestWhatAccountsLeaveToEachOther: an account that is alone has all slots; who was active in the last minutes finds some free; and
// what is dear, the search behind the messages of others, ends soon.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhatAccountsLeaveToEachOther(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	searching := sharing{until: now.Add(time.Second), search: true, narrow: true}
	over := sharing{until: ago(time.Millisecond), search: true, narrow: true}
	for name, c := range map[string]struct {
		before         sharing
		seen           sighting
		search, narrow bool
	}{
		"nobody":                              {},
		"one alone, with slots free":          {seen: sighting{waiting: 1, came: ago(time.Hour)}},
		"one alone, all slots taken":          {seen: sighting{full: true, waiting: 1}},
		"others on the log":                   {seen: sighting{full: true, waiting: 1, others: true}, search: true, narrow: true},
		"others on the log, slots free":       {seen: sighting{others: true}},
		"two wait here":                       {seen: sighting{full: true, waiting: 2}, search: true, narrow: true},
		"the log is silent":                   {seen: sighting{full: true, unknown: true}},
		"the log is silent in a search":       {before: over, seen: sighting{full: true, unknown: true}, search: true, narrow: true},
		"slots free for a moment in a search": {before: searching, search: true, narrow: true},
		"a search goes on while two wait":     {before: over, seen: sighting{waiting: 2}, search: true, narrow: true},
		"another came just now": {
			seen: sighting{full: true, waiting: 1, came: ago(time.Second), second: ago(time.Second)}, search: true, narrow: true},
		"another came three seconds ago": {before: over,
			seen: sighting{full: true, waiting: 1, came: ago(3 * time.Second), second: ago(3 * time.Second)}, narrow: true},
		"another came minutes ago": {before: sharing{narrow: true},
			seen: sighting{full: true, waiting: 1, second: ago(sharedFor - 1)}, narrow: true},
		"another came minutes ago, slots free": {before: sharing{narrow: true}, seen: sighting{second: ago(sharedFor - 1)}, narrow: true},
		"another has gone": {before: sharing{narrow: true},
			seen: sighting{full: true, waiting: 1, second: ago(sharedFor)}},
		"another has gone and the search is over": {before: over, seen: sighting{full: true, waiting: 1, second: ago(sharedFor)}},
	} {
		c.seen.now = now
		if got := c.before.next(c.seen); got.search != c.search || got.narrow != c.narrow {
			t.Errorf("%s: search is %v and narrow %v; want %v and %v", name, got.search, got.narrow, c.search, c.narrow)
		}
	}
}

// TestAnAccountLeavesAQuarterOfTheSlots: and one at least, but where there is only one.
func TestAnAccountLeavesAQuarterOfTheSlots(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 7: 6, 8: 6, 16: 12, 64: 48, 256: 192} {
		if got := shareOf(slots); got != want {
			t.Errorf("of %d slots one account has %d; want %d", slots, got, want)
		}
	}
}

// TestTheSecondAccountIsNoted: whichever account comes how often, it is known when any but the latest account was active.
func TestTheSecondAccountIsNoted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		came   string // an account a minute
		second int    // the minute in which the second one was active; -1: there is none
	}{{"a", -1}, {"aaaa", -1}, {"ab", 0}, {"aab", 1}, {"abaaa", 1}, {"abab", 2}, {"abcaa", 2}, {"abcbb", 2}} {
		var l latest
		shared := false
		for i, account := range c.came {
			shared = l.note(schemas.AccountID(account), now.Add(time.Duration(i)*time.Minute))
		}
		want := time.Time{}
		if c.second >= 0 {
			want = now.Add(time.Duration(c.second) * time.Minute)
		}
		if !l.second.Equal(want) || shared != (c.second >= 0) {
			t.Errorf("%s: the second was active at %s, shared: %v; want %s", c.came, l.second, shared, want)
		}
	}
}

// TestSlotsAreLeftFromTheSecondAccountOn: a flood that begins between two looks does not take the slots of the account that was there
// before it, and gets them when that one has gone.
func TestSlotsAreLeftFromTheSecondAccountOn(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 2, 3, 4, 16} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			f := newScheduler(slots, time.Now, func(func()) {})
			begun := map[*Message]*lane[*Message]{}
			start := func() {
				for {
					v, l := f.turns.next()
					if l == nil {
						return
					}
					f.begin(v)
					begun[v] = l
				}
			}
			come := func(account rune, seq uint64) *Message {
				v := &Message{Account: schemas.AccountID(account), Seq: seq, Begin: func() {}, Drop: func() {}}
				if _, ok := f.Admit(v, 1, New, now); !ok {
					t.Fatal("there is no place")
				}
				start()
				return v
			}
			end := func(v *Message) {
				f.turns.done(begun[v])
				f.Release(v, now)
				delete(begun, v)
			}
			end(come('q', 1))
			now = now.Add(time.Minute)
			for n := range slots {
				come('f', uint64(n+2))
			}
			if len(begun) != shareOf(slots) {
				t.Errorf("the flood has %d of %d slots; want %d", len(begun), slots, shareOf(slots))
			}
			now = now.Add(sharedFor)
			f.look(now, func(schemas.AccountID) (Backlog, error) { return Backlog{}, nil })
			if start(); len(begun) != slots {
				t.Errorf("the flood is alone and has %d of %d slots", len(begun), slots)
			}
		})
	}
}
