package streams_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// reader follows a conversation in a goroutine.
type reader struct {
	events, marks heap[string]
	gaps          heap[streams.Gap]
	recovered     atomic.Bool
	cursor        atomic.Value
	n             atomic.Int64
	stop          context.CancelFunc
	done          chan struct{}
}

func follow(t *testing.T, b *streams.Bus, c schemas.Call, after schemas.Cursor, slow time.Duration) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for i, err := range streams.Follow(ctx, b, account, c.Conversation, after) {
			if err != nil {
				t.Errorf("follow: %v", err)
				return
			}
			if i.Gap != nil {
				r.gaps.add(*i.Gap)
			}
			switch i.Kind {
			case streams.ItemAttached:
				r.recovered.Store(i.Recovered)
				r.marks.add("attached")
			case streams.ItemLive:
				r.marks.add("live")
			case streams.ItemEvent:
				time.Sleep(slow)
				r.events.add(i.Entry.Value.ID[len(c.EventID())+1:])
				r.cursor.Store(i.Entry.Cursor)
				r.n.Add(1)
			}
		}
	}()
	return r
}

func (r *reader) end() {
	r.stop()
	<-r.done
}

func numbers(from, to int) []string {
	var s []string
	for i := from; i < to; i++ {
		s = append(s, strconv.Itoa(i))
	}
	return s
}

func publishNumbers(t *testing.T, b *streams.Bus, c schemas.Call, from, to int) {
	t.Helper()
	for _, n := range numbers(from, to) {
		testwait.OK(t, streams.Events.Publish(t.Context(), b, eventOf(c, n, schemas.CallOutput, schemas.OutputData{Text: n})))
	}
}

// TestLostLiveMessagesAreReadFromTheLog drops live messages at random.
//
//guarantee:a-conversation-has-no-holes
func TestLostLiveMessagesAreReadFromTheLog(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		rnd := rand.New(rand.NewPCG(1, 2))
		b.Faults(streams.Fault{DropLive: func(*nats.Msg) bool { return rnd.IntN(3) > 0 }})
		c := callOf("a")
		r := follow(t, b, c, schemas.Cursor{}, 0)
		synctest.Wait()
		const n = 300
		publishNumbers(t, b, c, 0, n)
		time.Sleep(2 * time.Minute) // the very last one may be dropped too
		synctest.Wait()
		r.end()
		if got := r.events.all(); !slices.Equal(got, numbers(0, n)) {
			t.Errorf("got %d events %v", len(got), got)
		}
		if gaps := r.gaps.all(); len(gaps) > 0 {
			t.Errorf("gaps %v; want none", gaps)
		}
	}, natstest.Shards(4))
}

// TestASlowReaderLosesNothing has a reader that is far behind its buffer.
func TestASlowReaderLosesNothing(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		c := callOf("a")
		slow, quick := follow(t, b, c, schemas.Cursor{}, time.Second), follow(t, b, c, schemas.Cursor{}, 0)
		synctest.Wait()
		const n = 1500
		publishNumbers(t, b, c, 0, n)
		synctest.Wait()
		if got := len(quick.events.all()); got != n {
			t.Errorf("the quick one has %d; want %d", got, n)
		}
		time.Sleep(2 * n * time.Second)
		synctest.Wait()
		slow.end()
		quick.end()
		if got := slow.events.all(); !slices.Equal(got, numbers(0, n)) {
			t.Errorf("the slow one has %d; want %d", len(got), n)
		}
		if got := slow.marks.all(); !slices.Equal(got, []string{"attached", "live"}) {
			t.Errorf("marks %v", got)
		}
	})
}

