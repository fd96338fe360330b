package streams

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

const (
	mostLooked      = 10_000  // records that one [Newest] reads
	mostListed      = 4 << 20 // bytes of those that it returns
	concurrentLists = 4       // of this process; one account has half of them
)

// Newest reads the records whose keys match a pattern, the newest first, which their ids sort by, until want has accepted limit of them.
// more reports that there are older ones, wanted or not read. It reads at most 10,000, 16 at a time, and returns at most 4 MiB, but always
// one. Few such reads run at the same time, accounts in turn. Code: unavailable.
func Newest[T any](ctx context.Context, bucket *Bucket[T], a schemas.AccountID, keys string, want func(T) bool, limit int) (
	list []T, more bool, err error,
) {
	const atATime = 16
	if err := bucket.bus.lists.Acquire(ctx, a); err != nil {
		return nil, false, natserr.Coded(bucket.op("list what is"), err)
	}
	defer bucket.bus.lists.Release(a)
	found, err := bucket.Keys(ctx, keys)
	if err != nil {
		return nil, false, err
	}
	slices.Sort(found)
	slices.Reverse(found)
	found = slices.Compact(found)
	list = []T{}
	size := 0
	for chunk := range slices.Chunk(found[:min(len(found), mostLooked)], atATime) {
		pairs, errs := make([]BucketEntry[T], len(chunk)), make([]error, len(chunk))
		var wg sync.WaitGroup
		for i, key := range chunk {
			wg.Go(func() { pairs[i], errs[i] = bucket.Get(ctx, key) })
		}
		wg.Wait()
		for i, p := range pairs {
			switch {
			case errors.Is(errs[i], schemas.ErrNotFound) || errs[i] == nil && (p.Deleted || !want(p.Value)): // gone since, or not meant
			case errs[i] != nil:
				return nil, false, errs[i]
			case len(list) == limit || len(list) > 0 && size+p.Size > mostListed:
				return list, true, nil
			default:
				list, size = append(list, p.Value), size+p.Size
			}
		}
	}
	return list, len(found) > mostLooked, nil
}
