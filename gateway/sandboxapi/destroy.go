package sandboxapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Destroy ends a session and everything in it: its calls and jobs, its instance and its files. Each step can be repeated, so an
// interrupted one is finished by another request, or by [API.EndExpired].
func (a *API) Destroy(w http.ResponseWriter, r *http.Request, c Caller) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	tenant, id, err := a.place(r, c)
	if err != nil {
		return err
	}
	done, err := a.TakeWait(w, tenant)
	if err != nil {
		return err
	}
	defer done()
	if err := a.Remove(r.Context(), tenant, id); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, Destroyed{Deleted: true})
	return nil
}

// Destroyed is the response to the destruction of a session.
type Destroyed struct {
	Deleted bool `json:"deleted"`
}

const (
	// destroyedWithin limits one try to destroy a session, so that the turn is not held for ever if something hangs.
	destroyedWithin = 4 * time.Minute
	// othersWithin is how long a request waits for another that destroys the same session.
	othersWithin = 2 * time.Minute
)

// Remove ends a session and everything in it. It blocks until that is done, also if another request or gateway does it. After an
// interruption it can be called again. Codes: not_found, unavailable, timeout, conflict (some files cannot be removed).
func (a *sessions) Remove(ctx context.Context, tenant schemas.AccountID, id string) error {
	l, err := a.Store.Get(ctx, tenant)
	if err != nil {
		return err
	}
	i := find(l.Sessions, id)
	if i < 0 {
		return noSession()
	}
	who, began, pause := newDestroyer(), a.Now(), wait.Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		mine, err := a.takeTurn(ctx, tenant, l.Sessions[i], who)
		switch {
		case n > 1 && errors.Is(err, schemas.ErrNotFound):
			return nil // who had the turn has finished
		case err != nil:
			return err
		case mine:
			return a.destroy(ctx, tenant, l.Sessions[i], who)
		case a.stopping(), a.Now().Sub(began) > othersWithin:
			return schemas.Errorf(schemas.Timeout, "another request destroys the session and has not finished yet: destroy it again")
		case !pause.Sleep(ctx, n):
			return ctx.Err()
		}
	}
}

// removeOverdue is [API.Remove] for a session whose time is over. It does nothing if the session was extended meanwhile or another request
// is destroying it.
func (a *sessions) removeOverdue(ctx context.Context, tenant schemas.AccountID, seen schemas.SandboxSession) error {
	who, mine := newDestroyer(), false
	_, err := a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) (err error) {
		mine = false
		i := find(l.Sessions, seen.ID)
		if i < 0 || !overdue(l.Sessions[i], a.Now()) { // the copy lags behind: its time may have been extended
			return nil
		}
		seen = l.Sessions[i]
		mine, err = takeTurn(l, seen, who, a.Now())
		return err
	})
	if err != nil || !mine {
		return err
	}
	return a.destroy(ctx, tenant, seen, who)
}

func newDestroyer() string { return schemas.NewID("destroy_") }

func (a *sessions) takeTurn(ctx context.Context, tenant schemas.AccountID, seen schemas.SandboxSession, who string) (mine bool, err error) {
	_, err = a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) (err error) {
		mine, err = takeTurn(l, seen, who, a.Now())
		return err
	})
	return mine && err == nil, err
}

// errTurnLost: the process was suspended, and another has the turn or has finished.
var errTurnLost = errors.New("another has the turn")

// destroy destroys the session for the request who, which holds the turn to do so. It extends the turn meanwhile, and releases it after a
// failure.
//
// A process that was suspended for longer than its turn may repeat a step that another process has done. That is harmless: a call that the
// other has cancelled is made again, and nothing is created that the other has removed.
func (a *sessions) destroy(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession, who string) error {
	ctx, cancel := context.WithTimeout(ctx, destroyedWithin)
	defer cancel()
	working, end := context.WithCancelCause(ctx)
	var turn sync.WaitGroup
	turn.Go(func() {
		for wait.Sleep(working, destroying/3) {
			mine, err := a.takeTurn(working, tenant, s, who)
			if errors.Is(err, schemas.ErrNotFound) || err == nil && !mine {
				end(errTurnLost)
			}
		}
	})
	err := a.clear(working, tenant, s)
	lost := errors.Is(context.Cause(working), errTurnLost)
	end(nil)
	turn.Wait()
	switch {
	case err == nil:
		_, err = a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
			drop(l, s)
			return nil
		})
	case lost:
		return schemas.Errorf(schemas.Timeout, "another request destroys the session meanwhile: look whether it is still there")
	}
	if err != nil {
		a.leaveTurn(ctx, tenant, s, who)
	}
	return err
}