func TestCursors(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		c := callOf("a")
		publishNumbers(t, b, c, 0, 10)
		all := testwait.Must(streams.Page(ctx, b, account, c.Conversation, schemas.Cursor{}, 4))(t)
		if len(all.Events) != 4 || all.UpToDate || !all.Recovered || all.Next != all.Events[3].Cursor {
			t.Fatalf("first page %+v", all)
		}
		rest := testwait.Must(streams.Page(ctx, b, account, c.Conversation, all.Next, 100))(t)
		if len(rest.Events) != 6 || !rest.UpToDate {
			t.Fatalf("second page has %d events, up to date: %v", len(rest.Events), rest.UpToDate)
		}
		now := testwait.Must(streams.Page(ctx, b, account, c.Conversation, schemas.Tail, 100))(t)
		if len(now.Events) != 0 || !now.UpToDate || now.Next.IsTail() || now.Next.IsStart() {
			t.Errorf("page at the end %+v", now)
		}
		publishNumbers(t, b, c, 10, 11)
		if p := testwait.Must(streams.Page(ctx, b, account, c.Conversation, now.Next, 100))(t); len(p.Events) != 1 || !p.Recovered {
			t.Errorf("after the end: %+v", p)
		}
		empty := testwait.Must(streams.Page(ctx, b, account, "c_empty", schemas.Tail, 0))(t)
		if p := testwait.Must(streams.Page(ctx, b, account, "c_empty", empty.Next, 0))(t); !p.Recovered || !p.UpToDate {
			t.Errorf("an empty conversation: %+v", p)
		}
		for name, after := range map[string]schemas.Cursor{
			"of another stream": {Epoch: "abc", Seq: 3},
			"of the future":     {Epoch: all.Next.Epoch, Seq: 99},
		} {
			p := testwait.Must(streams.Page(ctx, b, account, c.Conversation, after, 100))(t)
			if p.Recovered || p.Gap == nil || p.Gap.From != after || len(p.Events) != 11 {
				t.Errorf("a cursor %s: %d events, %+v", name, len(p.Events), p.Gap)
			}
		}
		// The oldest are removed one by one, as when a conversation has too many.
		testwait.OK(t, b.DeleteMessage(ctx, "EVENTS_00", 1))
		testwait.OK(t, b.DeleteMessage(ctx, "EVENTS_00", 2))
		testwait.OK(t, b.DeleteMessage(ctx, "EVENTS_00", 3))
		first := schemas.Cursor{Epoch: all.Next.Epoch, Seq: 1}
		if p := testwait.Must(streams.Page(ctx, b, account, c.Conversation, first, 100))(t); p.Recovered ||
			p.Gap == nil || len(p.Events) != 8 {
			t.Errorf("below what is kept: %+v with %d events", p.Gap, len(p.Events))
		}
		third := schemas.Cursor{Epoch: all.Next.Epoch, Seq: 3}
		if p := testwait.Must(streams.Page(ctx, b, account, c.Conversation, third, 100))(t); !p.Recovered ||
			len(p.Events) != 8 {
			t.Errorf("just below what is kept: %+v with %d events", p.Gap, len(p.Events))
		}
		stop := retain(t, &streams.Retention{Bus: b, Keep: time.Hour})
		time.Sleep(2 * time.Hour)
		stop()
		if p := testwait.Must(streams.Page(ctx, b, account, c.Conversation, all.Next, 100))(t); p.Recovered || len(p.Events) != 0 {
			t.Errorf("after its time: %+v", p)
		}
	})
}

// TestTheStreamIsRecreatedWhileFollowed: the reader gets that what it had is not that any more.
func TestTheStreamIsRecreatedWhileFollowed(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		c := callOf("a")
		publishNumbers(t, b, c, 0, 3)
		r := follow(t, b, c, schemas.Cursor{}, 0)
		time.Sleep(time.Second)
		testwait.OK(t, b.DeleteStream(t.Context(), "EVENTS_00"))
		testwait.OK(t, b.Again(t.Context()))
		time.Sleep(2 * time.Minute)
		publishNumbers(t, b, c, 5, 7)
		time.Sleep(2 * time.Minute)
		r.end()
		if got := r.events.all(); !slices.Equal(got, []string{"0", "1", "2", "5", "6"}) || len(r.gaps.all()) != 1 {
			t.Errorf("events %v, gaps %v", got, r.gaps.all())
		}
	})
}

