package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/turns"
)

const (
	publishAtOnce = 16
	// publishWithin is how long after an answer its calls may be made: the log knows ids of calls for a day, and events for longer. A call
	// that is unknown after that is not made, as it may have been made before.
	publishWithin = 20 * time.Hour
	// admitWithin is how long after an answer a call is tried that cannot be taken now.
	admitWithin = 15 * time.Minute
)

// lookAtCalls reads which of the awaited calls have been made, and which have results.
func (c *carrying) lookAtCalls(ctx context.Context) error {
	pending := c.state.Pending()
	if len(pending) == 0 {
		return nil
	}
	if c.calls == nil {
		c.calls = c.r.Bus.States().Several(c.account, c.conversation, pending, c.answered)
	}
	if err := c.calls.Read(ctx); err != nil {
		return err
	}
	for _, id := range pending {
		state := c.calls.Of(id)
		if state.Accepted || len(state.Started) > 0 || state.Result != nil {
			c.called[id] = true
		}
		if _, known := c.ended[id]; !known && state.Result != nil {
			c.ended[id] = resultOf(*state.Result)
		}
	}
	return nil
}

func resultOf(r schemas.Result) schemas.UsedResult {
	return schemas.UsedResult{Status: r.Status, Text: r.Text, IsError: r.Status != schemas.StatusCompleted}
}

func failed(s schemas.Status, format string, args ...any) schemas.UsedResult {
	return schemas.UsedResult{Status: s, Text: fmt.Sprintf(format, args...), IsError: true}
}

// publish admits calls, under ids that are the same in every process. A call that is refused gets a result at once.
func (c *carrying) publish(ctx context.Context, list []turns.ToolCall) error {
	age := c.r.Bus.Now().Sub(c.answered)
	if age > publishWithin {
		for _, t := range list {
			c.ended[t.ID] = failed(schemas.StatusInterrupted, "Interrupted: nobody could look at it for a day, so it may have taken effect.")
		}
		return nil
	}
	admitter := c.r.Calls
	admitter.Since = c.answered
	requests := make([]schemas.Request, len(list))
	jobs := 0
	for i, t := range list {
		r, err := c.request(t)
		if err != nil {
			c.ended[t.ID] = refused(err)
			continue
		}
		if requests[i] = r; r.Background() {
			jobs++
		}
	}
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	places := make(chan struct{}, publishAtOnce)
	for i, r := range requests {
		if r.ID == "" {
			continue
		}
		if jobs > 1 && r.Background() && len(list) == len(c.state.Pending()) && jobs <= schemas.MaxGroup { // their ends come back together
			r.Group = &schemas.GroupRef{ID: fmt.Sprintf("%s.%d", c.state.Turn, c.state.Steps), Size: jobs}
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			_, errs[i] = admitter.Admit(ctx, c.account, r)
		})
	}
	wg.Wait()
	for i, t := range list {
		switch err := errs[i]; {
		case requests[i].ID == "":
		case err == nil, errors.Is(err, schemas.ErrConflict): // it is there, as another process has worded it
			c.called[t.ID] = true
		case ctx.Err() != nil:
			return ctx.Err()
		case schemas.CodeOf(err).Retryable() && age < admitWithin:
			return fmt.Errorf("make the call %s: %w", t.ID, err)
		default:
			c.ended[t.ID] = refused(err)
		}
	}
	return c.r.at("called")
}

func refused(err error) schemas.UsedResult {
	p := schemas.Public(err)
	text := p.Message
	if p.Field != "" {
		text = p.Field + " " + text
	}
	return failed(schemas.StatusFailed, "Not carried out: %s", text)
}

// request returns the request for a use of a tool.
func (c *carrying) request(t turns.ToolCall) (schemas.Request, error) {
	tool, ok := c.mind.Tools[t.Name]
	if !ok {
		return schemas.Request{}, schemas.Errorf(schemas.NotFound, "there is no tool %q", schemas.Quotable(t.Name))
	}
	if len(t.Input) == 0 || t.Input[0] != '{' {
		return schemas.Request{}, schemas.Errorf(schemas.Invalid, "the input is not a JSON object: write it again")
	}
	b, err := schemas.EncodeJSON(schemas.Request{
		ID: t.ID, Agent: c.hold.Agent, Conversation: c.conversation, Turn: c.state.Turn, Tool: tool, Input: t.Input, Dialect: c.mind.Dialect,
		Origin: c.origin(), WaitForWorker: true,
	})
	if err != nil {
		return schemas.Request{}, schemas.Errorf(schemas.Invalid, "the input is not JSON")
	}
	return schemas.DecodeRequest(b)
}

// cancelCalls requests the cancellation of calls.
func (c *carrying) cancelCalls(ctx context.Context, ids []schemas.CallID) error {
	const reason = "the turn was stopped"
	for _, id := range ids {
		call, err := c.r.Bus.Calls().Find(ctx, c.account, id)
		if errors.Is(err, schemas.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		ended, err := admission.Approvals{Bus: c.r.Bus, Log: c.log}.Cancel(ctx, call, "turn", reason)
		if err != nil && !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if ended || err != nil {
			continue
		}
		if err := lifecycle.Cancel(ctx, c.r.Bus, call, reason); err != nil {
			return err
		}
	}
	c.cancelled = c.r.Bus.Now()
	return nil
}
