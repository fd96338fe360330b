package direct

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Persist repeats a request that fails because the log is unavailable, until ctx ends. It blocks meanwhile.
func Persist[T any](ctx context.Context, log *slog.Logger, do func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := do()
		if err == nil || ctx.Err() != nil || schemas.CodeOf(err) != schemas.Unavailable {
			return v, err
		}
		log.Debug("log unreachable, waiting", "error", err)
		if !(wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second}).Sleep(ctx, try) {
			return v, ctx.Err()
		}
	}
}