func TestAwaitCall(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		c := callOf("a")
		c.Accepted = c.Accepted.Add(-30 * time.Minute) // the process that accepted it has a wrong clock
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		results := make(chan schemas.Result, 2)
		wait := func() {
			r, err := resultOf(b.AwaitCall(ctx, c))
			if err != nil {
				t.Error(err)
			}
			results <- r
		}
		go wait()
		synctest.Wait()
		state := testwait.Must(b.States().Read(ctx, c))(t)
		if state.Accepted || len(state.Started) > 0 || state.Result != nil {
			t.Errorf("state %+v; want nothing yet", state)
		}
		publishNumbers(t, b, c, 0, 300)
		testwait.OK(t, streams.Events.Publish(ctx, b, eventOf(c, "accepted", schemas.CallAccepted, schemas.AcceptedData{Call: c.ID})))
		testwait.OK(t, streams.Events.Publish(ctx, b, eventOf(c, "started.1", schemas.CallStarted,
			schemas.StartedData{Call: c.ID, Worker: "w", Attempt: 1})))
		result := schemas.Result{Call: c.ID, Status: schemas.StatusCompleted}
		testwait.OK(t, streams.Events.Publish(ctx, b, eventOf(c, "finished", schemas.CallFinished, result)))
		go wait()
		for range 2 {
			if r := <-results; r.Status != schemas.StatusCompleted {
				t.Errorf("result %+v", r)
			}
		}
		state = testwait.Must(b.States().Read(ctx, c))(t)
		if !state.Accepted || len(state.Started) != 1 || state.Started[0].Worker != "w" || state.Result == nil {
			t.Errorf("state %+v", state)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		other := callOf("b")
		if _, err := b.AwaitCall(short, other); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a result: %v", err)
		}
	})
}

func TestLargePayloadsComeBackWhole(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		c := callOf("a")
		c.Tool = schemas.ToolWrite
		content := string(bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16))
		c.Input = testwait.Must(json.Marshal(schemas.WriteInput{FilePath: "/f", Content: content}))(t)
		testwait.OK(t, streams.Calls.Publish(ctx, b, c))
		if got := testwait.Must(b.Calls().FindWhole(ctx, account, c.ID))(t); !bytes.Equal(got.Input, c.Input) {
			t.Error("the call that is found is not whole")
		}
		var n int
		stop := consume(t, b, streams.Calls, local, func(_ context.Context, d streams.Delivery[schemas.Call]) error {
			n++
			if !bytes.Equal(d.Value.Input, c.Input) {
				t.Error("the call that is consumed is not whole")
			}
			return errors.New("boom")
		})
		time.Sleep(time.Minute)
		stop()
		if n != 1 {
			t.Errorf("delivered %d times", n)
		}
		dead := letters(t, b)
		if len(dead) != 1 || dead[0].Size < len(content) {
			t.Fatalf("%d dead letters; want one that is whole", len(dead))
		}
		if d := testwait.Must(streams.OpenDeadLetters(b).Show(ctx, dead[0].ID))(t); len(d.Payload) != dead[0].Size {
			t.Errorf("%d bytes are shown of %d", len(d.Payload), dead[0].Size)
		}
		testwait.OK(t, streams.OpenDeadLetters(b).Redrive(ctx, dead[0].ID))
		if got := testwait.Must(b.Calls().FindWhole(ctx, account, c.ID))(t); !bytes.Equal(got.Input, c.Input) {
			t.Error("the call that was sent again is not whole")
		}
		e := eventOf(c, "big", schemas.CallOutput, schemas.OutputData{Text: content})
		testwait.OK(t, streams.Events.Publish(ctx, b, e))
		p := testwait.Must(streams.Page(ctx, b, account, c.Conversation, schemas.Cursor{}, 0))(t)
		if len(p.Events) != 1 || !bytes.Equal(p.Events[0].Value.Data, e.Data) {
			t.Error("the event that is read is not whole")
		}
	})
}

func TestCancelsAreAnnounced(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx, stop := context.WithCancel(t.Context())
		var heard atomic.Int64
		done := make(chan error, 1)
		go func() { done <- streams.Cancels.Notify(ctx, b, func() { heard.Add(1) }) }()
		synctest.Wait()
		for i, want := range []int64{1, 2} {
			cancel := schemas.Cancel{Account: account, Call: schemas.CallID(fmt.Sprint("c", i)), Time: time.Now()}
			testwait.OK(t, streams.Cancels.Publish(ctx, b, cancel))
			synctest.Wait()
			if got := heard.Load(); got != want {
				t.Errorf("%d announcements after %d requests", got, want)
			}
		}
		b.Drop()
		synctest.Wait()
		if heard.Load() != 3 {
			t.Errorf("%d announcements; want one more after the connection was away", heard.Load())
		}
		stop()
		testwait.OK(t, <-done)
		if err := streams.Calls.Notify(t.Context(), b, nil); schemas.CodeOf(err) != schemas.Unsupported {
			t.Errorf("a topic that is not published live: %v", err)
		}
	})
}
