package workers

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
)

const (
	capTTL    = 10 * time.Second
	capRenew  = capTTL / 3
	awayEvery = time.Minute // how often it is logged that the limiter is unreachable
)

// accountSlots holds the slots of the calls in flight and keeps their leases alive together.
type accountSlots struct {
	limiter limits.Limiter
	most    int // per account; 0: no cap
	log     *slog.Logger

	mu     sync.Mutex
	held   map[string]limits.Lease // by the call's EventID
	logged time.Time               // when it was last logged that the limiter is unreachable
}

// take gets a slot for a call. Codes: exhausted, and unavailable while the limiter is unreachable: the call
// waits then, as it does at its cap.
func (c *accountSlots) take(ctx context.Context, call schemas.Call) error {
	if c.most <= 0 || c.limiter == nil {
		return nil
	}
	id := call.EventID()
	lease, err := c.limiter.Acquire(ctx, "calls."+string(call.Account), id, c.most, capTTL)
	switch {
	case err == nil:
		c.mu.Lock()
		c.held[id] = lease
		c.mu.Unlock()
		return nil
	case schemas.CodeOf(err) == schemas.Exhausted:
		return err
	}
	c.logAway(ctx, err)
	return schemas.Wrap(schemas.Unavailable, "caps", "the limiter is away: the call waits for it", err)
}

// logAway logs that the limiter is unreachable, once in a while rather than for each waiting call.
func (c *accountSlots) logAway(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.logged) > awayEvery {
		c.logged = now
		c.log.Warn("limiter not reachable, calls under caps wait", "error", err)
	}
}

// give releases a call's slot.
func (c *accountSlots) give(ctx context.Context, call schemas.Call) {
	id := call.EventID()
	c.mu.Lock()
	lease, ok := c.held[id]
	delete(c.held, id)
	c.mu.Unlock()
	if ok {
		c.release(ctx, lease)
	}
}

func (c *accountSlots) release(ctx context.Context, lease limits.Lease) {
	if err := c.limiter.Release(context.WithoutCancel(ctx), lease); err != nil {
		c.log.Warn("slot of a call not released, it expires", "error", err, "after", capTTL)
	}
}

// keep renews the slots in use until ctx ends.
func (c *accountSlots) keep(ctx context.Context) {
	tick := time.NewTicker(capRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.renew(ctx)
	}
}

// renew renews the slots of the calls in flight. A slot that the limiter has lost is taken again regardless of the cap, since the call is
// running and must be counted. That is how a limiter that lost its store recovers.
func (c *accountSlots) renew(ctx context.Context) {
	c.mu.Lock()
	leases := slices.Collect(maps.Values(c.held))
	c.mu.Unlock()
	if len(leases) == 0 {
		return
	}
	lost, err := c.limiter.Renew(ctx, capTTL, leases...)
	if err != nil {
		c.logAway(ctx, err)
	}
	for _, l := range lost {
		again, err := c.limiter.Acquire(ctx, l.Key, l.Holder, limits.Regardless, capTTL)
		if err != nil {
			c.logAway(ctx, err)
			continue
		}
		c.mu.Lock()
		held, ok := c.held[l.Holder]
		if ok = ok && held.Token == l.Token; ok {
			c.held[l.Holder] = again
		}
		c.mu.Unlock()
		if !ok { // the call has ended meanwhile
			c.release(ctx, again)
			continue
		}
		c.log.Warn("slot of a call was lost, taking it again", "key", l.Key, "call", l.Holder)
	}
}
