// Package callwait waits for the results of calls. Waiters of one conversation share a subscription and the reads of what is stored.
package callwait

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Options say where results are. All are required.
type Options struct {
	States *callstate.Reader
	Calls  *callstore.Store
	Reader *direct.Reader
	Clock  *logclock.Clock
	Log    *slog.Logger
	// Event reads a stored event, also from the object store. Code unavailable: not now; others: it is no event.
	Event func(context.Context, direct.Message) (schemas.Event, error)
	// Recognises reports whether the log certainly detects a second publish of what it stored at a time.
	Recognises func(time.Time) bool
	// Follow opens a feed of what is stored from now on.
	Follow func(ctx context.Context, subject string) (direct.Feed, error)
	// Context ends with the log, and all waiting with it. Go runs a function that ends soon after.
	Context context.Context //nolint:containedctx // waits outlive the call that began them
	Go      func(func())
}

// New returns the Waits of a log.
func New(o Options) *Waits { return &Waits{o: o} }

// Await returns the call's state once it has its result. If ctx ends before that, it returns ctx's error and the last known state; nil if
// the conversation was not read yet. It waits while the log is unavailable. Code: not_found (the call has ended and its result is no
// longer kept; a caller that must be sure reads the state).
//
// It does not hold a large input while it waits, and the state has none: see [schemas.Call.WithoutInput].
//
// Waiters of one conversation share a subscription and the reads of stored events: another waiter costs one request, which asks when its
// call was stored, and another waiter of the same call costs none.
func (r *Waits) Await(ctx context.Context, c schemas.Call) (*callstate.State, error) {
	if err := errors.Join(c.Account.Validate(), c.Conversation.Validate()); err != nil {
		return nil, err
	}
	c = c.WithoutInput()
	a := r.join(c, nil)
	if a == nil {
		by, err := direct.Persist(ctx, r.o.Log, func() (*callstate.Reading, error) { return r.o.States.Begin(ctx, c) })
		if err != nil {
			return nil, ended(ctx, err)
		}
		if a = r.join(c, by); a == nil {
			return nil, errClosed()
		}
	}
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	state, err := r.leave(a)
	switch {
	case state != nil && state.Result != nil:
		return state, nil
	case ctx.Err() != nil:
		return state, ctx.Err()
	}
	return nil, err
}

func errClosed() error {
	return schemas.OpErrorf(schemas.Unavailable, "wait for a result", "the connection to the log is closed")
}

// Waits waits for the results of calls, by conversation. It is safe for concurrent use.
type Waits struct {
	o Options

	mu      sync.Mutex
	watches map[string]*watch // by live subject
}

// Watched returns how many conversations have calls that are waited for.
func (r *Waits) Watched() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.watches)
}

// watch follows a conversation for those who wait for calls of it. It ends with the last waiter.
type watch struct {
	waits   *Waits
	live    string
	stream  string
	subject string
	end     context.CancelFunc

	// What follows is guarded by waits.mu.
	waiting int                   // those who wait for any of its calls
	calls   map[string][]*awaited // by the beginning of their events' ids; nearly always one each
	fresh   []*awaited            // of them: those for whom nothing was read yet
	nudge   context.CancelFunc    // has run look at the fresh ones

	// What follows belongs to run.
	epoch string
	last  uint64    // everything up to here was delivered to those that are not fresh
	since time.Time // older events concern none of the waiters
}

// awaited is a call with waiters. It is guarded by waits.mu.
type awaited struct {
	watch   *watch
	state   callstate.State
	stored  time.Time
	since   time.Time
	waiting int
	last    uint64 // everything up to here was received
	known   bool   // the conversation was read
	err     error
	done    chan struct{} // closed with the result or err
}

