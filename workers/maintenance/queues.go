package maintenance

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// forgetSlack is how much longer calls may stay than they must: who forgets them has something to forget
// then. Up to as much again is added, so that one of many processes does it.
const forgetSlack = 5 * time.Minute

// sweep ends overdue calls and forgets old ones until ctx ends.
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
				queues[p] = &waiting{}
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

// names are the providers that have or may have a queue.
func (c *CallExpirer) names(ctx context.Context) ([]string, error) {
	served, err := c.Bus.QueueNames(ctx)
	if err != nil {
		return nil, err
	}
	names := append(served, c.Providers...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// waiting is what is known of the calls that wait for a provider which nobody serves. Each is read once.
type waiting struct {
	read  uint64 // all before were seen
	calls map[uint64]waitingCall
}

type waitingCall struct {
	account schemas.AccountID
	id      schemas.CallID
	due     time.Time
}

// sweepQueue ends the overdue calls of one provider. Where a worker takes calls it does that itself.
func (c *CallExpirer) sweepQueue(ctx context.Context, provider string, w *waiting) error {
	queue, err := c.Bus.QueueStats(ctx, provider)
	if err != nil || queue.Pulls > 0 || queue.Pending == 0 && queue.AckPending == 0 {
		*w = waiting{}
		return err
	}
	if w.calls == nil {
		w.calls = map[uint64]waitingCall{}
	}
	for p, err := range streams.CallsBetween(ctx, c.Bus, provider, max(w.read, queue.Floor.Seq+1), 1<<62) {
		if err != nil {
			return err
		}
		if w.read = p.Seq + 1; p.Unread { // a worker puts it to the dead letters
			continue
		}
		w.calls[p.Seq] = waitingCall{p.Call.Account, p.Call.ID, p.Call.Deadline.Add(overdue)}
	}
	for seq, next := range w.calls {
		switch {
		case seq <= queue.Floor.Seq:
			delete(w.calls, seq)
			continue
		case c.Bus.Now().Before(next.due):
			continue
		}
		call, err := streams.FindCall(ctx, c.Bus, next.account, next.id)
		ended := errors.Is(err, schemas.ErrNotFound)
		if err == nil {
			if c.Bus.Now().Sub(call.Deadline) < overdue { // another under the same id
				ended = true
			} else {
				ended, err = c.expire(ctx, call)
			}
		}
		if err != nil && !ended {
			return err
		}
		if ended {
			delete(w.calls, seq)
		}
	}
	return nil
}

// forget removes the calls that are a day old from the log, once each has its end: what was left while
// everything was off gets it here. Calls that have it are known by the floor of their queue, so that only
// the others are read.
func (c *CallExpirer) forget(ctx context.Context, names []string, slack time.Duration) error {
	first, before, err := streams.OldCalls(ctx, c.Bus, slack)
	if err != nil || before == 0 {
		return err
	}
	ended := 0
	for _, p := range append(slices.Clone(names), streams.ParkedCalls) {
		from := first
		if p != streams.ParkedCalls {
			queue, err := c.Bus.QueueStats(ctx, p)
			if err != nil {
				return err
			}
			from = max(first, queue.Floor.Seq+1)
		}
		for old, err := range streams.CallsBetween(ctx, c.Bus, p, from, before) {
			if err != nil {
				return err
			}
			if old.Unread {
				c.Log.Warn("call not readable, it stays until a worker has put it to the dead letters", "provider", p, "seq", old.Seq)
				before = min(before, old.Seq)
				break
			}
			done, fresh, err := c.endOld(ctx, old.Call, p == streams.ParkedCalls)
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
	if ended > 0 { // their clients may ask for them: the next look forgets them
		c.Log.Info("abandoned calls finished", "calls", ended)
		return nil
	}
	if before <= first {
		return nil
	}
	return streams.ForgetCalls(ctx, c.Bus, before)
}

// endOld gives a call that is a day old its end, if it has none, and reports whether it has one now and
// whether that is new. One that waits for a person is left to the approvals.
func (c *CallExpirer) endOld(ctx context.Context, call schemas.Call, isParked bool) (done, fresh bool, err error) {
	if isParked {
		done, err = c.parkedDone(ctx, call)
		return done, false, err
	}
	state, err := streams.ReadCallState(ctx, c.Bus, call)
	if err != nil || state.Result != nil {
		return err == nil, false, err
	}
	if c.Bus.Now().Sub(call.Deadline) <= overdue {
		return false, false, nil
	}
	done, err = c.expire(ctx, call)
	return done, done, err
}

// parkedDone reports whether a call that waits for a person has its end, and sees to it that one without a record of its approval gets
// one: the process that admitted it died before it could make it, or the record is lost. Its time to answer is over then, so the approval
// expirer ends it.
func (c *CallExpirer) parkedDone(ctx context.Context, call schemas.Call) (bool, error) {
	p, err := lifecycle.FindApproval(ctx, c.Bus, call.Account, call.Approval)
	if !errors.Is(err, schemas.ErrNotFound) {
		return err == nil && p.Value.Done, err
	}
	state, err := streams.ReadCallState(ctx, c.Bus, call)
	if err != nil || state.Accepted || state.Result != nil { // it went on or ended: its record has aged out since
		return err == nil, err
	}
	_, err = lifecycle.EnsureApproval(ctx, c.Bus, call)
	return false, err
}
