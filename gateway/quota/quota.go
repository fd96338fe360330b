// Package quota counts what accounts hold of one gateway at the same time, such as sockets, and refuses
// more than there may be. It counts for this process alone.
package quota

import (
	"sync"
	"sync/atomic"

	"github.com/sandjet/sandjet/schemas"
)

// Full says which ceiling a refusal is about.
type Full int

// The answers of [Ledger.Take].
const (
	Free    Full = iota // it was taken
	Account             // the account has as many as one may
	All                 // all accounts together do
)

// Ledger counts places by account. It holds nothing of accounts that hold nothing. It is safe for
// concurrent use and blocks nobody for long.
type Ledger struct {
	each, all int

	mu    sync.Mutex
	held  map[schemas.AccountID]int
	total int
}

// NewLedger returns a ledger of at most each places for an account and all of all accounts together; less
// than 1 means no ceiling.
func NewLedger(each, all int) *Ledger {
	return &Ledger{each: each, all: all, held: map[schemas.AccountID]int{}}
}

// Place is a place that was taken. It is safe for concurrent use.
type Place struct {
	account schemas.AccountID
	ledger  atomic.Pointer[Ledger] // nil once it was given back
}

// Take takes a place for the account, if both ceilings leave one.
func (l *Ledger) Take(a schemas.AccountID) (*Place, Full) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.each > 0 && l.held[a] >= l.each:
		return nil, Account
	case l.all > 0 && l.total >= l.all:
		return nil, All
	}
	l.held[a]++
	l.total++
	p := &Place{account: a}
	p.ledger.Store(l)
	return p, Free
}

// Release gives the place back. Only the first call does anything; the nil Place has nothing to give.
func (p *Place) Release() {
	if p == nil {
		return
	}
	l := p.ledger.Swap(nil)
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.held[p.account]--; l.held[p.account] == 0 {
		delete(l.held, p.account)
	}
}

// Held is how many places an account holds at this moment.
func (l *Ledger) Held(a schemas.AccountID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[a]
}

// Total is how many places all accounts hold at this moment.
func (l *Ledger) Total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
