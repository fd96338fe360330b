package replay_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// transcript is what one reader received, over all its connections.
type transcript struct {
	conv  schemas.ConversationID
	after schemas.Cursor
	r     *replay.Reader // nil: not connected
	steps []step
	last  schemas.Cursor
	quick bool // reads at once; else when the test says so

	screen  *screen // of a compact reader; nil: it gets everything
	skipped int
	lost    bool // something may be missing
}

type step struct {
	event   schemas.Cursor
	id      string
	gap     *streams.Gap
	restart bool // it began at the beginning again: it had no event yet, and a gap alone is no position to continue from
}

func (tr *transcript) connect(h *replay.Hub, wake func()) {
	if tr.screen != nil {
		tr.r = h.AttachCompact(account, tr.conv, tr.last, wake)
		return
	}
	if tr.last.IsStart() {
		tr.steps = append(tr.steps, step{restart: true})
	}
	tr.r = h.Attach(account, tr.conv, tr.last, wake)
}

// read takes at most n steps.
func (tr *transcript) read(t *testing.T, n int) {
	if tr.r == nil || n == 0 {
		return
	}
	for s := range tr.r.Ready() {
		tr.skipped += s.Skipped
		switch s.Kind {
		case replay.StepAttached:
			if s.Gap != nil {
				tr.lost = true
				tr.steps = append(tr.steps, step{gap: s.Gap})
			}
			if tr.last.IsTail() {
				tr.last, tr.after = s.At, s.At
			}
		case replay.StepGap:
			tr.lost = true
			tr.steps = append(tr.steps, step{gap: s.Gap})
		case replay.StepEvent:
			if s.Prev != tr.last {
				t.Errorf("%s says that %s came before it, the reader had %s", s.Frame.Cursor(), s.Prev, tr.last)
			}
			if tr.screen != nil {
				tr.screen.show(t, s, tr.lost)
			}
			tr.last = s.Frame.Cursor()
			tr.steps = append(tr.steps, step{event: tr.last, id: string(s.Frame.Data())})
		case replay.StepLive:
		case replay.StepFailed: // as a client does, it comes back
			tr.r.Close()
			tr.r = nil
			return
		}
		if n--; n == 0 {
			return
		}
	}
}

// place is a conversation in one incarnation of the log.
type place struct {
	epoch string
	conv  schemas.ConversationID
}

// everything lists what was ever stored.
func (l *fakeLog) everything() map[place][]uint64 {
	all := map[place][]uint64{}
	for epoch, stored := range l.ever {
		for _, seq := range slices.Sorted(maps.Keys(stored)) {
			at := place{epoch, stored[seq].Value.Conversation}
			all[at] = append(all[at], seq)
		}
	}
	return all
}

// check holds a transcript against everything that was ever stored.
func (tr *transcript) check(t *testing.T, l *fakeLog, ever map[place][]uint64, mayLose bool) {
	t.Helper()
	at := tr.after
	if at.IsStart() {
		at = schemas.Cursor{} // of any epoch
	}
	missing := func(from, to uint64, epoch string) int { // strictly between
		all := ever[place{epoch, tr.conv}]
		first, _ := slices.BinarySearch(all, from+1)
		end, _ := slices.BinarySearch(all, to)
		return max(end-first, 0)
	}
	begun := at.Seq > 0
	for _, s := range tr.steps {
		switch {
		case s.restart:
			at, begun = schemas.Cursor{}, false
		case s.gap != nil && !mayLose:
			t.Errorf("%s: told of the gap %+v, where nothing was lost", tr.conv, *s.gap)
		case s.gap != nil:
			at, begun = s.gap.To, s.gap.To.Seq > 0
		case at.Epoch != "" && s.event.Epoch != at.Epoch:
			t.Errorf("%s: %s after %s without a word", tr.conv, s.event, at)
			return
		default:
			// Who begins at the beginning begins at the first that is there.
			if n := missing(at.Seq, s.event.Seq, s.event.Epoch); n > 0 && (begun || !mayLose) || s.event.Seq <= at.Seq && begun {
				t.Errorf("%s: %d events are missing, or told again, between %s and %s", tr.conv, n, at, s.event)
				return
			}
			if e, ok := l.ever[s.event.Epoch][s.event.Seq]; !ok || e.Value.Conversation != tr.conv {
				t.Errorf("%s: was told %s, which is not its", tr.conv, s.event)
			}
			at, begun = s.event, true
		}
	}
	if at.Epoch == "" {
		at.Epoch = l.name()
	}
	if at.Epoch != l.name() && missing(0, l.last+1, l.name()) > 0 {
		t.Errorf("%s: is still at %s, the log is at %s_%d", tr.conv, at, l.name(), l.last)
	}
	if at.Epoch == l.name() {
		if n := missing(max(at.Seq, l.first-1), l.last+1, l.name()); n > 0 {
			t.Errorf("%s: %d events behind %s were not told", tr.conv, n, at)
		}
	}
}

