package streams

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// script is a source whose watch is played by hand.
type script struct{ steps chan func(m scripted) }

type scripted struct {
	yield           func(BucketEntry[string], error) bool
	listing, listed func()
}

func (s script) Mirrored(_ context.Context, listing, listed func()) iter.Seq2[BucketEntry[string], error] {
	return func(yield func(BucketEntry[string], error) bool) {
		for step := range s.steps {
			step(scripted{yield, listing, listed})
		}
	}
}

func put(key, value string, revision uint64) BucketEntry[string] {
	return BucketEntry[string]{Key: key, Value: value, Revision: revision}
}

func gone(key string, revision uint64) BucketEntry[string] {
	return BucketEntry[string]{Key: key, Revision: revision, Deleted: true}
}

// Writes of this process and reports of the watch reach a mirror in any order. A key never returns to an older value.
func TestAMirrorNeverGoesBack(t *testing.T) {
	t.Parallel()
	own := func(p BucketEntry[string]) func(*Mirror[string, string], scripted) {
		return func(m *Mirror[string, string], _ scripted) { m.Take(p, nil) }
	}
	event := func(p BucketEntry[string]) func(*Mirror[string, string], scripted) {
		return func(_ *Mirror[string, string], s scripted) { s.yield(p, nil) }
	}
	list := func(all ...BucketEntry[string]) func(*Mirror[string, string], scripted) {
		return func(_ *Mirror[string, string], s scripted) {
			s.listing()
			for _, p := range all {
				s.yield(p, nil)
			}
			s.listed()
		}
	}
	reconnect := func(_ *Mirror[string, string], s scripted) { s.listed() }
	later := func(*Mirror[string, string], scripted) { time.Sleep(ownHolds + time.Second) }
	type steps = []func(*Mirror[string, string], scripted)
	for name, c := range map[string]struct {
		steps steps
		want  string // what is kept at the end
		seen  string // what Changed was called with
	}{
		"an event before an own write comes late": {
			steps{event(put("a", "1", 1)), own(put("a", "3", 3)), event(put("a", "2", 2))},
			"a=3", "a=1 a=3",
		},
		"the event of an own write": {
			steps{own(put("a", "3", 3)), event(put("a", "3", 3)), event(put("a", "4", 4))},
			"a=4", "a=3 a=3 a=4",
		},
		"an own write is taken in late": {
			steps{event(put("a", "3", 3)), event(put("a", "4", 4)), own(put("a", "3", 3))},
			"a=4", "a=3 a=4",
		},
		"an own write is late, and its key deleted": {
			steps{event(put("a", "3", 3)), event(gone("a", 4)), own(put("a", "3", 3))},
			"", "a=3 a=",
		},
		"deleted and made again, in order": {
			steps{event(put("a", "1", 1)), event(gone("a", 2)), event(put("a", "3", 3))},
			"a=3", "a=1 a= a=3",
		},
		"an own deletion, and late what it deleted": {
			steps{event(put("a", "1", 1)), own(gone("a", 3)), event(put("a", "2", 2))},
			"", "a=1 a=",
		},
		"an own deletion, and made again elsewhere": {
			steps{event(put("a", "1", 1)), own(gone("a", 2)), event(gone("a", 2)), event(put("a", "3", 3))},
			"a=3", "a=1 a= a= a=3",
		},
		"an own deletion, made again, all late": {
			steps{own(put("a", "1", 1)), own(gone("a", 2)), own(put("a", "3", 3)), event(put("a", "1", 1)), event(gone("a", 2))},
			"a=3", "a=1 a= a=3",
		},
		"own writes of other keys hold back nothing": {
			steps{own(put("a", "9", 9)), event(put("b", "2", 2))},
			"a=9 b=2", "a=9 b=2",
		},
		"own writes that overtake one another": {
			steps{own(put("a", "3", 3)), own(put("a", "2", 2))},
			"a=3", "a=3",
		},
		"another log has lower revisions": {
			steps{list(put("a", "8", 8), put("b", "9", 9)), list(put("a", "1", 1))},
			"a=1", "a=8 b=9 a=1 b=",
		},
		"another log, and events of it": {
			steps{own(put("a", "9", 9)), list(put("a", "1", 1)), event(put("a", "2", 2)), event(gone("a", 3))},
			"", "a=9 a=1 a=2 a=",
		},
		"an own write while all is listed again": {
			steps{list(put("a", "1", 1)), func(m *Mirror[string, string], s scripted) {
				s.listing()
				m.Take(put("b", "2", 2), nil)
				s.listed()
			}},
			"b=2", "a=1 b=2 a=",
		},
		"the same list again": {
			steps{list(put("a", "1", 1)), own(put("a", "3", 3)), reconnect, event(put("a", "2", 2))},
			"a=3", "a=1 a=3",
		},
		"a log that lost an own write": {
			steps{list(put("a", "1", 1)), own(put("a", "9", 9)), later, event(put("a", "2", 2))},
			"a=2", "a=1 a=9 a=2",
		},
		"a value that was never read": {
			steps{own(put("a", "1", 0))},
			"", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var seen []string
				source := script{make(chan func(scripted))}
				m := &Mirror[string, string]{
					Source:  source,
					Keep:    func(p BucketEntry[string]) (string, bool) { return p.Value, true },
					Changed: func(p BucketEntry[string]) { seen = append(seen, p.Key+"="+p.Value) },
				}
				var running sync.WaitGroup
				running.Go(func() { _ = m.Run(t.Context()) })
				for _, step := range c.steps {
					done := make(chan struct{})
					source.steps <- func(s scripted) { step(m, s); close(done) }
					<-done
				}
				close(source.steps)
				running.Wait()
				var kept []string
				for _, key := range slices.Sorted(maps.Keys(m.All())) {
					v, _ := m.Get(key)
					kept = append(kept, key+"="+v)
				}
				if got := fmt.Sprint(kept); got != "["+c.want+"]" {
					t.Errorf("kept %s, want %s", got, c.want)
				}
				if got := fmt.Sprint(seen); got != "["+c.seen+"]" {
					t.Errorf("seen %s, want %s", got, c.seen)
				}
			})
		})
	}
}

// What does not open replaces nothing that is newer, and what is kept under its key stays.
func TestAMirrorPassesOnWhatIsUnreadable(t *testing.T) {
	t.Parallel()
	var unread []uint64
	m := &Mirror[string, string]{
		Keep:       func(p BucketEntry[string]) (string, bool) { return p.Value, true },
		Unreadable: func(p BucketEntry[string], _ error) { unread = append(unread, p.Revision) },
	}
	bad, away := errors.New("bad"), errors.New("away")
	err := m.Fill(func(yield func(BucketEntry[string], error) bool) {
		_ = yield(put("a", "1", 1), nil) && yield(put("b", "", 2), bad) && yield(BucketEntry[string]{}, away)
	})
	if !errors.Is(err, away) {
		t.Errorf("filled: %v", err)
	}
	m.Take(put("a", "", 4), bad)
	m.Take(put("a", "3", 3), nil)
	m.take(put("a", "3", 3), nil, false)
	m.Take(put("a", "", 1), bad)
	if v, _ := m.Get("a"); v != "1" || !slices.Equal(unread, []uint64{2, 4}) {
		t.Errorf("kept %q, unreadable %v", v, unread)
	}
}
