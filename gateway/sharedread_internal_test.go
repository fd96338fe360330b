package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One read answers all that ask while it is under way or in the quarter of a second after it, also where it fails, and where the
// request for which it was begun has ended.
//
//guarantee:bounds
func TestAReadIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		failure := errors.New("away")
		s := sharedRead[int]{within: 2 * time.Second, read: func(ctx context.Context) (int, error) {
			reads++
			n := reads
			time.Sleep(time.Second)
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			return n, map[int]error{2: failure}[n]
		}}
		askAll := func(want int, wantErr error) {
			t.Helper()
			var asked sync.WaitGroup
			for range 100 {
				asked.Go(func() {
					if n, err := s.get(t.Context()); n != want || !errors.Is(err, wantErr) {
						t.Errorf("read %d, %v; want %d, %v", n, err, want, wantErr)
					}
				})
			}
			asked.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := s.get(gone); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("the first: %v", err)
			}
		})
		synctest.Wait()
		leave()
		askAll(1, nil)
		first.Wait()
		time.Sleep(sharedFor - time.Nanosecond)
		askAll(1, nil)
		time.Sleep(time.Nanosecond)
		askAll(2, failure)
		time.Sleep(sharedFor)
		askAll(3, nil)
		time.Sleep(sharedFor)
		first.Go(func() { _, _ = s.get(t.Context()) })
		synctest.Wait()
		if _, err := s.get(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("who waits no more: %v", err)
		}
		first.Wait()
	})
}

// A read that hangs ends, and is followed by another.
func TestASharedReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sharedRead[int]{within: 2 * time.Second, read: func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		for range 2 {
			if _, err := s.get(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			time.Sleep(sharedFor)
		}
	})
}
