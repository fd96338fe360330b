package bucket

import (
	"context"

	"github.com/sandjet/sandjet/internal/membudget"
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

// Budget bounds the bytes of files that transfers of several buckets hold in memory. Transfers wait for room, and accounts take turns.
//
// A transfer takes the room for one part and releases it before it takes the next, and waits for no other room meanwhile. So a transfer
// that holds room never depends on those that wait. Its methods are safe for concurrent use.
type Budget struct{ room *membudget.Budget }

// NewBudget returns a budget of all bytes, of which one account may hold at most each bytes (at least one part).
func NewBudget(all, each int64) *Budget {
	each = max(each, PartSize)
	return &Budget{membudget.New(max(all, each), each)}
}

// DefaultBudget returns a budget for all buckets of a process.
func DefaultBudget() *Budget { return NewBudget(TransferBytes, TransferBytesOfAccount) }

// take waits for room for n bytes of an account, at most one part. The caller calls done to release it. Code: unavailable, ctx has ended
// first.
func (b *Budget) take(ctx context.Context, account string, n int64) (done func(), err error) {
	room, err := b.room.Take(ctx, account, min(max(n, leastHeld), PartSize))
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "s3", "other transfers have the memory for files of S3: try later", err)
	}
	return room.Release, nil
}
