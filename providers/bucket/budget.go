package bucket

import (
	"context"
	"slices"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// TransferBytes is how many bytes of files all buckets of one [DefaultBudget] hold in memory at the same time, on their way in or out.
	TransferBytes = 128 << 20
	// TransferBytesOfAccount is how many of them are one account's: an endpoint that stalls holds no more than that.
	TransferBytesOfAccount = TransferBytes / 4
	// leastHeld is what the smallest file counts for: its request, its answer and what reads and writes it.
	leastHeld = 64 << 10
)

// Budget bounds the bytes of files that transfers of several buckets hold in memory. Who finds no room waits; accounts take turns.
//
// A transfer takes what one part needs, gives it back before it takes the next part's, and waits for nothing else of a budget meanwhile.
// So a transfer that holds something ends without help of those that wait. Its methods may be called from many goroutines.
type Budget struct {
	each int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64     // by account; those that hold nothing are not in it
	waiting map[string][]*taking // by account, the oldest first; those of whom none waits are not in it
	turns   []string             // the accounts in waiting; the first has the next turn
}

// taking is a wait for room. Granted is closed when it has it.
type taking struct {
	bytes   int64
	granted chan struct{}
}

// NewBudget returns a budget of all bytes, of which one account holds at most each, a part at least.
func NewBudget(all, each int64) *Budget {
	each = max(each, PartSize)
	return &Budget{each: each, free: max(all, each), held: map[string]int64{}, waiting: map[string][]*taking{}}
}

// DefaultBudget is one for the buckets of a process.
func DefaultBudget() *Budget { return NewBudget(TransferBytes, TransferBytesOfAccount) }

// take waits for room for n bytes of an account, a part at most. The caller calls done once. Code: unavailable, when ctx has ended first.
func (b *Budget) take(ctx context.Context, account string, n int64) (done func(), err error) {
	t := &taking{min(max(n, leastHeld), PartSize), make(chan struct{})}
	b.mu.Lock()
	if len(b.waiting[account]) == 0 {
		b.turns = append(b.turns, account)
	}
	b.waiting[account] = append(b.waiting[account], t)
	b.grant()
	b.mu.Unlock()
	select {
	case <-t.granted:
		return func() { b.giveBack(account, t.bytes) }, nil
	case <-ctx.Done():
		b.leave(account, t)
		return nil, schemas.Wrap(schemas.Unavailable, "s3", "other transfers have the memory for files of S3: try later", context.Cause(ctx))
	}
}

// giveBack ends the hold of an account on n bytes.
func (b *Budget) giveBack(account string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.held[account] -= n; b.held[account] == 0 {
		delete(b.held, account)
	}
	b.grant()
}

// leave ends a wait, or a hold that was granted when its caller had gone.
func (b *Budget) leave(account string, t *taking) {
	b.mu.Lock()
	i := slices.Index(b.waiting[account], t)
	if i >= 0 {
		b.remove(account, i)
		b.grant() // it may have been the one that the others waited behind
	}
	b.mu.Unlock()
	if i < 0 {
		b.giveBack(account, t.bytes)
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
// not fit is waited for, so that small files do not pass large ones for ever. b.mu is held.
func (b *Budget) grant() {
	for {
		i := slices.IndexFunc(b.turns, func(a string) bool { return b.held[a]+b.waiting[a][0].bytes <= b.each })
		if i < 0 {
			return
		}
		account := b.turns[i]
		t := b.waiting[account][0]
		if t.bytes > b.free {
			return
		}
		b.free -= t.bytes
		b.held[account] += t.bytes
		b.turns = append(slices.Delete(b.turns, i, i+1), account)
		b.remove(account, 0)
		close(t.granted)
	}
}
