// Package membudget limits the memory of work for many accounts: work waits until enough bytes are free, and accounts take turns.
package membudget

import (
	"context"
	"slices"
	"sync"
)

// Budget is a number of bytes that is shared. Work that has taken some of it must not wait for more, else two could wait for each other
// for ever. It is safe for concurrent use.
type Budget struct {
	each int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64   // by account, without zeros
	waiting map[string][]*Room // by account, the oldest first; only accounts that wait
	turns   []string           // the accounts in waiting, in the order of their turns
}

// New returns a budget of all bytes, of which one account may take at most each.
func New(all, each int64) *Budget {
	return &Budget{each: min(each, all), free: all, held: map[string]int64{}, waiting: map[string][]*Room{}}
}

// Room is a number of bytes that was taken of a budget.
type Room struct {
	budget  *Budget
	account string
	bytes   int64
	granted chan struct{} // closed when the bytes are taken
}

// Take waits until n bytes are free for an account, and takes them. If n is more than one account may take, it takes that maximum. The
// caller releases the Room. The error is ctx's cause.
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

// Shrink releases all but n bytes.
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

// Release releases all bytes. It may be called again, and on a nil Room.
func (r *Room) Release() { r.Shrink(0) }

// Held returns how many bytes an account has taken.
func (b *Budget) Held(account string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[account]
}

// Free returns how many bytes are free.
func (b *Budget) Free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// leave ends a wait. If the bytes were taken just when the caller stopped waiting, it releases them.
func (b *Budget) leave(r *Room) {
	b.mu.Lock()
	i := slices.Index(b.waiting[r.account], r)
	if i >= 0 {
		b.remove(r.account, i)
		b.grant() // others may have waited behind this one
	}
	b.mu.Unlock()
	if i < 0 {
		r.Release()
	}
}

// remove removes a wait from its queue. The caller holds b.mu.
func (b *Budget) remove(account string, i int) {
	if b.waiting[account] = slices.Delete(b.waiting[account], i, i+1); len(b.waiting[account]) == 0 {
		delete(b.waiting, account)
		b.turns = slices.DeleteFunc(b.turns, func(a string) bool { return a == account })
	}
}

// grant gives bytes to waits in the order of the accounts' turns. An account that has its maximum is skipped and keeps its turn. If the
// next wait does not fit, all others wait with it, so that small ones do not delay a large one for ever. The caller holds b.mu.
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
