package streams_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/streams/outputs"
)

// part is what happens on a log from some time on. Its server and clock are started again for it.
type part struct {
	at time.Duration
	do func(t *testing.T, b *streams.Bus)
}

// play plays a log whose clock is set while its server restarts. Each part has a separate virtual time, and all of them begin at the same
// moment.
func play(t *testing.T, parts ...part) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range parts {
		natstest.Run(t, p.do, natstest.Dir(dir), func(*natstest.Settings) { time.Sleep(p.at) })
	}
}

// backward is a call that was accepted, and started to print, before the log's clock was set back, and has the rest of its events after.
type backward struct {
	call          schemas.Call
	started, done schemas.Event
}

func (w *backward) before(t *testing.T, b *streams.Bus) {
	w.call = callOf("one")
	testwait.OK(t, streams.Calls.Publish(t.Context(), b, w.call))
	for _, e := range []schemas.Event{schemas.AcceptedEvent(w.call), w.output("first ", 0, 1)} {
		testwait.OK(t, streams.Events.Publish(t.Context(), b, e))
	}
}

func (w *backward) output(text string, offset, n int) schemas.Event {
	return schemas.NewEvent(w.call, schemas.CallOutput, schemas.OutputID(w.call.Account, w.call.ID, 1, n), time.Now(),
		schemas.OutputData{Call: w.call.ID, Stream: "stdout", Offset: int64(offset), Text: text, Bytes: len(text), Attempt: 1})
}

// after stores what follows and returns the place of its last output.
func (w *backward) after(t *testing.T, b *streams.Bus) outputs.PlacedPiece {
	c := w.call
	w.started = schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, 1), time.Now(),
		schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "w", Attempt: 1})
	w.done = schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), time.Now(),
		schemas.Result{Call: c.ID, Conversation: c.Conversation, Status: schemas.StatusCompleted, Text: "done"})
	third := w.output("third", len("first second "), 3)
	var at schemas.Cursor
	for _, e := range []schemas.Event{w.started, w.output("second ", len("first "), 2), third, w.done} {
		s := testwait.Must(streams.Events.Store(t.Context(), b, e))(t)
		if e.ID == third.ID {
			at = s.Cursor
		}
	}
	piece, _ := outputs.PieceOf(third)
	return outputs.PlacedPiece{Piece: piece, Seq: at.Seq}
}

// TestWhatIsStoredAfterTheLogsClockWasSetBackIsFound: a conversation is read by stamps, from about the time when a call was accepted.
// Events that were stored since are found, even if their stamps are earlier.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestWhatIsStoredAfterTheLogsClockWasSetBackIsFound(t *testing.T) {
	for _, by := range []time.Duration{4 * time.Minute, time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			var w backward
			var last outputs.PlacedPiece
			look := func(t *testing.T, b *streams.Bus) {
				w.found(t, b, last)
				noise := callOf(schemas.NewID("noise_")) // by which stamps are where they were before
				noise.Conversation = w.call.Conversation
				testwait.OK(t, streams.Events.Publish(t.Context(), b, schemas.AcceptedEvent(noise)))
				w.found(t, b, last)
			}
			play(t, part{by, w.before}, part{0, func(t *testing.T, b *streams.Bus) {
				time.Sleep(time.Second)
				last = w.after(t, b)
				look(t, b)
			}}, part{by - 2*time.Minute, look}, part{by + time.Minute, look}, part{by + 15*time.Minute, look})
		})
	}
}

func (w *backward) found(t *testing.T, b *streams.Bus, last outputs.PlacedPiece) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c := w.call
	whole := func(by string, s schemas.Result, starts int) {
		t.Helper()
		if s.Call != c.ID || s.Status != schemas.StatusCompleted || starts != 1 {
			t.Errorf("at %s, %s: it has %d starts and the result %+v", time.Now().Format(time.TimeOnly), by, starts, s)
		}
	}
	resultOf := func(s callstate.State) (r schemas.Result, starts int) {
		if s.Result != nil {
			r = *s.Result
		}
		return r, len(s.Started)
	}
	state := testwait.Must(b.States().Read(ctx, c))(t)
	r, starts := resultOf(state)
	whole("its state", r, starts)
	if awaited, err := b.AwaitCall(ctx, c); err != nil {
		t.Errorf("its result is not there for who waits: %v", err)
	} else {
		r, starts = resultOf(*awaited)
		whole("who waits", r, starts)
	}
	list, _, _, err := b.Calls().Recent(ctx, account, "", 10, func(c schemas.Call) bool { return true })
	testwait.OK(t, err)
	r, starts = resultOf(testwait.Must(b.States().Recent(ctx, list))(t)[c.ID])
	whole("in a list", r, starts)
	states := b.States().Several(c.Account, c.Conversation, []schemas.CallID{c.ID}, c.Accepted)
	testwait.OK(t, states.Read(ctx))
	r, starts = resultOf(states.Of(c.ID))
	whole("of several", r, starts)
	if is := testwait.Must(streams.HasEvent(ctx, b, c.Account, c.Conversation, w.done.ID, c.Accepted))(t); !is {
		t.Error("the event of its result is not found")
	}
	before := testwait.Must(streams.LastEvent(ctx, b, c.Account, c.Conversation))(t)
	testwait.Must(streams.StoreOnce(ctx, b, w.done, b.AbsentAt(c.Accepted)))(t)
	testwait.Must(streams.StoreOnce(ctx, b, schemas.AcceptedEvent(c), b.AbsentAt(c.Accepted)))(t)
	if after := testwait.Must(streams.LastEvent(ctx, b, c.Account, c.Conversation))(t); after.Seq != before.Seq {
		t.Error("an event that is there was stored once more")
	}
	made := testwait.Must(b.States().Snapshots(ctx, c.Account, c.Conversation, []outputs.PlacedPiece{last}))(t)
	if len(made) != 1 || len(made[0].Output) != 1 || made[0].Output[0].Text != "first second " {
		t.Errorf("the output before its last piece is %+v", made)
	}
}

