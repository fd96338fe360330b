// Package quota counts what accounts hold of one gateway at the same time, such as sockets, and refuses
// more than there may be. It counts for this process alone.
package quota

import (
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Full says which ceiling a refusal is about.
type Full int

// The answers of [Ledger.Take] and [Place.Grow].
const (
	Free    Full = iota // it was taken
	Account             // the account has as many as one may
	All                 // all accounts together do
)

// Ledger counts slots by account. It keeps no entry for accounts without slots. It is safe for concurrent use and never blocks for long.
type Ledger struct {
	each, all int64

	mu    sync.Mutex
	held  map[schemas.AccountID]int64
	total int64
}

// NewLedger returns a ledger of at most each places for an account and all of all accounts together; less
// than 1 means no ceiling.
func NewLedger(each, all int64) *Ledger {
	return &Ledger{each: each, all: all, held: map[schemas.AccountID]int64{}}
}

// Place is what was taken. It is safe for concurrent use.
type Place struct {
	account schemas.AccountID
	ledger  *Ledger
	n       int64 // guarded by the ledger; 0 once it was released
}

// Fit is n, or the most that an account may ever hold at once where that is less.
func (l *Ledger) Fit(n int64) int64 {
	for _, most := range []int64{l.each, l.all} {
		if most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// Take takes a place for the account, if both ceilings leave one.
func (l *Ledger) Take(a schemas.AccountID) (*Place, Full) { return l.TakeMany(a, 1) }

// TakeMany takes n places at once, or none.
func (l *Ledger) TakeMany(a schemas.AccountID, n int64) (*Place, Full) {
	p := &Place{account: a, ledger: l}
	if full := p.Grow(n); full != Free {
		return nil, full
	}
	return p, Free
}

// Grow takes n places more, or none.
func (p *Place) Grow(n int64) Full {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.each > 0 && l.held[p.account]+n > l.each:
		return Account
	case l.all > 0 && l.total+n > l.all:
		return All
	}
	l.held[p.account] += n
	l.total += n
	p.n += n
	return Free
}

// Release returns what was taken. Only the first call does anything; the nil Place has nothing to give.
func (p *Place) Release() {
	if p == nil {
		return
	}
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.n == 0 {
		return
	}
	l.total -= p.n
	if l.held[p.account] -= p.n; l.held[p.account] == 0 {
		delete(l.held, p.account)
	}
	p.n = 0
}

// Held is how many places an account holds at this moment.
func (l *Ledger) Held(a schemas.AccountID) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[a]
}

// Total is how many places all accounts hold at this moment.
func (l *Ledger) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