// TestEveryReaderSeesTheLog lets readers come and go at random places of conversations while events are stored, live events get lost,
// reads fail and frames are forgotten: each reader receives exactly what is in the log. Where the log itself loses something, the reader
// receives a gap.
//
//guarantee:a-conversation-has-no-holes
func TestEveryReaderSeesTheLog(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wander(t, seed) })
		})
	}
}

func wander(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	l := newFakeLog()
	mayLose := seed%2 == 1
	l.lose, l.fail = randomly(rand.New(rand.NewPCG(seed, 8)), int(seed%4)*20), randomly(rand.New(rand.NewPCG(seed, 9)), int(seed%3)*10)
	h, stop := running(t, l, replay.Options{Budget: 4 << 10 << (seed % 5)})
	synctest.Wait()
	conversations := []schemas.ConversationID{"a", "b", "c"}
	var readers []*transcript
	wakes := make(chan *transcript, 1<<16)
	for range 1500 {
		switch rnd.IntN(12) {
		case 0:
			tr := &transcript{conv: conversations[rnd.IntN(len(conversations))], quick: rnd.IntN(2) == 0}
			if len(readers) > 0 && rnd.IntN(3) > 0 {
				if from := readers[rnd.IntN(len(readers))]; from.conv == tr.conv && len(from.steps) > 0 {
					if s := from.steps[rnd.IntN(len(from.steps))]; s.gap == nil && !s.restart {
						tr.after = s.event
					}
				}
			} else if rnd.IntN(4) == 0 {
				tr.after = schemas.Tail
			}
			tr.last = tr.after
			if rnd.IntN(3) == 0 {
				tr.screen, tr.lost = newScreen(), mayLose
			}
			readers = append(readers, tr)
			tr.connect(h, func() { wakes <- tr })
		case 1:
			if len(readers) > 0 {
				tr := readers[rnd.IntN(len(readers))]
				if tr.r != nil && !tr.last.IsTail() {
					tr.r.Close()
					tr.r = nil
				}
			}
		case 2:
			for _, tr := range readers {
				if tr.r == nil && rnd.IntN(2) == 0 {
					tr.connect(h, func() { wakes <- tr })
				}
			}
		case 3:
			time.Sleep(time.Duration(rnd.IntN(40_000)) * time.Millisecond)
		case 4:
			if mayLose && rnd.IntN(10) == 0 {
				l.forget(uint64(rnd.IntN(60)))
			} else if mayLose && rnd.IntN(60) == 0 {
				l.recreated()
				l.mu.Lock()
				l.lost()
				l.mu.Unlock()
			}
		case 5:
			for _, tr := range readers {
				tr.read(t, rnd.IntN(30))
			}
		default:
			for range rnd.IntN(8) {
				l.publish(conversations[rnd.IntN(len(conversations))])
			}
			if rnd.IntN(2) == 0 {
				synctest.Wait()
			}
		}
		for len(wakes) > 0 {
			if tr := <-wakes; tr.quick {
				tr.read(t, 1<<20)
			}
		}
	}
	l.mu.Lock()
	l.fail = nil
	l.mu.Unlock()
	for quiet := 0; quiet < 8; quiet++ { // everybody comes back and reads to the end
		for _, tr := range readers {
			if tr.r == nil {
				tr.connect(h, func() {})
			}
			before := len(tr.steps)
			if tr.read(t, 1<<20); len(tr.steps) > before {
				quiet = 0
			}
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
	}
	stop()
	n, ever := 0, l.everything()
	for _, tr := range readers {
		if tr.screen != nil {
			tr.checkCompact(t, l)
		} else {
			tr.check(t, l, ever, mayLose)
		}
		n += len(tr.steps)
		if tr.r != nil {
			tr.r.Close()
		}
	}
	if n < 1000 {
		t.Errorf("the readers were told %d things: the test shows little", n)
	}
}
