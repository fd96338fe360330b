package live

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
)

const opWithin = 30 * time.Second // of one operation at the log

// statusCancelling is the status in the answer to a cancellation.
const statusCancelling = "cancelling"

// session is one WebSocket. While it is idle it is one goroutine that reads. To write, a goroutine takes the events from the readers until
// there are none left, and ends. Nothing is queued for a client: events that it has not read stay in the ring or on the log.
type session struct {
	server  *Server
	conn    *wsconn.Conn
	account schemas.AccountID // empty until the client has authenticated
	place   *quota.Place
	ctx     context.Context //nolint:containedctx // a session is its context: it ends by it
	end     context.CancelCauseFunc
	slot    int         // of the ring
	byKey   atomic.Bool // it was opened with an API key: grant stays the same, and Turn checks the key
	batch   batch       // belongs to the goroutine that writes
	room    room        // as above

	// mu guards the fields below. It is locked after acquiring the right to write, if both are needed, and never held during a write.
	mu       sync.Mutex
	attached []*attachment // only the goroutine that writes removes entries
	first    int           // the attachment that is first when the client cannot receive everything at once
	grant    access
	placed   chan struct{} // closed when an attachment was answered; nil: no goroutine waits for that
}

// attachment is one conversation that the client follows.
type attachment struct {
	conv   schemas.ConversationID
	id     *int64 // the client's number of its attach
	reader *replay.Reader
	ready  atomic.Bool // there may be something to send
	batch  bool        // its replay is sent in messages of many events
	failed bool
	placed bool // the attach was answered: events from now on are sent
	place  *quota.Place
}

func newSession(server *Server, conn *wsconn.Conn, a schemas.AccountID) *session {
	s := &session{server: server, conn: conn, account: a}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.room.answers, s.room.copies, s.room.again = server.Answers, 1, conn.Wake
	conn.Begin(s)
	return s
}

// begin registers the session before run starts. It is not part of run, so that the stack of run's goroutine stays small.
func (s *session) begin() {
	s.server.Metrics.Sockets(1)
	if !s.server.ring.Add(s) {
		s.close(CloseDrain, "this gateway stops")
	}
}

// run serves the socket until it is closed, and then releases everything.
func (s *session) run() {
	s.conn.Run()
	s.server.ring.Remove(s)
	s.server.Metrics.Sockets(-1)
	s.unguard()
	s.conn.Write(func(*wsconn.Out) { // no batch is gathered any more
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, at := range s.attached {
			s.forget(at)
		}
		s.attached = nil
		s.place.Release()
		s.room.free()
	})
}

// Slot implements [wsconn.Entry].
func (s *session) Slot() *int { return &s.slot }

// Turn implements [wsconn.Entry]: it closes a session whose API key was revoked, and otherwise keeps the connection alive.
func (s *session) Turn() {
	if s.byKey.Load() && !s.conn.Closed() && !s.server.Credentials.Good(s.grant.Account, s.grant.Key) {
		s.server.running.Go(func() { s.close(CloseAuth, schemas.Public(credentials.ErrKeyGone()).Message) }) // it may wait for a write
		return
	}
	s.conn.KeepAlive()
}

// Closing implements [wsconn.Handler].
func (s *session) Closing(why error) {
	s.end(why)
	if _, dropped := errors.AsType[*wsconn.WriteError](why); dropped {
		s.server.Metrics.Dropped(webSocket)
		if !errors.Is(why, os.ErrDeadlineExceeded) {
			return
		}
		if leftOut, due := s.server.drops.Due("stall"); due {
			s.server.Log.Info("socket dropped, its client does not read", "stall", s.server.Stall, "left_out", leftOut)
		}
	}
}

// Message implements [wsconn.Handler]: it executes the operation in one message.
func (s *session) Message(kind wsconn.Opcode, text []byte) {
	defer func() {
		if p := recover(); p != nil {
			s.server.Log.Error("socket operation panicked", "panic", p)
			s.close(CloseDrain, "internal error")
		}
	}()
	if kind != wsconn.Text {
		s.close(CloseProtocol, "messages must be text")
		return
	}
	op, malformed, err := decodeOp(text)
	if malformed {
		s.say(serverOp{Op: "error", Error: schemas.Public(err)})
		s.close(CloseProtocol, "the message is not a JSON object")
		return
	}
	if err == nil {
		err = s.do(op)
	}
	if err != nil {
		s.say(serverOp{Op: "error", ID: op.ID, Conv: op.Conv, Call: op.Call, Approval: op.Approval, Error: schemas.Public(err)})
	}
}

