package replay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// crowd is a log of many conversations with a few events each, whose reads take a millisecond.
type crowd struct {
	*fakeLog

	mu    sync.Mutex
	ends  map[schemas.ConversationID]uint64
	lasts int
	most  int // questions at the same time
	now   int
}

func (l *crowd) publish(conv schemas.ConversationID) uint64 {
	l.fakeLog.mu.Lock()
	defer l.fakeLog.mu.Unlock()
	l.last++
	e := streams.Entry[schemas.Event]{
		Cursor: schemas.Cursor{Epoch: l.name(), Seq: l.last}, Stored: time.Now(),
		Value: schemas.Event{ID: fmt.Sprint(l.last), Type: schemas.Message, Conversation: conv},
	}
	l.stored[l.last] = e
	l.mu.Lock()
	prev := l.ends[conv]
	l.ends[conv] = l.last
	l.mu.Unlock()
	if received := l.received[conv]; received != nil {
		e.Cursor.Epoch = ""
		received(streams.LiveEvent{Entry: e, Prev: prev})
	}
	return l.last
}

// Last answers where a conversation ends without a search.
func (l *crowd) Last(_ context.Context, _ schemas.AccountID, c schemas.ConversationID) (schemas.Cursor, error) {
	l.mu.Lock()
	l.lasts++
	l.now++
	l.most = max(l.most, l.now)
	l.mu.Unlock()
	time.Sleep(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now--
	return schemas.Cursor{Epoch: l.name(), Seq: l.ends[c]}, nil
}

// A connection is interrupted briefly under 10,000 conversations. Readers of a conversation with a new event receive it at once, and soon
// after the log is asked about all conversations, some at a time.
func TestABlinkDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conversations = 10_000
		l := &crowd{fakeLog: newFakeLog(), ends: map[schemas.ConversationID]uint64{}}
		h := replay.New(l, replay.Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		readers := make([]*replay.Reader, conversations)
		advance := make([]uint64, conversations)
		read := func(i int) {
			for s := range readers[i].Ready() {
				if s.Kind == replay.StepEvent {
					advance[i] = s.Frame.Cursor().Seq
				}
			}
		}
		name := func(i int) schemas.ConversationID { return schemas.ConversationID(fmt.Sprint("c", i)) }
		for i := range readers {
			l.publish(name(i))
			readers[i] = h.Attach(account, name(i), schemas.Tail, func() {})
		}
		for range 3 {
			time.Sleep(20 * time.Second)
			for i := range readers {
				read(i)
			}
		}
		l.fakeLog.mu.Lock()
		lost := l.lost
		l.fakeLog.mu.Unlock()
		l.mu.Lock()
		before := l.lasts
		l.most = 0
		l.mu.Unlock()
		lost()
		synctest.Wait()
		last := l.publish(name(conversations - 1)) // while all are in doubt
		for waited := time.Duration(0); ; waited += time.Millisecond {
			if read(conversations - 1); advance[conversations-1] == last {
				t.Logf("told after %s", waited)
				break
			}
			if waited > 100*time.Millisecond {
				t.Fatalf("an event that was stored after a blink is not told within %s", waited)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		l.mu.Lock()
		asked, most := l.lasts-before, l.most
		l.mu.Unlock()
		if asked < conversations-2 || asked > conversations+2*conversations/45 || most < 8 || most > 16 {
			t.Errorf("after the blink the log was asked about %d conversations, %d at a time; want each once, 16 at a time", asked, most)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
