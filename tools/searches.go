package tools

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	searchTurn   = 20 * time.Millisecond  // of work, before a search yields to others
	searchSilent = 100 * time.Millisecond // without progress, after which a search counts as waiting for its file system
	searchLook   = searchTurn / 4         // between two checks of one search whether others wait
)

// Searches limits how many searches work at the same time in this process, so that processors remain for its other work. If more want to
// work, the accounts take turns, and so do the searches of one account. A search that waits for its file system has no turn meanwhile. It
// is safe for concurrent use.
type Searches struct {
	most int

	mu      sync.Mutex
	working map[*searcher]bool
	waiting []*accountSearches // of each account with waiting searches, in the order of turns
}

// accountSearches are the searches of an account that wait for a turn, in order.
type accountSearches struct {
	account schemas.AccountID
	all     []*searcher
}

// NewSearches returns Searches of which at most that many work at the same time. 0: half of the processors that this process may use, at
// least one.
func NewSearches(most int) *Searches {
	if most <= 0 {
		most = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return &Searches{most: most, working: map[*searcher]bool{}}
}

// searcher is one search. Only its own goroutine calls its methods.
type searcher struct {
	of      *Searches
	account schemas.AccountID
	turn    chan struct{} // receives a value when the search may work
	looked  time.Time     // when it last checked whether others wait

	begun, went time.Time // when its turn began, and when it last made progress; guarded by of.mu
}

type searcherKey struct{}

// enter waits for the first turn of a search. With the context that it returns, [checkpoint] waits for further turns.
func (s *Searches) enter(ctx context.Context, a schemas.AccountID) (context.Context, *searcher, error) {
	w := &searcher{of: s, account: a, turn: make(chan struct{}, 1)}
	return context.WithValue(ctx, searcherKey{}, w), w, w.again(ctx, time.Now())
}

// checkpoint must be called regularly during long work. It returns ctx's error, and blocks while a search has to wait for a turn.
func checkpoint(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w, ok := ctx.Value(searcherKey{}).(*searcher); ok {
		return w.resume(ctx)
	}
	return nil
}

// resume waits for another turn if the current one is over and other searches wait.
func (w *searcher) resume(ctx context.Context) error {
	now := time.Now()
	if now.Sub(w.looked) < searchLook {
		return nil
	}
	w.looked = now
	if w.of.keeps(w, now) {
		return nil
	}
	return w.again(ctx, now)
}

// again waits for a turn.
func (w *searcher) again(ctx context.Context, now time.Time) error {
	w.of.queue(w, now)
	clock := time.NewTicker(searchSilent)
	defer clock.Stop()
	for {
		select {
		case <-w.turn:
			w.looked = time.Now()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case now := <-clock.C:
			w.of.reclaim(now)
		}
	}
}

// leave ends a search, whether it works or waits.
func (w *searcher) leave() {
	s := w.of
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working, w)
	for i, a := range s.waiting {
		if a.account == w.account {
			if a.all = slices.DeleteFunc(a.all, func(o *searcher) bool { return o == w }); len(a.all) == 0 {
				s.waiting = slices.Delete(s.waiting, i, i+1)
			}
			break
		}
	}
	s.grant(time.Now())
}

// keeps reports whether a search continues its current turn.
func (s *Searches) keeps(w *searcher, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.working[w] {
		return false
	}
	w.went = now
	if now.Sub(w.begun) < searchTurn || len(s.waiting) == 0 {
		return true
	}
	delete(s.working, w)
	return false
}

// queue appends a search to those that wait.
func (s *Searches) queue(w *searcher, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.waiting, func(a *accountSearches) bool { return a.account == w.account })
	if i < 0 {
		i = len(s.waiting)
		s.waiting = append(s.waiting, &accountSearches{account: w.account})
	}
	s.waiting[i].all = append(s.waiting[i].all, w)
	s.grant(now)
}

// reclaim ends the turns of searches without progress for searchSilent.
func (s *Searches) reclaim(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.working {
		if now.Sub(w.went) >= searchSilent {
			delete(s.working, w)
		}
	}
	s.grant(now)
}

// grant starts turns while fewer than s.most searches work: of the next account's next search. That account is then the last in the order.
func (s *Searches) grant(now time.Time) {
	for len(s.working) < s.most && len(s.waiting) > 0 {
		a := s.waiting[0]
		w := a.all[0]
		a.all, s.waiting = a.all[1:], s.waiting[1:]
		if len(a.all) > 0 {
			s.waiting = append(s.waiting, a)
		}
		w.begun, w.went, s.working[w] = now, now, true
		w.turn <- struct{}{}
	}
}
