package sandboxapi

import (
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// due is a session whose time is over.
type due struct {
	account schemas.AccountID
	session schemas.SandboxSession
}

// queue decides the order in which overdue sessions are destroyed: accounts take turns, and at most [overdueEach] sessions of an account
// are destroyed at once. One whose destruction failed is queued again at the next call of look, after the account's other sessions.
type queue struct {
	waiting  map[schemas.AccountID][]schemas.SandboxSession // of each account the next first
	accounts []schemas.AccountID                            // with sessions that wait, the next first
	ending   map[schemas.AccountID][]string
	total    int                          // that end now
	last     schemas.AccountID            // that had a turn
	lastOf   map[schemas.AccountID]string // the session that had
}

func newQueue() *queue {
	return &queue{ending: map[schemas.AccountID][]string{}, lastOf: map[schemas.AccountID]string{}}
}

// look replaces the waiting sessions with those that are overdue now. all must be sorted by account.
func (q *queue) look(all []schemas.SandboxSessions, now time.Time) {
	q.waiting, q.accounts = map[schemas.AccountID][]schemas.SandboxSession{}, nil
	lastOf := map[schemas.AccountID]string{}
	for _, l := range all {
		var of []schemas.SandboxSession
		for _, s := range l.Sessions {
			if overdue(s, now) && !slices.Contains(q.ending[l.Account], s.ID) {
				of = append(of, s)
			}
		}
		if len(of) == 0 {
			continue
		}
		lastOf[l.Account] = q.lastOf[l.Account]
		q.waiting[l.Account] = after(of, func(s schemas.SandboxSession) bool { return s.ID > lastOf[l.Account] })
		q.accounts = append(q.accounts, l.Account)
	}
	q.accounts = after(q.accounts, func(a schemas.AccountID) bool { return a > q.last })
	q.lastOf = lastOf
}

// after rotates a list so that it begins with the first element for which is returns true.
func after[T any](list []T, is func(T) bool) []T {
	i := max(0, slices.IndexFunc(list, is))
	return slices.Concat(list[i:], list[:i])
}

// next returns the session to destroy next; false if there is none now, or too many are being destroyed.
func (q *queue) next() (due, bool) {
	if q.total >= overdueAtOnce {
		return due{}, false
	}
	i := slices.IndexFunc(q.accounts, func(a schemas.AccountID) bool { return len(q.ending[a]) < overdueEach })
	if i < 0 {
		return due{}, false
	}
	a := q.accounts[i]
	s := q.waiting[a][0]
	q.waiting[a] = q.waiting[a][1:]
	q.accounts = slices.Delete(q.accounts, i, i+1)
	if len(q.waiting[a]) > 0 {
		q.accounts = append(q.accounts, a)
	}
	q.ending[a] = append(q.ending[a], s.ID)
	q.total++
	q.last, q.lastOf[a] = a, s.ID
	return due{a, s}, true
}

// finished records that the destruction of a session has ended.
func (q *queue) finished(d due) {
	q.total--
	left := slices.DeleteFunc(q.ending[d.account], func(id string) bool { return id == d.session.ID })
	if q.ending[d.account] = left; len(left) == 0 {
		delete(q.ending, d.account)
	}
}
