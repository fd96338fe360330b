package streams_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
)

// TestAWordIsSaidOfTheMessageItIsMeantFor: the log is restarted while a message is in flight. If the log still has the message, it is
// acknowledged. If the stream was recreated and another message has its sequence, that message is not acknowledged.
//
//guarantee:side-effects-are-started-at-most-once
func TestAWordIsSaidOfTheMessageItIsMeantFor(t *testing.T) {
	for name, c := range map[string]struct{ anew bool }{"the log is made anew": {true}, "the log is the same": {false}} {
		t.Run(name, func(t *testing.T) {
			s := testwait.Must(streams.StartServer(t.Context(),
				embedded.Options{DataDir: t.TempDir(), Port: -1, Name: "replaced", Memory: c.anew}, fair.Shares{}))(t)
			t.Cleanup(s.Shutdown)
			open := func() *streams.Bus {
				b := testwait.Must(streams.Open(t.Context(), streams.Options{Server: s, MemoryStorage: c.anew}))(t)
				t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
				return b
			}
			first, second := open(), open()
			// Nothing is delivered again for the lack of signs of life.
			one := streams.ConsumeOptions{Name: "w-local", Filter: "local", Slots: 1, AckWait: time.Hour}
			type delivered struct {
				streams.Delivery[schemas.Call]

				verdict chan error
			}
			take := func(b *streams.Bus) chan delivered {
				got := make(chan delivered)
				stop := consume(t, b, streams.Calls, one, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
					verdict := make(chan error)
					select {
					case got <- delivered{d, verdict}:
					case <-ctx.Done():
						return ctx.Err()
					}
					select {
					case err := <-verdict:
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				t.Cleanup(stop)
				return got
			}
			publish := func(id string) {
				testwait.Eventually(t, "the log takes "+id, func() bool {
					err := streams.Calls.Publish(t.Context(), second, callOf(id))
					return err == nil || schemas.CodeOf(err) == schemas.Conflict
				})
			}
			atFirst := take(first)
			publish("old")
			old := <-atFirst
			testwait.OK(t, s.Restart(t.Context()))
			atSecond := take(second)
			publish("new")
			held := <-atSecond
			if c.anew != (held.Seq == old.Seq) {
				t.Fatalf("the sequences are %d and %d", old.Seq, held.Seq)
			}
			old.verdict <- nil
			publish("third")
			third := <-atFirst // the consumer asks for it behind its word of the old one
			testwait.Eventually(t, "only the new one and the third are in flight", func() bool {
				// The connection for reads is another one than those that have worked by now, and may not be back yet.
				q, err := second.Calls().QueueStats(t.Context(), "local")
				return err == nil && q.AckPending == 2
			})
			held.verdict <- streams.RetryAfter(0, nil)
			if again := <-atSecond; again.Value.ID != "new" || again.Attempt != 2 {
				t.Errorf("%s comes as attempt %d, want the new one again", again.Value.ID, again.Attempt)
			} else {
				again.verdict <- nil
			}
			third.verdict <- nil
		})
	}
}
