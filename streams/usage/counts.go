package usage

import (
	"context"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// countKind is which accounts a goroutine counts. There is one of each, so that a count of an account that keeps very much, which takes
// minutes, holds up those of others by nothing.
type countKind int

const (
	largeCounts countKind = iota // any account, first those of which a count takes long
	quickCounts                  // only accounts of which a count is quick
)

const (
	quickWithin   = 5 * time.Second // that a quick count takes; one that takes longer is a large one from then on
	quickMessages = 100_000         // of an account of which a count is quick
	mostCounts    = 1024            // accounts of which a count is wanted at the same time; others ask again
)

// wantedCount is an account of which a count is wanted.
type wantedCount struct {
	account schemas.AccountID
	waits   bool // a request waits for it
	large   bool // it may take long
}

// nextCount is the place of the count that comes next for a kind, -1 for none: first those that a request waits for. It is pure.
func nextCount(wanted []wantedCount, kind countKind) int {
	best := -1
	for i, w := range wanted {
		switch {
		case kind == quickCounts && w.large:
		case best < 0, before(w, wanted[best]):
			best = i
		}
	}
	return best
}

// before reports whether one count comes before another that was wanted earlier. The large ones come first where they are counted at
// all: nothing else counts them.
func before(w, earlier wantedCount) bool {
	if w.large != earlier.large {
		return w.large
	}
	return w.waits && !earlier.waits
}

// large reports whether a count of an account may take long. The lock is held.
func (e *metered) large() bool {
	messages := int64(0)
	for _, kept := range e.sum() {
		messages += kept.Messages
	}
	return e.slow || e.record.Took > quickWithin || messages > quickMessages
}

// ask wants an account counted if that is due, or its record read again. Waits: a request waits for it.
func (m *Meter) ask(a schemas.AccountID, waits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	if e.asked {
		if i := slices.IndexFunc(m.due, func(w wantedCount) bool { return w.account == a }); i >= 0 && waits {
			m.due[i].waits = true
		}
		return
	}
	if len(m.due) == mostCounts {
		return
	}
	e.asked = true
	m.due = append(m.due, wantedCount{account: a, waits: waits, large: e.large()})
	m.wanted.Notify()
}

// nextDue takes the next count for a kind, or returns what is notified when there may be one.
func (m *Meter) nextDue(kind countKind) (w wantedCount, ok bool, wanted <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := nextCount(m.due, kind)
	if i < 0 {
		return w, false, m.wanted.Next()
	}
	w = m.due[i]
	m.due = slices.Delete(m.due, i, i+1)
	return w, true, nil
}

// runCounts counts accounts of which that is wanted, one after the other, until ctx ends.
func (m *Meter) runCounts(ctx context.Context, kind countKind) {
	for ctx.Err() == nil {
		w, ok, wanted := m.nextDue(kind)
		if !ok {
			select {
			case <-ctx.Done():
			case <-wanted:
			}
			continue
		}
		m.countOne(ctx, w, kind)
	}
}

// countOne counts an account. One of which a count is not quick after all is left to the other goroutine.
func (m *Meter) countOne(ctx context.Context, w wantedCount, kind countKind) {
	within := ctx
	if kind == quickCounts {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, quickWithin)
		defer cancel()
	}
	err := m.count(within, w.account)
	m.mu.Lock()
	e := m.account(w.account)
	e.slow = kind == quickCounts && err != nil && within.Err() != nil
	if e.slow {
		w.large = true
		m.due = append(m.due, w)
		m.mu.Unlock()
		m.wanted.Notify()
		return
	}
	e.asked = false
	if err != nil {
		e.failed = time.Now()
	}
	m.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		m.o.Logger.Warn("account usage not counted, retrying", "account", w.account, "error", err)
	}
	e.counted.Notify()
}

// countDue counts an account if that is due still: another process may have done so a moment ago.
func (m *Meter) countDue(ctx context.Context, a schemas.AccountID) error {
	m.reread(ctx, a)
	if _, _, due := m.used(a, Calls); !due {
		return nil
	}
	return m.recount(ctx, a)
}
