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

// cancelSet remembers the requests for the end of calls, for as long as their calls may wait. When
// it has to forget one before its time it says so, and every call is then looked up.
type cancelSet struct {
	most int           // requests that are kept
	keep time.Duration // how long each matters: what a call may wait at most

	mu      sync.Mutex
	known   map[string]request // by <account>.<call>: the latest
	order   []cancelPlace      // oldest first
	earlier int                // of order: taken out already
	forgot  time.Time          // until when a request may be missing
}

// cancelPlace is a request's place in the order of time.
type cancelPlace struct {
	id string
	at time.Time
}

type request struct {
	cancel schemas.Cancel
	at     time.Time // when the log took it: the time in the message is only what somebody wrote
}

func newCancelSet(most int, keep time.Duration) *cancelSet {
	return &cancelSet{most: most, keep: keep, known: make(map[string]request)}
}

// add remembers a request that the log took at the given time, and reports whether it is new.
func (s *cancelSet) add(c schemas.Cancel, at, now time.Time) bool {
	const reason = 256 // bytes
	id := string(c.Account) + "." + string(c.Call)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[id]; ok && !at.After(known.at) && c.Accepted.Equal(known.cancel.Accepted) {
		return false
	}
	c.Reason = strings.ToValidUTF8(c.Reason[:min(len(c.Reason), reason)], "")
	s.known[id] = request{cancel: c, at: at}
	s.order = append(s.order, cancelPlace{id, at})
	for s.earlier < len(s.order) {
		oldest := s.order[s.earlier]
		latest := s.known[oldest.id].at.Equal(oldest.at) // else the call, or a later use of its id, was cancelled again
		over := now.Sub(oldest.at) > s.keep
		if latest && !over && len(s.known) <= s.most {
			break
		}
		if latest {
			if until := oldest.at.Add(s.keep); !over && until.After(s.forgot) {
				s.forgot = until
			}
			delete(s.known, oldest.id)
		}
		s.order[s.earlier] = cancelPlace{}
		s.earlier++
	}
	if s.earlier > len(s.order)/2 { // give the memory back now and then
		s.order = append(make([]cancelPlace, 0, 2*(len(s.order)-s.earlier)), s.order[s.earlier:]...)
		s.earlier = 0
	}
	return true
}

// find returns why the end of a call that was accepted at the given time was asked for. Sure is false when
// the request, if there was one, may have been forgotten.
func (s *cancelSet) find(call string, accepted, now time.Time) (reason string, found, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.known[call]
	if found && !lifecycle.CancelConcerns(r.cancel, r.at, accepted) {
		return "", false, true
	}
	return r.cancel.Reason, found, found || !now.Before(s.forgot)
}
