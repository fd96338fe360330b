package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/turns"
)

// Defaults of a [Runner].
const (
	DefaultSlots  = 256
	DefaultGrace  = 30 * time.Second
	DefaultLinger = 5 * time.Second

	maxAttempts = 1 << 30 // of a wake: it waits while another process has its conversation
	elsewhere   = time.Second
	failedAgain = 2 * time.Second
)

// Mind is an agent's configuration with the clients of its models.
type Mind struct {
	Config turns.Config
	// Clients ask the models of Config.Models, one for each.
	Clients []models.Client
	// Tools are the names that the model has for tools whose calls are carried out.
	Tools map[string]schemas.Tool
	// Dialect is that of the tools.
	Dialect schemas.Dialect
}

// Minds provides the configurations of agents.
type Minds interface {
	// Mind returns an agent's configuration. Codes: unsupported (the agent has no model: its turns are a harness's), not_found (the agent
	// or one of its models is gone), and those of the log.
	Mind(ctx context.Context, a schemas.AccountID, agent schemas.AgentID) (Mind, error)
}

// Metrics are callbacks; each may be nil.
type Metrics struct {
	Ended    func(schemas.TurnStatus)
	Attempt  func(reason string, took time.Duration) // "answered", or the class of the failure
	Tokens   func(schemas.TokenUsage)
	Carrying func(delta int) // changes of the number of conversations whose turns this process runs
}

// Runner runs the turns of agents, together with other runners on the same log.
type Runner struct {
	Bus   *streams.Bus
	Minds Minds
	// Calls admits the calls of tools.
	Calls admission.Admitter
	// Endpoints are an account's webhook endpoints; nil: there are none.
	Endpoints func(context.Context, schemas.AccountID) ([]schemas.Endpoint, error)
	Slots     int           // conversations carried on at the same time. 0: [DefaultSlots]
	Grace     time.Duration // that a model's answer under way has when the process stops. 0: [DefaultGrace]
	Linger    time.Duration // that a conversation stays here while its calls run. 0: [DefaultLinger]
	Metrics   Metrics
	Log       *slog.Logger // nil: silent

	name string
	sign *sign

	mu    sync.Mutex
	hands map[place]*hand // conversations whose turns this process runs, or is about to
	done  <-chan struct{} // the process is to stop
	at    func(stage string) error
}

// place identifies a conversation of an account.
type place struct {
	account      schemas.AccountID
	conversation schemas.ConversationID
}

// hand is a conversation whose turns this process runs. The consumers of further wakes for it wait until it is done.
type hand struct {
	poked  chan struct{} // something may have changed
	done   chan struct{}
	err    error // once done
	newest uint64
	over   chan struct{} // closed when a later wake replaces the newest one
}

func (h *hand) poke() {
	select {
	case h.poked <- struct{}{}:
	default:
	}
}

// Run runs turns until ctx is done; then it begins nothing new, gives answers in progress until Grace to complete, and returns nil. It
// returns an error only if consuming from the log fails.
func (r *Runner) Run(ctx context.Context) error {
	r.Slots, r.Grace, r.Linger = cmp.Or(r.Slots, DefaultSlots), cmp.Or(r.Grace, DefaultGrace), cmp.Or(r.Linger, DefaultLinger)
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	if r.at == nil {
		r.at = func(string) error { return nil }
	}
	r.name, r.hands, r.done = schemas.NewID("turns_"), map[place]*hand{}, ctx.Done()
	r.Log = r.Log.With("runner", r.name)
	r.Calls.Wake, r.Calls.Bus = true, r.Bus
	around, stop := context.WithCancel(context.WithoutCancel(ctx)) // what runs until the last turn is released
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	r.sign = newSign(r.Bus, r.name, r.Log)
	beside.Go(func() { r.sign.keep(around) })
	beside.Go(func() {
		if err := streams.Woken(around, r.Bus, r.poke); err != nil {
			r.Log.Warn("wakes are not heard of at once", "error", err)
		}
	})
	failed := make(chan error, 2)
	taking, end := context.WithCancel(ctx)
	defer end()
	var consuming sync.WaitGroup
	consuming.Go(func() {
		defer end()
		failed <- streams.Turns.Consume(taking, r.Bus, streams.ConsumeOptions{
			Name: "turns", Slots: 64, MaxAttempts: maxAttempts, MaxPending: streams.ManyPending,
		}, r.expect)
	})
	consuming.Go(func() {
		defer end()
		failed <- streams.Wakes.Consume(taking, r.Bus, streams.ConsumeOptions{
			Name: "runners", Slots: r.Slots, Grace: r.Grace, MaxAttempts: maxAttempts, Turns: true, MaxPending: streams.ManyPending,
		}, r.handle)
	})
	consuming.Wait()
	if err := errors.Join(<-failed, <-failed); err != nil {
		return fmt.Errorf("turns: %w", err)
	}
	return nil
}

