package sandboxapi

import (
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// find returns the index of a session in a list, or -1.
func find(list []schemas.SandboxSession, id string) int {
	return slices.IndexFunc(list, func(s schemas.SandboxSession) bool { return s.ID == id })
}

// active returns how many sessions count towards the limit.
func active(list []schemas.SandboxSession) int {
	n := 0
	for _, s := range list {
		if s.Active {
			n++
		}
	}
	return n
}

// fullError is the error for a session that cannot become active because the account has reached its limit.
type fullError struct{ limit, active int }

func (e *fullError) Error() string { return "too many sessions" }

// settings are the settings of a new session.
type settings struct {
	workspace schemas.WorkspaceID
	sandbox   schemas.SandboxID
	provider  string
	lease     *schemas.SandboxLease
}

// enter lets a request use a session: it adds the session if it does not exist, makes it active and marks it as used. At most limit
// sessions are active. The list changes only if needed. It returns the session, and whether it became active by this. Codes: conflict (the
// session is being destroyed), exhausted (too many sessions, active or not); a [fullError] if limit are active.
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

// evictable returns the active sessions that may be deactivated, the longest unused first.
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

// rest deactivates a session, unless it was used since it was read.
func rest(l *schemas.SandboxSessions, seen schemas.SandboxSession) (rested bool) {
	i := find(l.Sessions, seen.ID)
	if i < 0 || l.Sessions[i].Workspace != seen.Workspace || !l.Sessions[i].Used.Equal(seen.Used) {
		return false
	}
	l.Sessions[i].Active = false
	return true
}

// destroying is how long a turn to destroy a session lasts unless it is extended. If a gateway dies meanwhile, others wait for that long.
const destroying = 30 * time.Second

// takeTurn marks a session as being destroyed, and gives the turn to do so to who, or extends it. If another holds the turn, mine is
// false. It applies only to the session that was seen, not to a newer one with its id. Code: not_found.
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

// leaveTurn releases the turn of who, so that another request can finish the destruction.
func leaveTurn(l *schemas.SandboxSessions, id, who string) {
	if i := find(l.Sessions, id); i >= 0 && l.Sessions[i].Destroyer == who {
		l.Sessions[i].Destroyer, l.Sessions[i].DestroyerUntil = "", time.Time{}
	}
}

// overdue reports whether a session must be destroyed without a request: its lease has ended, or its destruction was interrupted.
func overdue(s schemas.SandboxSession, now time.Time) bool {
	return s.Ending && !now.Before(s.DestroyerUntil) || !s.Ending && s.Lease != nil && !Lives(s, now)
}

func destroyed() error {
	return fault(schemas.Conflict, "session_id", "the session is being destroyed: use another id, or destroy it again and come back")
}

func noSession() error {
	return fault(schemas.NotFound, "session", "there is no such session")
}

// drop removes a destroyed session from the list, but not a newer one with its id.
func drop(l *schemas.SandboxSessions, s schemas.SandboxSession) {
	l.Sessions = slices.DeleteFunc(l.Sessions, func(o schemas.SandboxSession) bool { return o.ID == s.ID && o.Workspace == s.Workspace })
}

// fault returns an error with a code and a field.
func fault(c schemas.Code, field, format string, args ...any) error {
	return &schemas.Error{Code: c, Field: field, Message: fmt.Sprintf(format, args...)}
}