// join adds a waiter for a call. If the call has waiters, it joins them; otherwise by says what is known of the call. It returns nil if
// there are no waiters and by is nil, or if the log is closed.
func (r *Waits) join(c schemas.Call, by *callstate.Reading) *awaited {
	live := subjects.LiveSubject(c.Account, c.Conversation)
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watches[live]
	if w != nil {
		for _, a := range w.calls[c.EventID()] {
			if a.state.Call.Accepted.Equal(c.Accepted) {
				a.waiting++
				w.waiting++
				return a
			}
		}
	}
	if by == nil || r.o.Context.Err() != nil {
		return nil
	}
	if w == nil {
		w = r.watch(live, by)
	}
	a := &awaited{watch: w, state: by.State, stored: by.Stored, since: by.Since, waiting: 1, done: make(chan struct{})}
	w.calls[c.EventID()] = append(w.calls[c.EventID()], a)
	w.fresh = append(w.fresh, a)
	w.waiting++
	w.nudge()
	return a
}

func (r *Waits) watch(live string, by *callstate.Reading) *watch {
	w := &watch{waits: r, live: live, stream: by.Stream, subject: by.Subject, calls: map[string][]*awaited{}, nudge: func() {}}
	var ctx context.Context
	ctx, w.end = context.WithCancel(r.o.Context)
	if r.watches == nil {
		r.watches = map[string]*watch{}
	}
	r.watches[live] = w
	r.o.Go(func() { w.fail(w.run(ctx)) })
	return w
}

// leave removes a waiter and returns the call's state as far as it is known; nil if the conversation was not read yet.
func (r *Waits) leave(a *awaited) (*callstate.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := a.watch
	w.waiting--
	if a.waiting--; a.waiting == 0 {
		w.forget(a)
	}
	if w.waiting == 0 {
		w.end()
		if r.watches[w.live] == w {
			delete(r.watches, w.live)
		}
	}
	if !a.known {
		return nil, a.err
	}
	state := a.state
	state.Started = slices.Clone(state.Started)
	return &state, a.err
}

// forget removes a call that has no more waiters, or that is settled. The caller has waits.mu.
func (w *watch) forget(a *awaited) {
	id := a.state.Call.EventID()
	rest := slices.DeleteFunc(w.calls[id], func(b *awaited) bool { return a == b })
	if w.calls[id] = rest; len(rest) == 0 {
		delete(w.calls, id)
	}
	w.fresh = slices.DeleteFunc(w.fresh, func(b *awaited) bool { return a == b })
}

// fail ends all waiting that is left, with an error.
func (w *watch) fail(err error) {
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	w.end()
	if w.waits.o.Context.Err() != nil {
		err = errClosed()
	}
	if w.waits.watches[w.live] == w {
		delete(w.waits.watches, w.live)
	}
	for _, of := range w.calls {
		for _, a := range of {
			a.err = err
			close(a.done)
		}
	}
	clear(w.calls)
}