// expect handles an incoming message: if it is for an agent with a model, it wakes the conversation; all others are for a harness.
func (r *Runner) expect(ctx context.Context, d streams.Delivery[schemas.FollowUp]) error {
	f := d.Value
	if f.Agent == "" {
		return nil
	}
	_, err := r.Minds.Mind(ctx, f.Account, f.Agent)
	if errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrUnsupported) {
		return nil
	}
	if err != nil && schemas.CodeOf(err).Retryable() {
		return err
	}
	return lifecycle.ExpectTurn(ctx, r.Bus, f, d.Seq)
}

// poke wakes a conversation whose turns this process runs.
func (r *Runner) poke(a schemas.AccountID, c schemas.ConversationID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.hands[place{a, c}]; h != nil {
		h.poke()
	}
}

// handle runs the turns of a conversation or, if this process runs them already, waits until that has ended. A wake is acknowledged only
// then, or when a later one has arrived, so the wake of a process that dies is redelivered.
func (r *Runner) handle(ctx context.Context, d streams.Delivery[schemas.Wake]) error {
	p := place{d.Value.Account, d.Value.Conversation}
	h, mine, over := r.join(p, d.Seq)
	if !mine {
		if over == nil {
			return nil
		}
		select {
		case <-h.done:
			return h.err
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f := r.Metrics.Carrying; f != nil {
		f(1)
		defer f(-1)
	}
	for {
		err := r.carry(ctx, p, h)
		if r.leave(p, h, err) {
			return err
		}
	}
}

// join registers a conversation to be run by the caller (mine), or finds that this process runs it already: then over is closed when a
// later wake arrives, and is nil if one has.
func (r *Runner) join(p place, seq uint64) (h *hand, mine bool, over <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h = r.hands[p]
	if h == nil {
		h = &hand{poked: make(chan struct{}, 1), done: make(chan struct{}), newest: seq, over: make(chan struct{})}
		r.hands[p] = h
		return h, true, nil
	}
	h.poke()
	switch {
	case seq < h.newest:
		return h, false, nil
	case seq > h.newest:
		close(h.over)
		h.newest, h.over = seq, make(chan struct{})
	}
	return h, false, h.over
}

// leave unregisters a conversation, unless it was poked since it was last read; then it returns false.
func (r *Runner) leave(p place, h *hand, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		select {
		case <-h.poked:
			return false
		default:
		}
	}
	delete(r.hands, p)
	h.err = err
	close(h.done)
	return true
}

// stopping reports whether the process is stopping.
func (r *Runner) stopping() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// carry takes the conversation's record, runs its turns, and releases the record.
func (r *Runner) carry(ctx context.Context, p place, h *hand) error {
	if r.stopping() {
		return streams.RetryAfter(0, nil)
	}
	hold, err := r.take(ctx, p)
	switch {
	case errors.Is(err, errOthers):
		return streams.RetryAfter(elsewhere, err)
	case err != nil:
		return r.verdict(ctx, p, err)
	case hold == nil:
		return nil
	}
	c := &carrying{r: r, place: p, hand: h, hold: *hold, log: r.Log.With("account", p.account, "conversation", p.conversation)}
	defer c.close()
	err = c.run(ctx)
	switch {
	case errors.Is(err, errMoved): // another process has written: it has the conversation, or had it
		c.log.Info("conversation carried on by another process, standing down")
		return streams.RetryAfter(elsewhere, err)
	case err == nil, errors.Is(err, errStopping):
		if rerr := c.release(ctx); rerr != nil {
			return r.verdict(ctx, p, rerr)
		}
		if err != nil {
			return streams.RetryAfter(0, err)
		}
		return nil
	}
	return r.verdict(ctx, p, err)
}

// verdict returns the error that makes a failed wake be redelivered.
func (r *Runner) verdict(ctx context.Context, p place, err error) error {
	if ctx.Err() == nil {
		r.Log.Warn("turn not continued, retrying", "account", p.account, "conversation", p.conversation, "error", err)
	}
	return streams.RetryAfter(failedAgain, err)
}

var (
	errOthers   = errors.New("another process has the conversation")
	errMoved    = errors.New("another process has written to the transcript")
	errStopping = errors.New("the process stops")
)
