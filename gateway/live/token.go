package live

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
)

// authProtocol is the subprotocol of a client that will authenticate in its first message.
const authProtocol = "sandjet.auth"

// authWithin is the time limit for that message.
const authWithin = 10 * time.Second

// access is the principal of a session, and the timer that checks its credential.
type access struct {
	credentials.Principal

	timer  *time.Timer   // nil: there is nothing to check
	warn   time.Duration // the client is warned this long before the token expires
	warned bool          // the warning was sent
}

// begin sets the principal. The client of a token is warned ExpiringWithin before its end, or at half of its remaining time if that is
// later; otherwise the client of a short token would renew it without pause.
func (a *access) begin(h credentials.Principal, now time.Time) {
	a.Principal, a.warned = h, false
	if h.Token != nil {
		a.warn = min(credentials.ExpiringWithin, h.Token.Expires.Sub(now)/2)
	}
}

// admit sets the principal that opened the session, and starts the checks of its credential. A session that has yet to authenticate is
// closed after authWithin.
func (s *session) admit(h credentials.Principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant.begin(h, s.server.Credentials.Now())
	switch {
	case h.Account == "":
		s.grant.timer = time.AfterFunc(authWithin, s.guard)
	case h.Token == nil:
		s.byKey.Store(true)
	default:
		s.grant.timer = time.AfterFunc(0, s.guard)
	}
}

// who returns the session's present principal.
func (s *session) who() credentials.Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant.Principal
}

// guard is called by the timer. It closes the session if its token is no longer valid, or if the client has not authenticated in time, and
// warns the client before the token ends.
func (s *session) guard() {
	s.mu.Lock()
	h, timer, warn, warned := s.grant.Principal, s.grant.timer, s.grant.warn, s.grant.warned
	s.mu.Unlock()
	switch {
	case s.conn.Closed() || h.Account != "" && h.Token == nil:
		return
	case h.Account == "":
		s.close(CloseAuth, "no auth frame came within 10 s")
		return
	}
	now := s.server.Credentials.Now()
	again, why := s.server.Credentials.Lapsed(h, now)
	if why != nil && s.who().Token == h.Token { // else another came meanwhile, and has set the timer
		s.close(CloseAuth, schemas.Public(why).Message)
	}
	if why != nil {
		return
	}
	left := h.Token.Expires.Sub(now)
	if left > warn {
		again = min(again, left-warn)
	} else if !warned {
		s.conn.Write(func(out *wsconn.Out) {
			s.mu.Lock()
			still := s.grant.Token == h.Token
			s.grant.warned = s.grant.warned || still
			s.mu.Unlock()
			if still {
				s.add(out, serverOp{Op: "expiring", InMS: left.Milliseconds()})
			}
		})
	}
	timer.Reset(again)
}

// unguard stops the checks.
func (s *session) unguard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grant.timer != nil {
		s.grant.timer.Stop()
	}
}

// auth replaces the session's credential, or sets its first, and detaches conversations that the new one does not allow.
func (s *session) auth(ctx context.Context, op clientOp) error {
	if !attachtoken.Is(op.Token) && s.who().Account != "" {
		return schemas.Invalidf("token", "must be an attach token: POST /v1/attach-tokens makes one")
	}
	h, err := s.server.Credentials.Principal(ctx, op.Token)
	if err != nil {
		return err
	}
	s.conn.Write(func(out *wsconn.Out) { err = s.renew(out, op, h) })
	return err
}

// renew sets the session's new principal and detaches the conversations that it does not allow. The caller has the right to write.
func (s *session) renew(out *wsconn.Out, op clientOp, h credentials.Principal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch former := s.grant.Principal; {
	case former.Account == "":
		place, err := s.server.Places.Socket(h.Account)
		if err != nil {
			return err
		}
		s.place.Release() // that of the client not yet known
		s.place, s.account = place, h.Account
	case former.Account != h.Account:
		return schemas.Errorf(schemas.Denied, "the attach token is of another account: open another socket")
	case former.Token == nil:
		return schemas.Errorf(schemas.Conflict, "this socket was opened with the account's key and needs no token")
	}
	s.grant.begin(h, s.server.Credentials.Now())
	answer := serverOp{Op: "authed", ID: op.ID}
	if h.Token == nil {
		s.byKey.Store(true)
	} else {
		answer.InMS = h.Token.Expires.Sub(s.server.Credentials.Now()).Milliseconds()
	}
	s.add(out, answer)
	for _, at := range s.attached {
		if err := h.Check(attachtoken.Read, at.conv); err != nil {
			at.failed = true
			s.add(out, serverOp{Op: "error", ID: at.id, Conv: string(at.conv), Error: schemas.Public(err)})
		}
	}
	s.drop()
	if s.grant.timer == nil {
		s.grant.timer = time.AfterFunc(0, s.guard)
	} else {
		s.grant.timer.Reset(0)
	}
	return nil
}

// allow checks that the session may do op on a conversation. Code: denied.
func (s *session) allow(op attachtoken.Op, c schemas.ConversationID) error {
	return s.who().Check(op, c)
}

// mayApprove checks that the session may answer an approval: a token must allow it for the conversation of the call. Codes: denied,
// not_found.
func (s *session) mayApprove(ctx context.Context, id schemas.ApprovalID) error {
	if s.who().Token == nil {
		return nil
	}
	asked, err := s.server.Calls.Approval(ctx, s.account, id)
	if err != nil {
		return err
	}
	return s.allow(attachtoken.Approve, asked.Call.Conversation)
}

// Wrote implements [wsconn.Handler]: it blocks while the account exceeds its rate of bytes per second. Pings are sent meanwhile, since
// clients take a connection for dead on which they receive nothing for long, and the gateway closes a connection from which it receives
// nothing.
func (s *session) Wrote(n int) {
	const look = time.Second // whether one is due
	s.room.free()
	s.mu.Lock()
	account := s.account
	s.mu.Unlock()
	for wait := s.server.Places.pace.Take(account, n, time.Now()); wait > 0; wait -= look {
		select {
		case <-time.After(min(wait, look)):
		case <-s.ctx.Done():
			return
		}
		s.conn.PingIfDue()
	}
}
