package streams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestTheTailReportsWhatIsStored(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, cancel := context.WithCancel(t.Context())
		tail := streams.NewTail(b, func() { t.Error("nothing was lost") })
		done := make(chan error, 1)
		go func() { done <- tail.Run(ctx) }()
		c, other := callOf("a"), callOf("b")
		other.Conversation = "other"
		publishNumbers(t, b, c, 0, 2)
		var heard heap[string]
		note := func(e streams.LiveEvent) {
			heard.add(fmt.Sprintf("%s %d after %d, %v", e.Value.Conversation, e.Cursor.Seq, e.Prev, e.Away))
		}
		stop := testwait.Must(tail.Follow(ctx, account, c.Conversation, note))(t)
		if _, err := tail.Follow(ctx, account, c.Conversation, note); !errors.Is(err, schemas.ErrConflict) {
			t.Errorf("followed twice: %v", err)
		}
		defer testwait.Must(tail.Follow(ctx, account, other.Conversation, note))(t)()
		publishNumbers(t, b, c, 2, 3)
		publishNumbers(t, b, other, 0, 1)
		publishNumbers(t, b, c, 3, 4)
		big := schemas.OutputData{Text: string(make([]byte, 2<<20))}
		testwait.OK(t, streams.Events.Publish(ctx, b, eventOf(c, "big", schemas.CallOutput, big)))
		synctest.Wait()
		stop()
		publishNumbers(t, b, c, 4, 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		conv := string(c.Conversation)
		want := []string{
			conv + " 3 after 2, false", "other 4 after 0, false", conv + " 5 after 3, false", " 6 after 5, true",
		}
		if got := heard.all(); !slices.Equal(got, want) {
			t.Errorf("heard %q, want %q", got, want)
		}
		page := testwait.Must(streams.ReadEvents(ctx, b, account, c.Conversation, 3, 2))(t)
		if page.First != 3 || page.Last != 5 || !page.More || len(page.Events) != 2 {
			t.Errorf("page from %d to %d with %d events, more: %v", page.First, page.Last, len(page.Events), page.More)
		}
		last := testwait.Must(streams.LastEvent(ctx, b, account, c.Conversation))(t)
		state := testwait.Must(streams.ReadShard(ctx, b, b.ShardOf(c.Conversation)))(t)
		if last.Seq != 7 || state.Last != 7 || state.First != 1 || last.Epoch != state.Epoch || page.Epoch != state.Epoch {
			t.Errorf("last %s, shard %+v, page of %s", last, state, page.Epoch)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
