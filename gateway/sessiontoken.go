package gateway

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// authProtocol is offered by a client that will authenticate by its first frame.
const authProtocol = "sandjet.auth"

// authWithin is how long such a client has.
const authWithin = 10 * time.Second

// grant is what a session may do, and the timer that looks after its end.
type grant struct {
	principal

	timer  *time.Timer   // nil: there is nothing to look after
	warn   time.Duration // before its end the client is told that this token ends
	warned bool          // that it was told
}

// begin begins the time of a principal. Of a short token the end is told at half of its time, or else the client
// would never stop renewing it.
func (p *grant) begin(h principal, now time.Time) {
	p.principal, p.warned = h, false
	if h.token != nil {
		p.warn = min(expiringWithin, h.token.Expires.Sub(now)/2)
	}
}

// admit begins the session's time with who opened it. A session that has yet to say who it is ends soon.
func (s *session) admit(h principal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant.begin(h, s.g.Bus.Now())
	switch {
	case h.account == "":
		s.grant.timer = time.AfterFunc(authWithin, s.guard)
	case h.token == nil:
		s.byKey.Store(true)
	default:
		s.grant.timer = time.AfterFunc(0, s.guard)
	}
}

// who is what the session may do at this moment.
func (s *session) who() principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant.principal
}

// guard looks whether the session's token is still good, tells of its end, and ends the session by it.
func (s *session) guard() {
	s.mu.Lock()
	h, timer, warn, warned := s.grant.principal, s.grant.timer, s.grant.warn, s.grant.warned
	s.mu.Unlock()
	switch {
	case s.conn.Closed() || h.account != "" && h.token == nil:
		return
	case h.account == "":
		s.close(CloseAuth, "no auth frame came within 10 s")
		return
	}
	now := s.g.Bus.Now()
	again, why := s.g.lapsed(h, now)
	if why != nil && s.who().token == h.token { // else another came meanwhile, and has set the timer
		s.close(CloseAuth, schemas.Public(why).Message)
	}
	if why != nil {
		return
	}
	left := h.token.Expires.Sub(now)
	if left > warn {
		again = min(again, left-warn)
	} else if !warned {
		s.conn.Write(func(out *wsconn.Out) {
			s.mu.Lock()
			still := s.grant.token == h.token
			s.grant.warned = s.grant.warned || still
			s.mu.Unlock()
			if still {
				s.add(out, serverOp{Op: "expiring", InMS: left.Milliseconds()})
			}
		})
	}
	timer.Reset(again)
}

// unguard ends the looking after.
func (s *session) unguard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grant.timer != nil {
		s.grant.timer.Stop()
	}
}

// auth takes a new token, or the first, and ends the following of what it does not allow.
func (s *session) auth(ctx context.Context, op clientOp) error {
	if !attachtoken.Is(op.Token) && s.who().account != "" {
		return schemas.Invalidf("token", "must be an attach token: POST /v1/attach-tokens makes one")
	}
	h, err := s.g.principal(ctx, op.Token)
	if err != nil {
		return err
	}
	s.conn.Write(func(out *wsconn.Out) { err = s.renew(out, op, h) })
	return err
}

// renew takes who the session belongs to from now on, in the hands of who writes: what it does not allow is not told any more.
func (s *session) renew(out *wsconn.Out, op clientOp, h principal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch former := s.grant.principal; {
	case former.account == "":
		place, err := s.g.takeSocket(h.account)
		if err != nil {
			return err
		}
		s.place.Release() // that of nobody
		s.place, s.account = place, h.account
	case former.account != h.account:
		return schemas.Errorf(schemas.Denied, "", "the attach token is of another account: open another socket")
	case former.token == nil:
		return schemas.Errorf(schemas.Conflict, "", "this socket was opened with the account's key and needs no token")
	}
	s.grant.begin(h, s.g.Bus.Now())
	answer := serverOp{Op: "authed", ID: op.ID}
	if h.token == nil {
		s.byKey.Store(true)
	} else {
		answer.InMS = h.token.Expires.Sub(s.g.Bus.Now()).Milliseconds()
	}
	s.add(out, answer)
	for _, at := range s.attached {
		if err := h.check(attachtoken.Read, at.conv); err != nil {
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

// allow refuses what the session may not do on a conversation. Code: denied.
func (s *session) allow(op attachtoken.Op, c schemas.ConversationID) error {
	return s.who().check(op, c)
}

// mayApprove refuses an answer to a question of a conversation that is not the session's.
func (s *session) mayApprove(ctx context.Context, id schemas.ApprovalID) error {
	if s.who().token == nil {
		return nil
	}
	p, err := lifecycle.FindApproval(ctx, s.g.Bus, s.account, id)
	if err != nil {
		return err
	}
	return s.allow(attachtoken.Approve, p.Value.Call.Conversation)
}

// Wrote implements [wsconn.Handler]: it waits while the account gets more bytes per second than it may. Pings go out meanwhile:
// whoever hears nothing for long takes the connection for dead, and one of whom nothing is heard is closed.
func (s *session) Wrote(n int) {
	const look = time.Second // whether one is due
	s.mu.Lock()
	account := s.account
	s.mu.Unlock()
	for wait := s.g.counters.pace.Take(account, n, time.Now()); wait > 0; wait -= look {
		select {
		case <-time.After(min(wait, look)):
		case <-s.ctx.Done():
			return
		}
		s.conn.PingIfDue()
	}
}