// do executes one operation. An error is answered by the caller.
func (s *session) do(op clientOp) error {
	if s.account == "" && op.Op != opAuth {
		return schemas.Errorf(schemas.Denied, "authentication required: send {\"op\":\"auth\",\"token\":…} first")
	}
	switch op.Op { // what needs no context leaves none of its traces with the many sockets that do only this
	case opAttach:
		return s.attach(op)
	case opDetach:
		return s.detach(op)
	case opPing:
		s.say(serverOp{Op: "pong", ID: op.ID})
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, opWithin)
	defer cancel()
	if op.Op != opAuth { // what it does shall be seen by what was attached before it
		if err := s.awaitPlaces(ctx); err != nil {
			return err
		}
	}
	switch op.Op {
	case opAuth:
		err := s.auth(ctx, op)
		if err == nil || s.account != "" {
			return err
		}
		s.say(serverOp{Op: "error", ID: op.ID, Error: schemas.Public(err)})
		if schemas.CodeOf(err).Retryable() {
			s.close(CloseLimit, "too many sockets")
		} else {
			s.close(CloseAuth, "the first message did not authenticate")
		}
	case opSend:
		return s.submit(ctx, op)
	case opCancel:
		call, err := s.server.Calls.Find(ctx, s.account, schemas.CallID(op.Call))
		if err == nil {
			err = s.allow(attachtoken.Cancel, call.Conversation)
		}
		if err != nil {
			return err
		}
		if err := s.server.Calls.Cancel(ctx, call, op.Reason); err != nil {
			return err
		}
		s.say(serverOp{Op: "cancelling", ID: op.ID, Call: op.Call, Status: statusCancelling})
	case opApprove:
		if err := s.mayApprove(ctx, schemas.ApprovalID(op.Approval)); err != nil {
			return err
		}
		a, err := s.server.Calls.Decide(ctx, s.account, schemas.ApprovalID(op.Approval), op.answer())
		if err != nil {
			return err
		}
		s.say(serverOp{Op: "decided", ID: op.ID, Call: string(a.Call.ID), Approval: op.Approval, Status: string(a.State)})
	}
	return nil
}

// submit admits a call and answers with its id.
func (s *session) submit(ctx context.Context, op clientOp) error {
	req, err := schemas.DecodeRequest(op.Request)
	if err != nil {
		return web.Rename(err, under("request", err))
	}
	who := s.who()
	if err := who.Check(attachtoken.Send, req.Conversation); err != nil {
		return err
	}
	got, err := s.server.Calls.Send(ctx, s.account, req, who.Reach)
	if err != nil {
		return web.Rename(err, under("request", err))
	}
	answer := serverOp{
		Op: "accepted", ID: op.ID, Call: string(got.Call.ID), Conversation: string(got.Call.Conversation), Existing: got.Existing,
	}
	if got.Awaiting {
		answer.Status, answer.Approval = admission.StatusAwaiting, string(got.Call.Approval)
	}
	s.say(answer)
	return nil
}

// attach begins to follow a conversation; the reader's first step is the answer.
func (s *session) attach(op clientOp) error {
	conv := schemas.ConversationID(op.Conv)
	after, err := schemas.ParseCursor(op.After)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.following(conv) >= 0 {
		return schemas.Errorf(schemas.Conflict, "this socket is attached to the conversation already: detach first")
	}
	if len(s.attached) >= MaxAttached {
		return schemas.Errorf(schemas.Exhausted,
			"this socket follows %d conversations, the most it may: detach from one or open another", MaxAttached)
	}
	if err := s.grant.Check(attachtoken.Read, conv); err != nil {
		return err
	}
	place, err := s.server.Places.Attachment(s.account)
	if err != nil {
		return err
	}
	at := &attachment{conv: conv, id: op.ID, batch: op.Batch, place: place}
	s.attached = append(s.attached, at)
	s.server.Metrics.Following(webSocket, 1)
	at.reader = s.server.follow(View{s.account, conv, after, op.Compact}, func() { at.ready.Store(true); s.conn.Wake() })
	account := s.account
	at.reader.Ask(web.SmallAnswer, func(frame int) bool {
		if s.room.take(account, frame) {
			return true
		}
		at.ready.Store(true)
		return false
	})
	at.ready.Store(true)
	s.conn.Wake()
	return nil
}

// awaitPlaces waits until all earlier attach operations were answered. An attach at "now" asks the log for the present end; what the next
// operation causes must come after it.
func (s *session) awaitPlaces(ctx context.Context) error {
	for {
		s.mu.Lock()
		if !slices.ContainsFunc(s.attached, func(at *attachment) bool { return !at.placed && !at.failed }) {
			s.mu.Unlock()
			return nil
		}
		if s.placed == nil {
			s.placed = make(chan struct{})
		}
		placed := s.placed
		s.mu.Unlock()
		select {
		case <-placed:
		case <-ctx.Done():
			return schemas.Errorf(schemas.Unavailable, "an attach before it was not answered in time: try again")
		}
	}
}

// answered records that an attach was answered, or that its reader has failed.
func (s *session) answered(at *attachment, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at.placed, at.failed = true, at.failed || failed
	if s.placed != nil {
		close(s.placed)
		s.placed = nil
	}
}

// detach stops following a conversation: no event of it is sent after the answer.
func (s *session) detach(op clientOp) (err error) {
	s.conn.Write(func(out *wsconn.Out) {
		if err = s.remove(schemas.ConversationID(op.Conv)); err == nil {
			s.add(out, serverOp{Op: "detached", ID: op.ID, Conv: op.Conv})
		}
	})
	return err
}

// remove removes the attachment of a conversation. The caller has the right to write.
func (s *session) remove(conv schemas.ConversationID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.following(conv)
	if i < 0 {
		return schemas.Errorf(schemas.NotFound, "this socket is not attached to the conversation")
	}
	s.forget(s.attached[i])
	s.attached = slices.Delete(s.attached, i, i+1)
	return nil
}

func (s *session) following(conv schemas.ConversationID) int {
	return slices.IndexFunc(s.attached, func(at *attachment) bool { return at.conv == conv })
}

func (s *session) forget(at *attachment) {
	at.reader.Close()
	at.place.Release()
	s.server.Metrics.Following(webSocket, -1)
}

// under returns the name of the error's field, prefixed with the field outer that contains it.
func under(outer string, err error) string {
	if e, ok := errors.AsType[*schemas.Error](err); ok && e.Field != "" {
		return outer + "." + e.Field
	}
	return outer
}
