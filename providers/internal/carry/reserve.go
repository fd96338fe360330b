package carry

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// reserveAttempts is how often a persistent sandbox is searched for or made while others do the same.
	reserveAttempts = 8
	// lockEvery is how often a caller tries to take a lock that another caller of this worker holds.
	lockEvery = 20 * time.Millisecond
)

// Reserving is the reservation of a persistent sandbox. All fields are required.
type Reserving struct {
	Key string
	// Refuse returns an error for the first requirement that no sandbox of the service can meet.
	Refuse func() error
	Work   *inflight.Work
	Lock   *sync.Mutex // shared by this worker's callers who want the same sandbox: one is enough, the others find what it has made
	// Attempt searches for the sandbox and makes or starts it if necessary. Codes not_found and conflict: others have changed it meanwhile;
	// it is called again.
	Attempt func(context.Context) (schemas.Ref, error)
}

// Run reserves the sandbox. It blocks until there is one or ctx ends. Codes: invalid (no key), those of Refuse and Attempt, and unavailable
// when others keep changing the sandbox.
func (r Reserving) Run(ctx context.Context) (schemas.Ref, error) {
	if err := ctx.Err(); err != nil {
		return schemas.Ref{}, err
	}
	if r.Key == "" {
		return schemas.Ref{}, schemas.Invalidf("key", "must not be empty")
	}
	if err := r.Refuse(); err != nil {
		return schemas.Ref{}, err
	}
	if err := r.Work.Begin(); err != nil {
		return schemas.Ref{}, err
	}
	defer r.Work.Done()
	for !r.Lock.TryLock() { // its holder may wait long for an image
		if !wait.Sleep(ctx, lockEvery) {
			return schemas.Ref{}, ctx.Err()
		}
	}
	defer r.Lock.Unlock()
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for n := 1; ; n++ {
		ref, err := r.Attempt(ctx)
		switch code := schemas.CodeOf(err); {
		case err == nil:
			return ref, nil
		case ctx.Err() != nil:
			return schemas.Ref{}, ctx.Err()
		case code != schemas.NotFound && code != schemas.Conflict:
			return schemas.Ref{}, err
		case n == reserveAttempts:
			return schemas.Ref{}, schemas.Wrap(schemas.Unavailable, "reserve", "the sandbox is being changed by others", err)
		case !again.Sleep(ctx, n):
			return schemas.Ref{}, ctx.Err()
		}
	}
}
