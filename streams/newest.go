package streams

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// mostLooked bounds the records that one [Newest] reads.
const mostLooked = 10_000

// Newest reads the records whose keys match a pattern, from the newest on, which their ids sort by, until limit of them
// are wanted. More says that there are older ones, wanted or not looked at: it looks at 10,000 at most, 16 at a time.
// Code: unavailable.
func Newest[T any](ctx context.Context, bucket *Bucket[T], keys string, want func(T) bool, limit int) (list []T, more bool, err error) {
	const atATime = 16
	found, err := bucket.Keys(ctx, keys)
	if err != nil {
		return nil, false, err
	}
	slices.Sort(found)
	slices.Reverse(found)
	found = slices.Compact(found)
	list = []T{}
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
			case len(list) == limit:
				return list, true, nil
			default:
				list = append(list, p.Value)
			}
		}
	}
	return list, len(found) > mostLooked, nil
}