// TestAWaiterReceivesAResultThatIsStoredAfterTheLogsClockWasSetBack: its stamp lies before that of the call.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAWaiterReceivesAResultThatIsStoredAfterTheLogsClockWasSetBack(t *testing.T) {
	var w backward
	play(t, part{time.Hour, w.before}, part{0, func(t *testing.T, b *streams.Bus) {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		done := make(chan error, 1)
		go func() {
			_, err := b.AwaitCall(ctx, w.call)
			done <- err
		}()
		time.Sleep(time.Second)
		w.after(t, b)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}})
}

// TestAnotherUseOfAnIdStaysAnotherWhenTheLogsClockWasSetBack: what the first call of an id has got is not taken for that of the second,
// of which nothing is there yet.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAnotherUseOfAnIdStaysAnotherWhenTheLogsClockWasSetBack(t *testing.T) {
	var first backward
	var second schemas.Call
	play(t, part{0, func(t *testing.T, b *streams.Bus) {
		first.before(t, b)
		first.after(t, b)
	}}, part{26 * time.Hour, func(t *testing.T, b *streams.Bus) {
		second = callOf("one")
		place := testwait.Must(streams.Calls.Last(t.Context(), b, second))(t)
		testwait.OK(t, streams.Calls.Replace(t.Context(), b, second, place.Seq()))
	}}, part{25 * time.Hour, func(t *testing.T, b *streams.Bus) {
		if s := testwait.Must(b.States().Read(t.Context(), second))(t); s.Result != nil || s.Accepted || len(s.Started) > 0 {
			t.Errorf("before it is accepted, its state is %+v", s)
		}
		before := testwait.Must(streams.LastEvent(t.Context(), b, second.Account, second.Conversation))(t)
		testwait.Must(streams.StoreOnce(t.Context(), b, schemas.AcceptedEvent(second), b.AbsentAt(second.Accepted)))(t)
		if after := testwait.Must(streams.LastEvent(t.Context(), b, second.Account, second.Conversation))(t); after.Seq == before.Seq {
			t.Fatal("its acceptance was taken for that of the first")
		}
		if s := testwait.Must(b.States().Read(t.Context(), second))(t); s.Result != nil || !s.Accepted || len(s.Started) > 0 {
			t.Errorf("when it is accepted, its state is %+v", s)
		}
	}})
}

// TestMessagesSinceATimeAreFoundAfterTheLogsClockWasSetBack: those that were stored since then too.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestMessagesSinceATimeAreFoundAfterTheLogsClockWasSetBack(t *testing.T) {
	var since time.Time
	play(t, part{time.Hour, func(t *testing.T, b *streams.Bus) {
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("earlier")))
		time.Sleep(time.Minute)
		since = time.Now()
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("before")))
	}}, part{0, func(t *testing.T, b *streams.Bus) {
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf("after")))
		var got []schemas.CallID
		for e, err := range streams.Calls.Walk(t.Context(), b, "local", account, "", since, new(streams.Span)) {
			testwait.OK(t, err)
			got = append(got, e.Value.ID)
		}
		if fmt.Sprint(got) != "[before after]" {
			t.Errorf("found %v", got)
		}
	}})
}

// TestNoCertaintyOutlastsAStepOfTheLogsClock: a log forgets by its own clock what it would recognise.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestNoCertaintyOutlastsAStepOfTheLogsClock(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		var off atomic.Int64 // the log's clock is read by each process that asks the log
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			time.Sleep(time.Hour)
			sure, stored := b.Certainty(), b.Now()
			if !b.Holds(sure) || !b.Recognises(stored) {
				t.Error("it does not hold from its beginning on")
			}
			time.Sleep(time.Second)
			off.Store(int64(by))
			testwait.OK(t, b.AskTime(t.Context()))
			if b.Holds(sure) {
				t.Errorf("the log's clock was set by %s, and what was certain is so still", by)
			}
			if by < 0 && b.Recognises(stored) {
				t.Error("what was stored before the clock was set back counts as just stored")
			}
			time.Sleep(time.Second)
			if !b.Holds(b.Certainty()) {
				t.Error("nothing is certain any more")
			}
		}, func(s *natstest.Settings) {
			s.Log.LogClock = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		})
	}
}

// TestAStepOfTheLogsClockIsNoticedByAll: a process begins while the log's clock is behind, and another asks for it before and after that
// alone. What is stored meanwhile has stamps from before: the other does not take it for found either.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAStepOfTheLogsClockIsNoticedByAll(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t)
	testwait.OK(t, streams.Calls.Publish(t.Context(), l.Bus, callOf("one")))
	since := time.Now().Add(-time.Minute)
	want := func(found bool) {
		t.Helper()
		if is := testwait.Must(l.Bus.FoundSince(t.Context(), since))(t); is != found {
			t.Errorf("all since then is found: %t, want %t", is, found)
		}
	}
	want(true)
	behind := testwait.Must(streams.Open(t.Context(), streams.Options{
		Server: l.Server, MemoryStorage: true, LogClock: func() time.Time { return time.Now().Add(-time.Hour) },
	}))(t)
	testwait.OK(t, behind.Close(t.Context()))
	want(false)
}
