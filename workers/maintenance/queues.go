package maintenance

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstore"
)

// forgetSlack is how long calls remain in the stream beyond their age limit, so that a round has several to remove. Up to as much is added
// at random, so that one of many processes does it.
const forgetSlack = 5 * time.Minute

// sweep ends overdue calls and removes old ones, until ctx is done.
func (c *CallExpirer) sweep(ctx context.Context) {
	queues := map[string]*waiting{}
	slack := forgetSlack + rand.N(forgetSlack)
	for wait.Sleep(ctx, sweepEvery) {
		names, err := c.names(ctx)
		if err != nil {
			c.Log.Warn("call queues not listed, retrying", "error", err)
			continue
		}
		for _, p := range names {
			if queues[p] == nil {
				queues[p] = &waiting{most: mostWaiting}
			}
			if err := c.sweepQueue(ctx, p, queues[p]); err != nil && ctx.Err() == nil {
				c.Log.Warn("search for overdue calls failed, retrying", "provider", p, "error", err)
			}
		}
		if err := c.forget(ctx, names, slack); err != nil && ctx.Err() == nil {
			c.Log.Warn("old calls not removed, retrying", "error", err)
		}
	}
}

// names returns the providers that have or may have a queue.
func (c *CallExpirer) names(ctx context.Context) ([]string, error) {
	served, err := c.Bus.Calls().Queues(ctx)
	if err != nil {
		return nil, err
	}
	names := append(served, c.Providers...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// mostWaiting is the maximal number of calls kept in memory per queue without a worker. Ending as many takes longer than reading a million
// again.
const mostWaiting = 50_000

// waiting contains those calls of a queue without a worker that are due next. Each call is read once. The queue is read again when a call
// is due that was left out.
type waiting struct {
	most  int
	read  uint64 // calls with a lower sequence were read
	calls []waitingCall
	later waitingCall // the earliest due call that was left out; seq 0: none was

	again uint64      // lower sequences were read before the queue was read again, for from
	from  waitingCall // of those, calls that are due before from are in calls or have ended
}

type waitingCall struct {
	seq     uint64
	account schemas.AccountID
	id      schemas.CallID
	due     time.Time
}

func (c waitingCall) compare(d waitingCall) int {
	return cmp.Or(c.due.Compare(d.due), cmp.Compare(c.seq, d.seq))
}

// begin makes the queue be read again if a call is due that was left out.
func (w *waiting) begin(now time.Time) {
	if w.later.seq > 0 && !now.Before(w.later.due) {
		w.again, w.from = max(w.read, w.again), w.later
		w.read, w.later = 0, waitingCall{}
	}
}

// add adds a call that was read.
func (w *waiting) add(c waitingCall) {
	if c.seq < w.again && c.compare(w.from) < 0 {
		return
	}
	w.calls = append(w.calls, c)
	if len(w.calls) >= 2*w.most {
		w.narrow()
	}
}

// narrow leaves out the calls that are due last, if there are too many.
func (w *waiting) narrow() {
	slices.SortFunc(w.calls, waitingCall.compare)
	w.calls = slices.CompactFunc(w.calls, func(a, b waitingCall) bool { return a.seq == b.seq })
	if len(w.calls) <= w.most {
		return
	}
	if first := w.calls[w.most]; w.later.seq == 0 || first.compare(w.later) < 0 {
		w.later = first
	}
	w.calls = slices.Clone(w.calls[:w.most])
}

// sweepQueue ends the overdue calls of a provider. If the provider has workers, these do so themselves.
func (c *CallExpirer) sweepQueue(ctx context.Context, provider string, w *waiting) error {
	queue, err := c.Bus.Calls().QueueStats(ctx, provider)
	if err != nil || queue.Pulls > 0 || queue.Pending == 0 && queue.AckPending == 0 {
		*w = waiting{most: w.most}
		return err
	}
	w.begin(c.Bus.Now())
	for p, err := range c.Bus.Calls().Between(ctx, provider, max(w.read, queue.Floor.Seq+1), 1<<62) {
		if err != nil {
			return err
		}
		if w.read = p.Seq + 1; p.Unread { // a worker dead-letters it
			continue
		}
		w.add(waitingCall{p.Seq, p.Call.Account, p.Call.ID, p.Due.Add(overdue)})
	}
	w.narrow()
	var errs error
	kept := w.calls[:0]
	for i, next := range w.calls {
		stays, err := c.sweepCall(ctx, next, queue.Floor.Seq)
		if stays {
			kept = append(kept, next)
		}
		errs = errors.Join(errs, err) // errors of single calls do not stop the others
		if err != nil && (ctx.Err() != nil || schemas.CodeOf(err).Retryable()) {
			kept = append(kept, w.calls[i+1:]...)
			break
		}
	}
	w.calls = kept
	return errs
}

// sweepCall ends a call if it is overdue, and reports whether it still waits. All calls up to the sequence floor are acknowledged.
func (c *CallExpirer) sweepCall(ctx context.Context, next waitingCall, floor uint64) (stays bool, err error) {
	switch {
	case next.seq <= floor:
		return false, nil
	case c.Bus.Now().Before(next.due):
		return true, nil
	}
	found, err := c.Bus.Calls().FindPlaced(ctx, next.account, next.id)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return false, nil
	case err != nil:
		return true, err
	case c.Bus.Now().Sub(found.Due) < overdue: // another call with the same id
		return false, nil
	}
	ended, err := c.expire(ctx, found)
	if ended {
		return false, nil
	}
	return true, err
}

// forget removes from the stream the calls that are a day old, if all of them have ended. Calls that are left after an outage of the whole
// deployment are ended here. Calls below the ack floor of their queue have ended, so only the others are read.
func (c *CallExpirer) forget(ctx context.Context, names []string, slack time.Duration) error {
	first, before, err := c.Bus.Calls().Old(ctx, slack)
	if err != nil || before == 0 {
		return err
	}
	ended := 0
	for _, p := range append(slices.Clone(names), callstore.Parked) {
		from := first
		if p != callstore.Parked {
			queue, err := c.Bus.Calls().QueueStats(ctx, p)
			if err != nil {
				return err
			}
			from = max(first, queue.Floor.Seq+1)
		}
		for old, err := range c.Bus.Calls().Between(ctx, p, from, before) {
			if err != nil {
				return err
			}
			if old.Unread {
				c.Log.Warn("call not readable, waiting for its dead letter", "provider", p, "seq", old.Seq)
				before = min(before, old.Seq)
				break
			}
			done, fresh, err := c.endOld(ctx, old, p == callstore.Parked)
			if err != nil {
				return err
			}
			if fresh {
				ended++
			}
			if !done {
				before = min(before, old.Seq)
				break
			}
		}
	}
	if ended > 0 { // clients may ask for their results; the next round removes them
		c.Log.Info("abandoned calls finished", "calls", ended)
		return nil
	}
	if before <= first {
		return nil
	}
	return c.Bus.Calls().Forget(ctx, before)
}

// endOld stores a result for a call that is a day old, if it has none. It reports whether the call has one now, and whether that is new. A
// call that waits for an approval is left to the ApprovalExpirer.
func (c *CallExpirer) endOld(ctx context.Context, p callstore.Placed, isParked bool) (done, fresh bool, err error) {
	call := p.Call
	if isParked {
		done, err = c.parkedDone(ctx, call)
		return done, false, err
	}
	state, err := c.Bus.States().Read(ctx, call)
	if err != nil || state.Result != nil {
		return err == nil, false, err
	}
	if c.Bus.Now().Sub(p.Due) <= overdue {
		return false, false, nil
	}
	done, err = c.expire(ctx, p)
	return done, done, err
}

// parkedDone reports whether a call that waits for an approval has ended. If the record of its approval is missing, because the process
// that admitted the call crashed before it wrote the record or because the record was lost, it creates the record. The approval is overdue
// by then, so the ApprovalExpirer ends the call.
func (c *CallExpirer) parkedDone(ctx context.Context, call schemas.Call) (bool, error) {
	p, err := lifecycle.FindApproval(ctx, c.Bus, call.Account, call.Approval)
	if !errors.Is(err, schemas.ErrNotFound) {
		return err == nil && p.Value.Done, err
	}
	state, err := c.Bus.States().Read(ctx, call)
	if err != nil || state.Accepted || state.Result != nil { // it was released or ended: its record has aged out since
		return err == nil, err
	}
	_, err = lifecycle.EnsureApproval(ctx, c.Bus, call)
	return false, err
}
