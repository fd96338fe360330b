package sandboxapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// TooManySessions is the body of the response 429 when the account has reached its limit of active sessions.
type TooManySessions struct {
	Error TooManySessionsError `json:"error"`
}

// TooManySessionsError has the limit and the number of active sessions.
type TooManySessionsError struct {
	Code    string `json:"code"` // max_sessions
	Message string `json:"message"`
	Limit   int    `json:"limit"`
	Active  int    `json:"active"`
}

// session enters the session of a request, and makes it and its records if they do not exist. If too many are active it tries to make
// room, for up to PlaceWait. It also returns whether the session became active by this request. Codes: those of [enter], unavailable; a
// [fullError] if there is no room.
func (a *sessions) session(ctx context.Context, tenant schemas.AccountID, id string, how entry) (schemas.SandboxSession, bool, error) {
	until, pause := time.Now().Add(a.PlaceWait), wait.Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		s, began, err := a.enter(ctx, tenant, id, how)
		var full *fullError
		if err == nil || !errors.As(err, &full) {
			return s, began, err
		}
		made, rerr := a.makeRoom(ctx, tenant)
		if rerr != nil {
			return s, false, rerr
		}
		if !made && (time.Now().After(until) || a.stopping() || !pause.Sleep(ctx, n)) {
			return s, false, err
		}
	}
}

// enter enters the session in the account's list and ensures that its records exist.
func (a *sessions) enter(ctx context.Context, tenant schemas.AccountID, id string, how entry) (
	s schemas.SandboxSession, began bool, err error,
) {
	fresh := settings{
		lease:     how.lease,
		workspace: schemas.WorkspaceID(schemas.NewID(schemas.WorkspacePrefix)),
		sandbox:   a.Store.SandboxOf(tenant, a.Spec.Config.Provider), provider: a.Spec.Config.Provider,
	}
	_, err = a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
		err := how.check(l, id, a.Now())
		if err == nil {
			s, began, err = enter(l, id, a.Now(), a.MaxSessions, fresh)
		}
		return err
	})
	if err != nil {
		return s, false, err
	}
	spec := a.Spec
	spec.Config.Provider = s.Provider // it stays where it was made
	if err := a.Store.Ensure(ctx, tenant, s, spec); err != nil {
		if began {
			a.leave(ctx, tenant, s)
		}
		return s, false, err
	}
	if s.Workspace == fresh.workspace {
		if err := a.still(ctx, tenant, s); err != nil {
			return s, false, err
		}
	}
	return s, began, nil
}

// still checks that a new session still exists after its workspace was made. If it was destroyed in between, it removes the workspace,
// which no other process would, and returns a conflict.
func (a *sessions) still(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession) error {
	l, err := a.Store.Get(ctx, tenant)
	if err != nil {
		return err
	}
	if i := find(l.Sessions, s.ID); i >= 0 && l.Sessions[i].Workspace == s.Workspace && !l.Sessions[i].Ending {
		return nil
	}
	if err := a.Store.Remove(ctx, tenant, s); err != nil {
		return err
	}
	return destroyed()
}

// leave deactivates a session that could not begin.
func (a *sessions) leave(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err := a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
		rest(l, s)
		return nil
	})
	if err != nil {
		a.Log.Warn("session slot not released, it is released later", "account", tenant, "session", s.ID, "error", err)
	}
}

// patience is the time limit of writes that follow a request whose client has disconnected.
const patience = 5 * time.Second

// touch marks a session as used, if the last mark is old enough. Errors are only logged.
func (a *sessions) touch(ctx context.Context, tenant schemas.AccountID, id string) {
	_, err := a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
		i := find(l.Sessions, id)
		if i >= 0 && l.Sessions[i].Active && a.Now().Sub(l.Sessions[i].Used) >= schemas.SandboxSessionLag {
			l.Sessions[i].Used = a.Now()
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		a.Log.Warn("session not marked as used", "account", tenant, "session", id, "error", err)
	}
}

// makeRoom deactivates one session: one whose instance has ended by itself, or else the longest unused one in which nothing runs. Its
// instance ends, its files stay. It reports whether it made room.
//
// Only one request per account does this at a time; for the others it returns false, and they try again.
func (a *sessions) makeRoom(ctx context.Context, tenant schemas.AccountID) (made bool, err error) {
	if _, others := a.looking.LoadOrStore(tenant, true); others {
		return false, nil
	}
	defer a.looking.Delete(tenant)
	l, err := a.Store.Get(ctx, tenant)
	if err != nil {
		return false, err
	}
	candidates := evictable(l.Sessions, a.Now())
	busy := make([]bool, len(candidates))
	for i, s := range candidates {
		var there bool
		if there, busy[i], err = a.Boxes.Look(ctx, tenant, s); err != nil {
			return false, err
		}
		if !there && !busy[i] {
			if made, err = a.rest(ctx, tenant, s, "idle"); made || err != nil {
				return made, err
			}
		}
	}
	for i, s := range candidates {
		if busy[i] {
			continue
		}
		err := a.Boxes.Remove(ctx, tenant, s, false)
		if errors.Is(err, schemas.ErrConflict) || errors.Is(err, schemas.ErrTimeout) { // a request has come, or it takes long
			continue
		}
		if err != nil {
			return false, err
		}
		if made, err = a.rest(ctx, tenant, s, "max_sessions"); made || err != nil {
			return made, err
		}
	}
	return false, nil
}