// run follows the conversation until ctx ends or the log fails for good.
func (w *watch) run(ctx context.Context) error {
	o := w.waits.o
	feed, err := direct.Persist(ctx, o.Log, func() (direct.Feed, error) { return o.Follow(ctx, w.live) })
	if err != nil {
		return err
	}
	defer feed.Close()
	var idle context.Context
	for {
		var fresh []*awaited
		idle, fresh = w.look(ctx, idle) //nolint:fatcontext // each is made of ctx
		if len(fresh) > 0 {
			if err := w.catchUp(ctx, fresh); err != nil {
				return err
			}
			continue
		}
		m, prev, err := feed.Next(idle)
		switch {
		case err == nil && prev > w.last: // a hole
			if err = w.read(ctx, w.last, nil); err == nil {
				err = w.take(ctx, m, nil)
			}
		case err == nil:
			err = w.take(ctx, m, nil)
		case errors.Is(err, direct.ErrBehind):
			err = w.again(ctx)
		case idle.Err() != nil:
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// look returns the fresh calls and resets their list. idle is a context that ends when another call is added; former is that of the
// previous look, which is used again unless it has ended.
func (w *watch) look(ctx, former context.Context) (idle context.Context, fresh []*awaited) {
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	fresh, w.fresh = w.fresh, nil
	if former != nil && former.Err() == nil {
		return former, fresh
	}
	idle, w.nudge = context.WithCancel(ctx)
	return idle, fresh
}

// catchUp reads the stored events of the fresh calls.
func (w *watch) catchUp(ctx context.Context, fresh []*awaited) error {
	epoch, err := direct.Persist(ctx, w.waits.o.Log, func() (string, error) { return w.waits.o.Reader.Epoch(ctx, w.stream) })
	if err != nil {
		return err
	}
	w.epoch = cmp.Or(w.epoch, epoch)
	since := fresh[0].since
	for _, a := range fresh {
		if a.since.Before(since) {
			since = a.since
		}
	}
	if w.since.IsZero() || since.Before(w.since) {
		w.since = since
	}
	if err := w.read(ctx, 0, fresh); err != nil {
		return err
	}
	if err := w.completeAll(ctx, fresh); err != nil {
		return err
	}
	w.waits.mu.Lock()
	var unseen []*awaited
	for _, a := range fresh {
		a.known = true
		if a.err == nil && a.state.Unseen() && !w.waits.o.Recognises(a.stored) {
			unseen = append(unseen, a)
		}
	}
	w.waits.mu.Unlock()
	if len(unseen) == 0 {
		return nil
	}
	return w.forgetPast(ctx, unseen)
}

// completeAll adds to the fresh calls what a read from a time on may have missed because the log's clock was set back.
func (w *watch) completeAll(ctx context.Context, fresh []*awaited) error {
	o := w.waits.o
	w.waits.mu.Lock()
	var open []*awaited
	since := w.since
	for _, a := range fresh {
		if a.err == nil && !a.state.Accepted && a.state.Result == nil {
			open = append(open, a)
		}
	}
	w.waits.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	found, err := direct.Persist(ctx, o.Log, func() (bool, error) { return o.Clock.FoundSince(ctx, since) })
	if found || err != nil {
		return err
	}
	for _, a := range open {
		call := a.state.Call // it does not change
		r, err := direct.Persist(ctx, o.Log, func() (*callstate.Reading, error) { return o.States.ReadAll(ctx, call) })
		if err != nil {
			return err
		}
		w.waits.mu.Lock()
		a.state, a.last = r.State, max(a.last, r.Last)
		w.settle(a)
		w.waits.mu.Unlock()
	}
	return nil
}

// settle ends the waiting for a call if it has its result or an error. The caller has waits.mu.
func (w *watch) settle(a *awaited) {
	if a.err == nil && a.state.Result == nil {
		return
	}
	a.known = true
	w.forget(a)
	close(a.done)
}

// forgetPast ends the waiting for those of the calls without any event that have ended and whose events retention has removed.
func (w *watch) forgetPast(ctx context.Context, unseen []*awaited) error {
	o := w.waits.o
	of, err := direct.Persist(ctx, o.Log, func() (*callstate.History, error) { return o.States.History(ctx, w.stream, w.subject) })
	if err != nil {
		return err
	}
	for _, a := range unseen {
		if of.WholeSince(a.since, a.stored) {
			continue
		}
		call := a.state.Call // it does not change
		over, err := direct.Persist(ctx, o.Log, func() (bool, error) {
			is, _, err := o.Calls.Acknowledged(ctx, call.Account, call.ID)
			if !is || err != nil {
				return false, err
			}
			now, err := o.States.Read(ctx, call) // it may have ended since it was read: then its result is on its way here
			return now.Forgotten, err
		})
		if err != nil {
			return err
		}
		w.waits.mu.Lock()
		if over && a.err == nil && a.state.Result == nil {
			a.known, a.err = false, schemas.OpErrorf(schemas.NotFound, "wait for a result", "it is no longer kept")
			w.forget(a)
			close(a.done)
		}
		w.waits.mu.Unlock()
	}
	return nil
}

// again reads the events since the last one, because some may have been missed. If the stream was recreated meanwhile, it starts over.
func (w *watch) again(ctx context.Context) error {
	epoch, err := direct.Persist(ctx, w.waits.o.Log, func() (string, error) { return w.waits.o.Reader.Epoch(ctx, w.stream) })
	if err != nil {
		return err
	}
	if epoch == w.epoch {
		return w.read(ctx, w.last, nil)
	}
	w.epoch, w.last = epoch, 0
	w.waits.mu.Lock()
	for _, of := range w.calls {
		for _, a := range of {
			a.state, a.last = callstate.State{Call: a.state.Call}, 0
		}
	}
	w.waits.mu.Unlock()
	return w.read(ctx, 0, nil)
}

// read reads the events after a sequence up to the present; after 0, those from since on.
func (w *watch) read(ctx context.Context, after uint64, fresh []*awaited) error {
	type result struct {
		page []direct.Message
		more bool
	}
	since := &w.since
	for more := true; more; since = nil {
		if after > 0 {
			since = nil
		}
		r, err := direct.Persist(ctx, w.waits.o.Log, func() (result, error) {
			page, more, err := w.waits.o.Reader.GetPage(ctx, w.stream, w.subject, after+1, since, 0)
			return result{page, more}, err
		})
		if err != nil {
			return err
		}
		for _, m := range r.page {
			if err := w.take(ctx, m, fresh); err != nil {
				return err
			}
			after = m.Seq
		}
		more = r.more && len(r.page) > 0
	}
	return nil
}

// take passes an event to the calls that it concerns: to the fresh ones, and, if it is new, to all.
func (w *watch) take(ctx context.Context, m direct.Message, fresh []*awaited) error {
	isNew := m.Seq > w.last
	w.last = max(w.last, m.Seq)
	if !isNew && len(fresh) == 0 {
		return nil
	}
	to := w.concerned(m)
	if len(to) == 0 {
		return nil
	}
	o := w.waits.o
	e, err := direct.Persist(ctx, o.Log, func() (schemas.Event, error) { return o.Event(ctx, m) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return nil // a message that is no event says nothing
	}
	news, malformed := callstate.NewsOf(e) // once, and without the lock: others wait for it, and a result may have megabytes
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	for _, a := range to {
		if a.err != nil || a.state.Result != nil {
			continue
		}
		a.last = m.Seq
		if e.Subject == string(a.state.Call.ID) {
			a.err = malformed
		}
		a.state.Learn(news)
		w.settle(a)
	}
	return nil
}

// concerned returns the calls whose acceptance, start or end a message may be, and that have not received it yet.
func (w *watch) concerned(m direct.Message) (to []*awaited) {
	w.waits.mu.Lock()
	defer w.waits.mu.Unlock()
	add := func(of []*awaited) {
		for _, a := range of {
			if m.Seq > a.last && (m.ID == "" || callstate.EventOf(m.ID, a.state.Call)) && w.isOf(m, a) {
				to = append(to, a)
			}
		}
	}
	if m.ID == "" { // no message id of ours: the event must be read
		for _, of := range w.calls {
			add(of)
		}
		return to
	}
	for i, r := range m.ID { // an id of a call may have dots
		if r == '.' {
			add(w.calls[m.ID[:i]])
		}
	}
	return to
}

// isOf reports whether a message belongs to this use of a call's id. A message from before the call is of a former use. After the
// acceptance was read all messages are of this use, whatever their timestamps; before that, if timestamps mean nothing because the log's
// clock was set back, those are that came after the conversation was read.
func (w *watch) isOf(m direct.Message, a *awaited) bool {
	if a.state.Accepted || !m.Time.Before(a.since) {
		return true
	}
	_, known := w.waits.o.Clock.Age(a.since)
	return a.known && !known
}

// ended returns ctx's error if it has one, otherwise err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
