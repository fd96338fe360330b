package streams

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
)

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
				if err := b.topology.Refresh(ctx); err != nil {
					b.log.Debug("number of replicas unknown", "error", err)
				}
			}
			continue
		case <-drop:
		}
		b.reader.ForgetEpochs()
		b.payloads.Forget()
		b.clock.AskSoon()
		for try := 1; ctx.Err() == nil; try++ {
			err := b.topology.Restore(ctx)
			if err == nil {
				break
			}
			b.log.Warn("topology not checked yet", "error", err)
			wait.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}.Sleep(ctx, try)
		}
	}
}
