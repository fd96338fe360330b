package streams

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
)

// When a server starts again, all processes come at once. They spread themselves over a moment, which is short
// beside the lives of leases: a worker that came back after [LeaseTTL] would be taken for dead.
const (
	reconnectJitter = 150 * time.Millisecond
	reconnectSpread = time.Second
)

// reconnectDelay is how long to wait before an attempt to connect again. The first comes soon, as most losses concern
// one connection only.
func (b *Bus) reconnectDelay(attempt int) time.Duration {
	most := reconnectJitter
	if b.options.Server == nil { // others come too
		most = min(reconnectJitter<<min(max(attempt-1, 0), 3), reconnectSpread) // it has the whole spread then
	}
	return reconnectAfter + wait.Upto(most)
}

// spread waits for a random time, which spreads the requests of all processes after a server was unavailable.
func (b *Bus) spread(ctx context.Context) {
	if b.options.Server == nil {
		wait.Sleep(ctx, wait.Upto(reconnectSpread))
	}
}

// revive checks the topology after each reconnection: a server that had the log in memory only, or was set up afresh, has lost it.
func (b *Bus) revive(ctx context.Context) {
	const every = 30 * time.Second
	look := time.NewTicker(every)
	defer look.Stop()
	for {
		drop := b.drops.Next()
		select {
		case <-ctx.Done():
			return
		case <-look.C: // an operator may have changed the number of copies, which decides how to read
			if b.publish.ConnectedClusterName() != "" && b.publish.IsConnected() {
				if err := b.topology.refresh(ctx); err != nil {
					b.log.Debug("number of replicas unknown", "error", err)
				}
			}
			continue
		case <-drop:
		}
		b.reader.forgetEpochs()
		b.payloads.stores.forget()
		b.clock.AskSoon()
		for try := 1; ctx.Err() == nil; try++ {
			err := b.restore(ctx)
			if err == nil {
				break
			}
			b.log.Warn("topology not checked yet", "error", err)
			wait.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}.Sleep(ctx, try)
		}
	}
}

// restore makes the topology again if something of it is missing, which two requests show.
func (b *Bus) restore(ctx context.Context) error {
	whole, err := b.topology.intact(ctx)
	if err != nil || whole {
		return err
	}
	return b.topology.ensure(ctx)
}