func (a *sessions) leaveTurn(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession, who string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, err := a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
		leaveTurn(l, s.ID, who)
		return nil
	})
	if err != nil {
		a.Log.Warn("turn to destroy a session not given back, it ends by itself", "account", tenant, "session", s.ID, "error", err)
	}
}

// clear ends what runs in a session and removes its files, its workspace last.
func (a *sessions) clear(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession) error {
	if err := a.Boxes.Remove(ctx, tenant, s, true); err != nil {
		return err
	}
	spec := a.Spec
	spec.Config.Provider = s.Provider
	there, err := a.Store.Reopen(ctx, tenant, s, spec) // a call removes the files
	if err != nil || !there {
		return err
	}
	if err := a.empty(ctx, tenant, s); err != nil {
		return err
	}
	// An instance that several workers reach ends a while after its last call, which was just now. Waiting for that longer than Remove does
	// would need another call at the next try, and so on; nothing is in the instance, and it ends because its workspace is removed.
	if err := a.Boxes.Remove(ctx, tenant, s, true); err != nil && schemas.CodeOf(err) != schemas.Timeout {
		return err
	}
	return a.Store.Remove(ctx, tenant, s)
}

const (
	longestEmptying = time.Minute
	emptyings       = 3 // how often it is tried where the call is cancelled or its worker dies
)

// empty removes the files of a session by a call in it.
func (a *sessions) empty(ctx context.Context, tenant schemas.AccountID, s schemas.SandboxSession) error {
	x := &execution{api: a, tenant: tenant, session: s}
	for n := 1; ; n++ {
		result, _, err := x.bash(ctx, emptied, longestEmptying)
		if err != nil {
			return err
		}
		if result == nil {
			return schemas.Errorf(schemas.Unavailable, "the session's files are still being removed: destroy it again")
		}
		if n < emptyings && (result.Status == schemas.StatusCancelled || result.Status == schemas.StatusInterrupted) {
			continue
		}
		if err := failure(*result); err != nil {
			return err
		}
		if !result.Output.OK {
			return schemas.Errorf(schemas.Conflict, "the session's files cannot all be removed: %s", schemas.Quotable(result.Output.Stderr))
		}
		return nil
	}
}

const (
	overdueEvery  = 15 * time.Second // how often overdue sessions are looked up
	overdueWithin = 2 * time.Minute  // the time limit to destroy one
	overdueAtOnce = 16
	// overdueEach is how many sessions of one account are destroyed at once: while its workers are unavailable each takes as long as the
	// limit.
	overdueEach = 2
)

// EndExpired ends sessions whose time is over, and finishes interrupted destructions, until ctx is done. Several gateways may run it.
// Accounts take turns.
func (a *sessions) EndExpired(ctx context.Context) error {
	var ends sync.WaitGroup
	defer ends.Wait()
	q, finished := newQueue(), make(chan due, overdueAtOnce)
	look := time.NewTicker(overdueEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if a.ready() == nil {
				q.look(a.Store.All(), a.Now())
			}
		case d := <-finished:
			q.finished(d)
		}
		for d, ok := q.next(); ok; d, ok = q.next() {
			ends.Go(func() {
				a.endOverdue(ctx, d)
				finished <- d
			})
		}
	}
}

func (a *sessions) endOverdue(ctx context.Context, d due) {
	ctx, cancel := context.WithTimeout(ctx, overdueWithin)
	defer cancel()
	err := a.removeOverdue(ctx, d.account, d.session)
	if err != nil && ctx.Err() == nil && !errors.Is(err, schemas.ErrNotFound) {
		a.Log.Warn("sandbox session not ended, retrying", "account", d.account, "session", d.session.ID, "error", err)
	}
}
