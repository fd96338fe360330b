package carry_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// TestReserving: an attempt that meets changes by others is repeated, eight attempts at most; other errors are final, and so is the end of
// the context, also while another caller holds the lock.
func TestReserving(t *testing.T) {
	t.Parallel()
	conflict := schemas.OpErrorf(schemas.Conflict, "reserve", "changed")
	denied := schemas.OpErrorf(schemas.Denied, "reserve", "no")
	for name, c := range map[string]struct {
		key      string
		refused  error
		fail     []error // of the attempts, one after another; then they succeed
		held     bool
		closed   bool
		attempts int
		code     schemas.Code
		ended    bool // it returns the context's error
	}{
		"at once":                 {key: "k", attempts: 1},
		"changed by others twice": {key: "k", fail: []error{conflict, schemas.OpErrorf(schemas.NotFound, "reserve", "gone")}, attempts: 3},
		"changed again and again": {key: "k", fail: []error{conflict, conflict, conflict, conflict, conflict, conflict, conflict, conflict},
			attempts: 8, code: schemas.Unavailable},
		"refused by the service":    {key: "k", fail: []error{denied}, attempts: 1, code: schemas.Denied},
		"no key":                    {code: schemas.Invalid},
		"more than the service has": {key: "k", refused: schemas.OpErrorf(schemas.Unsupported, "run", "no"), code: schemas.Unsupported},
		"the provider is closed":    {key: "k", closed: true, code: schemas.Unavailable},
		"another caller holds it":   {key: "k", held: true, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var work inflight.Work
				var lock sync.Mutex
				if c.closed {
					work.Close()
				}
				if c.held {
					lock.Lock()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 1e12)
				defer cancel()
				attempts := 0
				ref, err := carry.Reserving{
					Key: c.key, Refuse: func() error { return c.refused }, Work: &work, Lock: &lock,
					Attempt: func(context.Context) (schemas.Ref, error) {
						if attempts++; attempts <= len(c.fail) {
							return schemas.Ref{}, c.fail[attempts-1]
						}
						return schemas.Ref{ID: "box"}, nil
					},
				}.Run(ctx)
				switch {
				case attempts != c.attempts:
					t.Errorf("%d attempts, want %d", attempts, c.attempts)
				case c.ended != errors.Is(err, context.DeadlineExceeded):
					t.Errorf("the error is %v", err)
				case !c.ended && schemas.CodeOf(err) != c.code:
					t.Errorf("the code is %q, want %q: %v", schemas.CodeOf(err), c.code, err)
				case err == nil && ref.ID != "box":
					t.Errorf("the sandbox is %q", ref.ID)
				}
				if !c.held && !lock.TryLock() {
					t.Error("the lock is still held")
				}
			})
		})
	}
}
