// Package quota limits what accounts use of one gateway at the same time, such as sockets. It counts for this process only.
package quota

import (
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Full says which limit was reached.
type Full int

// The answers of [Ledger.Take] and [Place.Grow].
const (
	Free    Full = iota // it was taken; no limit was reached
	Account             // the limit of the account was reached
	All                 // the limit of all accounts was reached
)

// Ledger counts slots by account. It keeps no entry for accounts without slots. It is safe for concurrent use and never blocks for long.
type Ledger struct {
	each, all int64

	mu    sync.Mutex
	held  map[schemas.AccountID]int64
	total int64
}

// NewLedger returns a ledger of at most each slots per account and all slots in total; less than 1 means no limit.
func NewLedger(each, all int64) *Ledger {
	return &Ledger{each: each, all: all, held: map[schemas.AccountID]int64{}}
}

// Place is a number of slots taken for an account. It is safe for concurrent use.
type Place struct {
	account schemas.AccountID
	ledger  *Ledger
	n       int64 // guarded by the ledger; 0 once it was released
}

// Fit returns n, or the largest number of slots that an account may hold if that is less.
func (l *Ledger) Fit(n int64) int64 {
	for _, most := range []int64{l.each, l.all} {
		if most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// Take takes one slot for the account. If none is free it returns nil and the limit that was reached.
func (l *Ledger) Take(a schemas.AccountID) (*Place, Full) { return l.TakeMany(a, 1) }

// TakeMany takes n slots, or none: then it returns nil and the limit that was reached.
func (l *Ledger) TakeMany(a schemas.AccountID, n int64) (*Place, Full) {
	p := &Place{account: a, ledger: l}
	if full := p.Grow(n); full != Free {
		return nil, full
	}
	return p, Free
}

// Grow takes n more slots, or none: then it returns the limit that was reached.
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

// Release returns all slots of the Place. Only the first call has an effect. A nil Place is allowed.
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

// Held returns how many slots an account holds.
func (l *Ledger) Held(a schemas.AccountID) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[a]
}

// Total returns how many slots all accounts hold.
func (l *Ledger) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
