package direct

import (
	"context"
	"errors"
)

// Feed is the live end of one subject. It is for one goroutine.
type Feed interface {
	// Next returns the next live message, and the sequence of the message before it on its subject. It blocks until there is one or ctx ends.
	// [ErrBehind]: some may be missing.
	Next(ctx context.Context) (m Message, prev uint64, err error)
	Close()
}

// ErrBehind is the error of a [Feed] that may have missed messages: what was stored since the last one must be read from the log. It is
// returned now and then for safety, too.
var ErrBehind = errors.New("live messages may be missing")
