package clienttest

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
)

//guarantee:a-conversation-has-no-holes
func TestTheGoClientSeesEveryEventOnceThroughCuts(t *testing.T) {
	t.Parallel()
	t.Run("over WebSockets, a crowd", func(t *testing.T) {
		t.Parallel()
		e := open(t, "http://nobody.test")
		ctx, cancel := context.WithCancel(t.Context())
		crowd := 50
		if !longtest.Asked() {
			crowd = 5
		}
		saw := make([][]streamcheck.Seen, crowd)
		var all, sockets sync.WaitGroup
		for i := range saw {
			c := client.New(e.url, aliceKey)
			c.Pause = 20 * time.Millisecond
			s := c.Socket()
			s.Batch = i%2 == 0
			sockets.Go(func() {
				if err := s.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() { saw[i] = gather(t, s.Follow) })
		}
		e.write(t)
		all.Wait()
		cancel()
		sockets.Wait()
		e.judge(t, saw...)
	})
	t.Run("over server-sent events", func(t *testing.T) {
		t.Parallel()
		e := open(t, "http://nobody.test")
		c := client.New(e.url, aliceKey)
		c.Pause = 20 * time.Millisecond
		e.write(t)
		e.judge(t, gather(t, c.Events))
	})
}

// gather follows all conversations until each has sent as many events as it has, and a moment more.
func gather(t *testing.T, f func(context.Context, schemas.ConversationID,
	schemas.Cursor) iter.Seq2[client.Item, error]) []streamcheck.Seen {
	t.Helper()
	var mu sync.Mutex
	var saw []streamcheck.Seen
	var readers sync.WaitGroup
	for _, conv := range conversations {
		readers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			n := 0
			for it, err := range f(ctx, schemas.ConversationID(conv), schemas.Cursor{}) {
				if n == events && ctx.Err() != nil {
					return
				}
				if err != nil || it.Gap != nil {
					t.Errorf("%s after %d events: %v, gap %s", conv, n, err, it.Gap)
					return
				}
				if it.Live {
					continue
				}
				n++
				mu.Lock()
				saw = append(saw, streamcheck.Seen{Conversation: conv, Cursor: it.Cursor.String(), Digest: digest(t, it.Event)})
				mu.Unlock()
				if n == events { // an event that is sent twice comes now
					time.AfterFunc(300*time.Millisecond, cancel)
				}
			}
		})
	}
	readers.Wait()
	return saw
}
