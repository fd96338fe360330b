package tools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// step is how long a search of a test works between two looks at the others.
const step = 2 * time.Millisecond

// work runs a search of account a that takes d, unless ctx ends before. It sleeps instead of working, which is the same in virtual time,
// and calls at before each step.
func work(ctx context.Context, s *Searches, a schemas.AccountID, d time.Duration, at func()) error {
	ctx, w, err := s.enter(ctx, a)
	defer w.leave()
	for ; err == nil && d > 0; d -= step {
		at()
		time.Sleep(step)
		err = checkpoint(ctx)
	}
	return err
}

// TestSearchesOfAQuietAccountHaveTheirTurn: while one account has as many searches running as it may, without end, the search of another
// account takes at most about twice the time that it would take alone, however many the others are.
//
//guarantee:what-one-tenant-can-do-to-another
func TestSearchesOfAQuietAccountHaveTheirTurn(t *testing.T) {
	t.Parallel()
	for _, flood := range []int{1, 4, 64} {
		t.Run(fmt.Sprint(flood), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := NewSearches(2)
				var all sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				var mu sync.Mutex
				worked := map[int]int{}
				for i := range flood {
					all.Go(func() {
						err := work(ctx, s, "acct_loud", 24*time.Hour, func() {
							mu.Lock()
							defer mu.Unlock()
							worked[i]++
						})
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
				}
				time.Sleep(time.Minute)
				began, most := time.Now(), 200*time.Millisecond
				if err := work(t.Context(), s, "acct_quiet", 100*time.Millisecond, func() {}); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > most+2*searchTurn {
					t.Errorf("0.1 s of work took %s beside %d searches, want %s at most", took, flood, most)
				}
				cancel()
				all.Wait()
				for i := range flood { // and they had turns of their own among themselves
					if n, fair := worked[i], int(min(2, int64(flood))*int64(time.Minute/step))/flood; n < fair/2 {
						t.Errorf("search %d of %d worked %d times, want about %d", i, flood, n, fair)
					}
				}
			})
		})
	}
}

func TestSoManySearchesWorkAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		s := NewSearches(most)
		var all sync.WaitGroup
		var mu sync.Mutex
		at, peak := map[time.Time]int{}, 0
		for i := range 20 {
			all.Go(func() {
				err := work(t.Context(), s, schemas.AccountID(fmt.Sprint("acct_", i%5)), time.Second, func() {
					mu.Lock()
					defer mu.Unlock()
					at[time.Now()]++
					peak = max(peak, at[time.Now()])
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if took, least := time.Since(began), 20*time.Second/most; peak != most || took < least || took > least+2*time.Second {
			t.Errorf("%d at a time, want %d; 20 s of work took %s, want %s", peak, most, took, least)
		}
	})
}

// TestASearchThatWaitsForItsFilesHoldsNoTurn: while the file system of one search does not respond, the other searches use its turns. When
// it responds again, that search must wait for a turn.
func TestASearchThatWaitsForItsFilesHoldsNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSearches(1)
		var all sync.WaitGroup
		all.Go(func() {
			ctx, w, err := s.enter(t.Context(), "acct_stuck")
			defer w.leave()
			time.Sleep(time.Hour)
			if err = errors.Join(err, checkpoint(ctx)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := work(t.Context(), s, "acct_other", time.Second, func() {}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second+2*searchSilent {
			t.Errorf("1 s of work took %s", took)
		}
		all.Wait()
		if len(s.working) > 0 || len(s.waiting) > 0 {
			t.Errorf("%d work and %d wait when all have ended", len(s.working), len(s.waiting))
		}
	})
}

func TestASearchThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSearches(1)
		_, w, err := s.enter(t.Context(), "acct_1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := work(ctx, s, "acct_2", time.Second, func() { t.Error("it works") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.leave()
		if len(s.working) > 0 || len(s.waiting) > 0 {
			t.Errorf("%d work and %d wait when all have ended", len(s.working), len(s.waiting))
		}
	})
}
