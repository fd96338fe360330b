package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/turns"
)

// A piece of an answer is published at this size or age.
const (
	deltaBytes = 2 << 10
	deltaEvery = 100 * time.Millisecond
)

// asking is a request to a model that is in progress.
type asking struct {
	answer  chan *turns.Asked // gets one
	cancel  context.CancelFunc
	stopped chan struct{}
}

// stop cancels the request because the turn is being stopped.
func (a *asking) stop() {
	select {
	case <-a.stopped:
	default:
		close(a.stopped)
		a.cancel()
	}
}

// ask sends a request to a model in a goroutine.
func (c *carrying) ask(ctx context.Context, ask turns.Ask) {
	c.asked = &turns.Asked{Step: ask.Step, Attempt: ask.Attempt, Purpose: ask.Purpose}
	ctx, cancel := context.WithCancel(ctx)
	a := &asking{answer: make(chan *turns.Asked, 1), cancel: cancel, stopped: make(chan struct{})}
	c.asking = a
	client, turn := c.mind.Clients[ask.Model], c.state.Turn
	c.beside.Go(func() {
		defer cancel()
		begun := time.Now()
		got := turns.Asked{Step: ask.Step, Attempt: ask.Attempt, Purpose: ask.Purpose}
		got.Answer, got.Err = c.stream(ctx, client, turn, ask)
		reason := "answered"
		if got.Err != nil {
			reason = string(got.Err.Class)
			select {
			case <-a.stopped:
				got.Err = &models.Error{Class: turns.Stopped, Begun: true, Usage: got.Err.Usage, Message: "the turn was stopped"}
				reason = string(turns.Stopped)
			default:
			}
			c.log.Info("model has not answered", "step", ask.Step, "attempt", ask.Attempt, "error", got.Err)
		} else if f := c.r.Metrics.Tokens; f != nil {
			f(got.Answer.Usage)
		}
		if f := c.r.Metrics.Attempt; f != nil {
			f(reason, time.Since(begun))
		}
		a.answer <- &got
	})
}

// stream reads an answer, and publishes its text as it arrives.
func (c *carrying) stream(ctx context.Context, client models.Client, turn schemas.TurnID, ask turns.Ask) (*models.Answer, *models.Error) {
	w := deltaWriter{c: c, turn: turn, ask: ask}
	if ask.Purpose != "" {
		w.off = true // a summary is not shown to readers
	}
	defer w.begin(ctx)()
	for d, err := range client.Stream(ctx, ask.Request) {
		if err != nil {
			if e, ok := errors.AsType[*models.Error](err); ok {
				return nil, e
			}
			return nil, &models.Error{Class: models.Disconnected, Begun: true, Message: err.Error()}
		}
		if d.Answer != nil {
			return d.Answer, nil
		}
		w.add(d.Text)
	}
	return nil, &models.Error{Class: models.Disconnected, Begun: true, Message: "the answer has no end"}
}

// deltaWriter publishes the text of an answer in pieces, in a goroutine of its own, so that a slow log does not delay the model.
type deltaWriter struct {
	c    *carrying
	turn schemas.TurnID
	ask  turns.Ask
	off  bool
	text chan string
}

// begin starts the goroutine. The caller must call end, which waits until the last piece is published.
func (w *deltaWriter) begin(ctx context.Context) (end func()) {
	if w.off {
		return func() {}
	}
	const ahead = 1024 // pieces of the model's
	w.text = make(chan string, ahead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	return func() {
		close(w.text)
		<-done
	}
}

func (w *deltaWriter) add(text string) {
	if !w.off && text != "" {
		w.text <- text
	}
}

func (w *deltaWriter) run(ctx context.Context) {
	var piece strings.Builder
	offset, n := 0, 0
	flush := func() {
		if piece.Len() == 0 {
			return
		}
		text := piece.String()
		piece.Reset()
		n++
		if err := w.publish(ctx, n, offset, text); err != nil && ctx.Err() == nil {
			w.c.log.Debug("piece of an answer not published", "error", err) // the whole comes with its message
		}
		offset += len(text)
	}
	t := time.NewTicker(deltaEvery)
	defer t.Stop()
	for {
		select {
		case text, ok := <-w.text:
			if !ok {
				flush()
				return
			}
			for piece.WriteString(text); piece.Len() >= deltaBytes; {
				flush()
			}
		case <-t.C:
			flush()
		}
	}
}

func (w *deltaWriter) publish(ctx context.Context, n, offset int, text string) error {
	id := fmt.Sprintf("%s.%s.delta.%d.%d.%d", w.c.account, w.turn, w.ask.Step, w.ask.Attempt, n)
	e, err := w.c.event(schemas.MessageDelta, id, w.turn, w.c.r.Bus.Now(), schemas.MessageDeltaData{
		Turn: w.turn, Step: w.ask.Step, Attempt: w.ask.Attempt, Offset: offset, Text: text,
	})
	if err != nil {
		return err
	}
	return streams.Events.Publish(ctx, w.c.r.Bus, e)
}
