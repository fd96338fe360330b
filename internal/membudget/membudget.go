// Package membudget bounds the bytes that work for many accounts holds in memory: who finds no room waits, and accounts take turns.
package membudget

import (
	"context"
	"slices"
	"sync"
)

// Budget is a number of bytes that is shared. What holds some of it waits for nothing more of it meanwhile, so that it ends without help
// of those that wait. Its methods may be called from many goroutines.
type Budget struct {
	each int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64   // by account; those that hold nothing are not in it
	waiting map[string][]*Room // by account, the oldest first; those of whom none waits are not in it
	turns   []string           // the accounts in waiting; the first has the next turn
}

// New returns a budget of all bytes, of which one account holds at most each.
func New(all, each int64) *Budget {
	return &Budget{each: min(each, all), free: all, held: map[string]int64{}, waiting: map[string][]*Room{}}
}

// Room is what was taken of a budget.
type Room struct {
	budget  *Budget
	account string
	bytes   int64
	granted chan struct{} // closed when it has its bytes
}

// Take waits for room for n bytes of an account; for more than one may hold, it takes all of that. The caller releases it. The error is
// ctx's cause.
func (b *Budget) Take(ctx context.Context, account string, n int64) (*Room, error) {
	r := &Room{b, account, min(max(n, 0), b.each), make(chan struct{})}
	b.mu.Lock()
	if len(b.waiting[account]) == 0 {
		b.turns = append(b.turns, account)
	}
	b.waiting[account] = append(b.waiting[account], r)
	b.grant()
	b.mu.Unlock()
	select {
	case <-r.granted:
		return r, nil
	case <-ctx.Done():
		b.leave(r)
		return nil, context.Cause(ctx)
	}
}

// Shrink releases what is above n bytes.
func (r *Room) Shrink(n int64) {
	if r == nil {
		return
	}
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	back := r.bytes - max(n, 0)
	if back <= 0 {
		return
	}
	r.bytes -= back
	b.free += back
	if b.held[r.account] -= back; b.held[r.account] == 0 {
		delete(b.held, r.account)
	}
	b.grant()
}

// Release gives everything back. It may be called again; the nil Room has nothing to give.
func (r *Room) Release() { r.Shrink(0) }

// Held is how many bytes an account holds.
func (b *Budget) Held(account string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[account]
}

// Free is how many bytes nothing holds.
func (b *Budget) Free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// leave ends a wait, or a hold that was granted when its caller had gone.
func (b *Budget) leave(r *Room) {
	b.mu.Lock()
	i := slices.Index(b.waiting[r.account], r)
	if i >= 0 {
		b.remove(r.account, i)
		b.grant() // it may have been the one that the others waited behind
	}
	b.mu.Unlock()
	if i < 0 {
		r.Release()
	}
}

// remove takes a wait from its queue. b.mu is held.
func (b *Budget) remove(account string, i int) {
	if b.waiting[account] = slices.Delete(b.waiting[account], i, i+1); len(b.waiting[account]) == 0 {
		delete(b.waiting, account)
		b.turns = slices.DeleteFunc(b.turns, func(a string) bool { return a == account })
	}
}

// grant gives room to those whose turn it is. An account that has all it may have is passed over and keeps its turn; what is next and does
// not fit is waited for, so that what is small does not pass what is large for ever. b.mu is held.
func (b *Budget) grant() {
	for {
		i := slices.IndexFunc(b.turns, func(a string) bool { return b.held[a]+b.waiting[a][0].bytes <= b.each })
		if i < 0 {
			return
		}
		account := b.turns[i]
		r := b.waiting[account][0]
		if r.bytes > b.free {
			return
		}
		b.free -= r.bytes
		if r.bytes > 0 {
			b.held[account] += r.bytes
		}
		b.turns = append(slices.Delete(b.turns, i, i+1), account)
		b.remove(account, 0)
		close(r.granted)
	}
}
