package workers

import (
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// maxCancels bounds what a worker remembers: some 30 MB at the very most.
const maxCancels = 100_000

// cancelsMatter is how long a request may find its call still waiting: above schemas.MaxDeadline.
const cancelsMatter = 24 * time.Hour

// cancelSet remembers requests to cancel for as long as their calls may wait. If it must forget one earlier, it says so, and every call of
// that account is then looked up. One account has a quarter of the entries at most; when all are taken, the account with the most loses
// its oldest.
type cancelSet struct {
	most int           // requests that are kept
	keep time.Duration // how long each matters: what a call may wait at most

	mu    sync.Mutex
	kept  int
	of    map[schemas.AccountID]*accountCancels
	swept time.Time
}

// accountCancels are the requests of one account.
type accountCancels struct {
	known   map[schemas.CallID]request // the latest
	order   []cancelPlace              // oldest first
	earlier int                        // of order: taken out already
	forgot  time.Time                  // until when a request may be missing
}

// cancelPlace is a request's entry in the order of time.
type cancelPlace struct {
	call schemas.CallID
	at   time.Time
}

type request struct {
	cancel schemas.Cancel
	at     time.Time // when the log took it: the time in the message is only what the client wrote
}

func newCancelSet(most int, keep time.Duration) *cancelSet {
	return &cancelSet{most: most, keep: keep, of: map[schemas.AccountID]*accountCancels{}}
}

// add remembers a request that the log stored at a time, and reports whether it is new.
func (s *cancelSet) add(c schemas.Cancel, at, now time.Time) bool {
	const reason, share = 256, 4 // bytes; of the room
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[c.Account]
	if own == nil {
		own = &accountCancels{known: map[schemas.CallID]request{}}
		s.of[c.Account] = own
	}
	known, there := own.known[c.Call]
	if there && !at.After(known.at) && c.Accepted.Equal(known.cancel.Accepted) {
		return false
	}
	c.Reason = strings.ToValidUTF8(c.Reason[:min(len(c.Reason), reason)], "")
	own.known[c.Call] = request{cancel: c, at: at}
	own.order = append(own.order, cancelPlace{c.Call, at})
	if !there {
		s.kept++
	}
	for s.trim(own, now); len(own.known) > max(s.most/share, 1); s.trim(own, now) {
		s.drop(own, now)
	}
	s.sweep(now)
	for s.kept > s.most {
		s.drop(s.largest(), now)
	}
	return true
}

// trim forgets the expired requests of an account.
func (s *cancelSet) trim(own *accountCancels, now time.Time) {
	for own.earlier < len(own.order) {
		oldest := own.order[own.earlier]
		latest := own.known[oldest.call].at.Equal(oldest.at) // else the call, or a later use of its id, was cancelled again
		if latest && now.Sub(oldest.at) <= s.keep {
			break
		}
		s.drop(own, now)
	}
}

// drop forgets the oldest entry of an account, and its request unless a later entry renewed it.
func (s *cancelSet) drop(own *accountCancels, now time.Time) {
	oldest := own.order[own.earlier]
	if own.known[oldest.call].at.Equal(oldest.at) {
		over := now.Sub(oldest.at) > s.keep
		if until := oldest.at.Add(s.keep); !over && until.After(own.forgot) {
			own.forgot = until
		}
		delete(own.known, oldest.call)
		s.kept--
	}
	own.order[own.earlier] = cancelPlace{}
	own.earlier++
	if own.earlier > len(own.order)/2 { // give the memory back now and then
		own.order = append(make([]cancelPlace, 0, 2*(len(own.order)-own.earlier)), own.order[own.earlier:]...)
		own.earlier = 0
	}
}

// sweep forgets the expired requests of all accounts.
func (s *cancelSet) sweep(now time.Time) {
	if since := now.Sub(s.swept); since >= 0 && since < time.Minute {
		return
	}
	s.swept = now
	for a, own := range s.of {
		if s.trim(own, now); len(own.known) == 0 && !now.Before(own.forgot) {
			delete(s.of, a)
		}
	}
}

// largest returns the account with the most requests.
func (s *cancelSet) largest() (most *accountCancels) {
	for _, own := range s.of {
		if most == nil || len(own.known) > len(most.known) {
			most = own
		}
	}
	return most
}

// find returns the reason of a request to cancel a call that was accepted at a time. sure is false if such a request may have been
// forgotten.
func (s *cancelSet) find(a schemas.AccountID, call schemas.CallID, accepted, now time.Time) (reason string, found, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.of[a]
	if own == nil {
		return "", false, true
	}
	r, found := own.known[call]
	if found && !lifecycle.CancelConcerns(r.cancel, r.at, accepted) {
		return "", false, true
	}
	return r.cancel.Reason, found, found || !now.Before(own.forgot)
}
