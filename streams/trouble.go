package streams

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// trouble remembers that the log could not write, until it writes the same kind of message again. The zero value is ready. It is
// safe for concurrent use.
type trouble struct {
	last atomic.Pointer[failedWrite] // nil: none
}

type failedWrite struct {
	kind string
	err  error
	at   time.Time
}

// troubleLasts is how long a failed write counts, where none is tried that would show that it works again.
const troubleLasts = time.Minute

// wrote notes that a message was written.
func (t *trouble) wrote(subject string) {
	if last := t.last.Load(); last != nil && last.kind == kindOf(subject) {
		t.last.CompareAndSwap(last, nil)
	}
}

// failed notes that one was not. Unanswered says that the log had all the time that it may need: a server whose store has failed
// answers nothing.
func (t *trouble) failed(subject string, err error, unanswered bool) {
	if unanswered || cannotWrite(err) {
		t.last.Store(&failedWrite{kindOf(subject), err, time.Now()})
	}
}

// now returns why the log cannot write at a time; nil when there is no reason to think so.
func (t *trouble) now(at time.Time) error {
	last := t.last.Load()
	if last == nil || at.Sub(last.at) > troubleLasts {
		return nil
	}
	return last.err
}

// kindOf is the subject without what names accounts and things: one stream has all of a kind.
func kindOf(subject string) string {
	const words = 2
	parts := strings.SplitN(subject, ".", words+1)
	return strings.Join(parts[:min(len(parts), words)], ".")
}

// cannotWrite reports whether err says that the log has no room or that its store has failed, and not what one message did wrong.
func cannotWrite(err error) bool {
	return natserr.Is(err, natserr.InsufficientResources, natserr.StorageExceeded, natserr.MemoryExceeded, natserr.AccountExceeded) ||
		natserr.Is(err, natserr.StoreFailed) && schemas.CodeOf(natserr.Coded("", err)) == schemas.Unavailable
}
