package sandboxapi

import (
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// find is the place of a session in a list, -1 where it is not there.
func find(list []schemas.SandboxSession, id string) int {
	return slices.IndexFunc(list, func(s schemas.SandboxSession) bool { return s.ID == id })
}

// active is how many sessions count for the limit.
func active(list []schemas.SandboxSession) int {
	n := 0
	for _, s := range list {
		if s.Active {
			n++
		}
	}
	return n
}

// fullError says that a session has no place among the active ones.
type fullError struct{ limit, active int }

func (e *fullError) Error() string { return "too many sessions" }

// settings of a session that is made.
type settings struct {
	workspace schemas.WorkspaceID
	sandbox   schemas.SandboxID
	provider  string
	lease     *schemas.SandboxLease
}

// enter lets a request into a session: the session is made where it is not there, becomes one of the active ones, and is marked as
// used. At most limit are active. What need not change does not. It returns the session, and whether it began to be active. Codes:
// conflict (it is being destroyed), exhausted (too many sessions, active or not); a [fullError] says that limit are active.
func enter(l *schemas.SandboxSessions, id string, now time.Time, limit int, fresh settings) (
	s schemas.SandboxSession, began bool, err error,
) {
	i := find(l.Sessions, id)
	if i >= 0 && l.Sessions[i].Ending {
		return s, false, destroyed()
	}
	if i >= 0 && l.Sessions[i].Active {
		if now.Sub(l.Sessions[i].Used) >= schemas.SandboxSessionLag {
			l.Sessions[i].Used = now
		}
		return l.Sessions[i], false, nil
	}
	if n := active(l.Sessions); n >= limit {
		return s, false, &fullError{limit, n}
	}
	if i < 0 {
		if n := len(l.Sessions); n >= schemas.MaxSandboxSessions {
			return s, false, fault(schemas.Exhausted, "session_id", "the account has %d sessions with files, the most it may: destroy one", n)
		}
		i, _ = slices.BinarySearchFunc(l.Sessions, id, func(s schemas.SandboxSession, id string) int { return compare(s.ID, id) })
		l.Sessions = slices.Insert(l.Sessions, i, schemas.SandboxSession{
			ID: id, Workspace: fresh.workspace, Sandbox: fresh.sandbox, Provider: fresh.provider, Created: now, Lease: fresh.lease,
		})
	}
	l.Sessions[i].Active, l.Sessions[i].Used = true, now
	return l.Sessions[i], true, nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// unused is how long a session is unused that makes room for another: well above [schemas.SandboxSessionLag], so that a session
// with a request in it is never among them.
const unused = 2 * schemas.SandboxSessionLag

// evictable are the active sessions that may make room, the longest unused first.
func evictable(list []schemas.SandboxSession, now time.Time) []schemas.SandboxSession {
	var out []schemas.SandboxSession
	for _, s := range list {
		if s.Active && !s.Ending && now.Sub(s.Used) >= unused {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b schemas.SandboxSession) int { return a.Used.Compare(b.Used) })
	return out
}

// rest has a session count no more, unless it was used since it was looked at.
func rest(l *schemas.SandboxSessions, seen schemas.SandboxSession) (rested bool) {
	i := find(l.Sessions, seen.ID)
	if i < 0 || l.Sessions[i].Workspace != seen.Workspace || !l.Sessions[i].Used.Equal(seen.Used) {
		return false
	}
	l.Sessions[i].Active = false
	return true
}

// destroying is how long a turn to destroy a session lasts that is not extended: what is left by a gateway that died waits for that long.
const destroying = 30 * time.Second

// takeTurn marks a session as being destroyed, and gives who the turn to do it, or extends that turn. The turn of another that has not
// ended stays, and mine is false. It is about the session that was seen, not about a newer one of its id. Codes: not_found.
func takeTurn(l *schemas.SandboxSessions, seen schemas.SandboxSession, who string, now time.Time) (mine bool, err error) {
	i := find(l.Sessions, seen.ID)
	if i < 0 || l.Sessions[i].Workspace != seen.Workspace {
		return false, noSession()
	}
	s := &l.Sessions[i]
	s.Ending = true
	if s.Destroyer != who && now.Before(s.DestroyerUntil) {
		return false, nil
	}
	s.Destroyer, s.DestroyerUntil = who, now.Add(destroying)
	return true, nil
}

// leaveTurn lets others finish what who does not.
func leaveTurn(l *schemas.SandboxSessions, id, who string) {
	if i := find(l.Sessions, id); i >= 0 && l.Sessions[i].Destroyer == who {
		l.Sessions[i].Destroyer, l.Sessions[i].DestroyerUntil = "", time.Time{}
	}
}

// overdue reports whether a session is to be destroyed without being asked for: its time has ended, or who destroyed it did not finish.
func overdue(s schemas.SandboxSession, now time.Time) bool {
	return s.Ending && !now.Before(s.DestroyerUntil) || !s.Ending && s.Lease != nil && !Lives(s, now)
}

func destroyed() error {
	return fault(schemas.Conflict, "session_id", "the session is being destroyed: use another id, or destroy it again and come back")
}

func noSession() error {
	return fault(schemas.NotFound, "session", "there is no such session")
}

// drop forgets a session that is destroyed, but not another of its id.
func drop(l *schemas.SandboxSessions, s schemas.SandboxSession) {
	l.Sessions = slices.DeleteFunc(l.Sessions, func(o schemas.SandboxSession) bool { return o.ID == s.ID && o.Workspace == s.Workspace })
}

// fault is an error of a code about a field.
func fault(c schemas.Code, field, format string, args ...any) error {
	return &schemas.Error{Code: c, Field: field, Message: fmt.Sprintf(format, args...)}
}
