package providers

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// DefaultGrace is the time between SIGTERM and SIGKILL if a command sets none.
const DefaultGrace = 2 * time.Second

// ErrTimeout is the error of [Await] for a command whose time limit has passed.
var ErrTimeout = errors.New("timeout")

// WithDefaults returns the command with the defaults for Timeout and Grace in place of zero.
func (c Command) WithDefaults() Command {
	if c.Timeout <= 0 {
		c.Timeout = schemas.DefaultTimeout
	}
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	return c
}

// Await blocks until ended is closed, and then returns nil, or until there is a reason to kill the command, which it returns: the error of
// ctx, or [ErrTimeout] after cmd.Timeout. Before it returns such a reason it calls term, which sends SIGTERM, and waits up to cmd.Grace
// for the command to end by itself; if term fails it does not wait. Killing is up to the caller. Provider packages use it to fulfil the
// contract of [Provider.Run] in the same way.
func Await(ctx context.Context, cmd Command, ended <-chan struct{}, term func() error) error {
	cmd = cmd.WithDefaults()
	clock := time.NewTimer(cmd.Timeout)
	defer clock.Stop()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-clock.C:
	}
	if term() == nil {
		clock.Reset(cmd.Grace)
		select {
		case <-ended:
		case <-ctx.Done():
		case <-clock.C:
		}
	}
	return ErrTimeout
}
