package lambda

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// endWait is how long EndRun waits for an end that is near.
	endWait = 25 * time.Second
	// mostKnown is how many runs a worker remembers.
	mostKnown = 10_000
)

// over records the time by which a run has ended at the latest.
func (p *Provider) over(id string, at time.Time) {
	if id == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) >= mostKnown { // who asks for one that is forgotten waits longer, no more
		clear(p.runs)
	}
	p.runs[id] = at
}

// EndRun waits for the end of a run, because Lambda cannot end one on demand. For a run of this process the latest end is known; for
// another process's run it is not, and the caller must wait for [providers.RunLimit].
func (p *Provider) EndRun(ctx context.Context, _ string, _ schemas.AccountID, id string) error {
	p.mu.Lock()
	at, known := p.runs[id]
	p.mu.Unlock()
	left := time.Until(at)
	switch {
	case !known:
		return schemas.OpErrorf(schemas.Unavailable, "end run",
			"a command on Lambda cannot be ended, and another worker has begun it: it ends at its time limit")
	case left > endWait || !wait.Sleep(ctx, max(left, 0)):
		return schemas.OpErrorf(schemas.Unavailable, "end run", "a command on Lambda cannot be ended: it ends at its time limit")
	}
	return nil
}