func (a *sessions) rest(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession, reason string) (rested bool, err error) {
	_, err = a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
		rested = rest(l, s)
		return nil
	})
	if err == nil && rested {
		a.Metrics.Evicted(reason)
	}
	return rested && err == nil, err
}

// SessionList is a page of sessions, sorted by tenant and session.
type SessionList struct {
	Sessions []Session `json:"sessions"`
	// Next is where the next page begins, to be given as after; absent at the end.
	Next string `json:"next,omitzero"`
}

// Session describes a session to clients.
type Session struct {
	TenantID  schemas.AccountID `json:"tenant_id"`
	SessionID string            `json:"session_id"`
	Backend   string            `json:"backend"`
	// State is that of its instance: reserving, ready, pausing, paused or ending; stopped where only the files are left.
	State    string    `json:"state" jsonschema:"enum=reserving,enum=ready,enum=pausing,enum=paused,enum=ending,enum=stopped"`
	Created  time.Time `json:"created_at"`
	LastUsed time.Time `json:"last_used_at"`
	// Expires is when the instance ends unless it is used before; absent if there is none. The files stay.
	Expires time.Time `json:"expires_at,omitzero"`
	// Workspace contains the files: see /v1/workspaces/{id}/files. Conversation has the events of its calls.
	Workspace    schemas.WorkspaceID    `json:"workspace"`
	Conversation schemas.ConversationID `json:"conversation"`
}

const (
	defaultSessionsPage = 200
	maxSessionsPage     = 1000
)

// Sessions lists the sessions of the account; for the administrator, those of all accounts.
func (a *API) Sessions(w http.ResponseWriter, r *http.Request, c Caller) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "after", "limit")
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", defaultSessionsPage, 1, maxSessionsPage)
	if err != nil {
		return err
	}
	if err := a.ready(); err != nil {
		return err
	}
	var all []schemas.SandboxSessions
	if c.Admin {
		all = a.Store.All()
	} else {
		own, err := a.Store.Get(r.Context(), c.Account)
		if err != nil {
			return err
		}
		all = append(all, own)
	}
	list, tenant, after := SessionList{Sessions: []Session{}}, schemas.AccountID(""), q.Text("after")
	if t, _, ok := strings.Cut(after, "/"); ok {
		tenant = schemas.AccountID(t)
	} else if after != "" {
		return schemas.Invalidf("after", "is what next of the page before said")
	}
	for _, l := range all {
		if l.Account < tenant {
			continue
		}
		for _, s := range l.Sessions {
			at := string(l.Account) + "/" + s.ID
			if at <= after {
				continue
			}
			if len(list.Sessions) == int(limit) {
				last := list.Sessions[limit-1]
				list.Next = string(last.TenantID) + "/" + last.SessionID
				web.WriteJSON(w, http.StatusOK, list)
				return nil
			}
			shown, err := a.shown(r.Context(), l.Account, s)
			if err != nil {
				return err
			}
			list.Sessions = append(list.Sessions, shown)
		}
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// shown returns the description of a session, with the state of its instance.
func (a *API) shown(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession) (Session, error) {
	out := Session{
		TenantID: tenant, SessionID: s.ID, Backend: s.Provider, State: "stopped", Created: s.Created, LastUsed: s.Used,
		Workspace: s.Workspace, Conversation: conversationOf(s.ID),
	}
	state, expires, err := a.Boxes.State(ctx, tenant, s)
	if err != nil {
		return out, err
	}
	if state != "" {
		out.State, out.Expires = string(state), expires
	}
	if s.Ending {
		out.State = string(schemas.InstanceEnding)
	}
	return out, nil
}

// conversationOf returns the conversation with the events of a session's calls.
func conversationOf(session string) schemas.ConversationID {
	return schemas.ConversationID("sandbox:" + session)
}

// place returns the account and session that a path names. A session that the caller may not use is not_found, with the same message as
// one that does not exist.
func (a *API) place(r *http.Request, c Caller) (tenant schemas.AccountID, session string, err error) {
	tenant = schemas.AccountID(strings.ToValidUTF8(r.PathValue("tenant"), "\uFFFD"))
	session = strings.ToValidUTF8(r.PathValue("session"), "\uFFFD")
	if tenant == "me" && !c.Admin {
		tenant = c.Account
	}
	switch {
	case tenant.Validate() != nil, !c.Admin && tenant != c.Account, schemas.CheckSandboxSession("session", session) != nil:
		return "", "", noSession()
	}
	return tenant, session, a.ready()
}
