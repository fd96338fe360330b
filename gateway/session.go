package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/gateway/admission"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	pingEvery   = 25 * time.Second
	pongWithin  = 2*pingEvery + 10*time.Second // silence of the client after which it is taken for gone
	opWithin    = 30 * time.Second             // of one operation at the log
	closeWithin = time.Second                  // of the last frames to a client that may not read
	framesAhead = 16                           // frames of at most 768 KiB gathered for one socket; more waits in the log
)

// closed is why a session ends.
type closed struct {
	code CloseCode // 0: the client has gone, there is nobody to tell
	text string
}

func (c *closed) Error() string { return c.text }

// session is one WebSocket. One goroutine reads, one writes, and each attached conversation has
// one that follows it. Followers hand frames to the writer over a bounded channel and wait while it
// is full: a slow reader costs a fixed amount of memory, and what it has not read stays in the log.
type session struct {
	g       *Gateway
	conn    *websocket.Conn
	account schemas.AccountID
	ctx     context.Context //nolint:containedctx // a session is its context: it ends by it
	end     context.CancelCauseFunc
	out     chan []byte

	followers sync.WaitGroup
	attached  map[schemas.ConversationID]*attachment // of the reader alone
}

// attachment is one followed conversation.
type attachment struct {
	conv schemas.ConversationID
	stop context.CancelFunc
	done chan struct{}
	prev string // cursor of the frame before
	live bool
}

func newSession(g *Gateway, conn *websocket.Conn, a schemas.AccountID) *session {
	s := &session{
		g: g, conn: conn, account: a, out: make(chan []byte, framesAhead),
		attached: map[schemas.ConversationID]*attachment{},
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

// run lives as long as the socket.
func (s *session) run() {
	s.g.metrics.sockets.Inc()
	defer s.g.metrics.sockets.Dec()
	defer context.AfterFunc(s.g.draining, func() { s.end(&closed{CloseDrain, "this gateway stops"}) })()
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write()
	}()
	s.read()
	<-written
	s.followers.Wait()
}

// read takes frames until the socket ends.
func (s *session) read() {
	defer func() {
		if p := recover(); p != nil {
			s.g.Log.Error("a socket's operation panicked", "panic", p)
			s.end(&closed{CloseDrain, "internal error"})
		}
	}()
	alive := func() { _ = s.conn.SetReadDeadline(time.Now().Add(pongWithin)) } // shows at the next read
	s.conn.SetPongHandler(func(string) error { alive(); return nil })
	for {
		alive()
		kind, r, err := s.conn.NextReader()
		if err != nil {
			s.end(&closed{0, "the client has gone"})
			return
		}
		if kind != websocket.TextMessage {
			s.end(&closed{CloseProtocol, "frames must be text"})
			return
		}
		frame, err := io.ReadAll(io.LimitReader(r, MaxFrame+1))
		if err != nil {
			s.end(&closed{0, "the client has gone"})
			return
		}
		if len(frame) > MaxFrame {
			s.end(&closed{CloseProtocol, "a frame is larger than 65536 bytes: use POST /v1/calls"})
			return
		}
		op, malformed, err := decodeOp(frame)
		if malformed {
			s.send(serverOp{Op: "error", Error: schemas.Public(err)})
			s.end(&closed{CloseProtocol, "a frame is not a JSON object"})
			return
		}
		if err == nil {
			err = s.do(op)
		}
		if err != nil {
			s.send(serverOp{Op: "error", ID: op.ID, Conv: op.Conv, Call: op.Call, Approval: op.Approval, Error: schemas.Public(err)})
		}
		if s.ctx.Err() != nil {
			return
		}
	}
}

// do carries out one operation. Operations of a socket are carried out in order.
func (s *session) do(op clientOp) error {
	ctx, cancel := context.WithTimeout(s.ctx, opWithin)
	defer cancel()
	switch op.Op {
	case opAttach:
		return s.attach(op)
	case opDetach:
		conv := schemas.ConversationID(op.Conv)
		at := s.attached[conv]
		if at == nil {
			return schemas.Errorf(schemas.NotFound, "", "this socket is not attached to the conversation")
		}
		at.stop()
		<-at.done // no frame of it comes after the answer
		delete(s.attached, conv)
		s.send(serverOp{Op: "detached", ID: op.ID, Conv: op.Conv})
	case opSend:
		req, err := schemas.DecodeRequest(op.Request)
		if err != nil {
			return rename(err, under("request", err))
		}
		door := admission.Door{Bus: s.g.Bus, Records: s.g.Records, Kind: admission.WebSocket, Log: s.g.Log}
		got, err := door.Admit(ctx, s.account, req)
		if err != nil {
			return rename(err, under("request", err))
		}
		s.g.metrics.accepted(admission.WebSocket, got.Existing)
		answer := serverOp{
			Op: "accepted", ID: op.ID, Call: string(got.Call.ID), Conversation: string(got.Call.Conversation), Existing: got.Existing,
		}
		if got.Awaiting {
			answer.Status, answer.Approval = stateAwaiting, string(got.Call.Approval)
		}
		s.send(answer)
	case opCancel:
		call, err := s.g.lookUp(ctx, s.account, schemas.CallID(op.Call))
		if err != nil {
			return err
		}
		if err := s.g.cancel(ctx, call, admission.WebSocket, op.Reason); err != nil {
			return err
		}
		s.send(serverOp{Op: "cancelling", ID: op.ID, Call: op.Call, Status: stateCancelling})
	case opApprove:
		a, err := s.g.approvals().Decide(ctx, s.account, schemas.ApprovalID(op.Approval), decision(*op.Approved, admission.WebSocket, op.Reason))
		if err != nil {
			return err
		}
		s.send(serverOp{Op: "decided", ID: op.ID, Call: string(a.Call.ID), Approval: op.Approval, Status: string(a.State)})
	case opPing:
		s.send(serverOp{Op: "pong", ID: op.ID})
	}
	return nil
}

// attach begins to follow a conversation; the answer is the first frame of the follower.
func (s *session) attach(op clientOp) error {
	conv := schemas.ConversationID(op.Conv)
	for id, at := range s.attached { // those that ended by themselves
		select {
		case <-at.done:
			delete(s.attached, id)
		default:
		}
	}
	if s.attached[conv] != nil {
		return schemas.Errorf(schemas.Conflict, "", "this socket is attached to the conversation already: detach first")
	}
	if len(s.attached) >= MaxAttached {
		return schemas.Errorf(schemas.Exhausted, "", "this socket follows %d conversations, the most it may: detach from one or open another", MaxAttached)
	}
	after, err := schemas.ParseCursor(op.After)
	if err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	ctx, stop := context.WithCancel(s.ctx)
	at := &attachment{conv: conv, stop: stop, done: make(chan struct{}), prev: after.String()}
	s.attached[conv] = at
	s.followers.Go(func() {
		defer close(at.done)
		defer stop()
		s.g.metrics.following.WithLabelValues("websocket").Inc()
		defer s.g.metrics.following.WithLabelValues("websocket").Dec()
		s.follow(ctx, at, op.ID, after)
	})
	return nil
}

// follow hands the frames of one conversation to the writer until ctx ends.
func (s *session) follow(ctx context.Context, at *attachment, id *int64, after schemas.Cursor) {
	for item, err := range streams.Follow(ctx, s.g.Bus, s.account, at.conv, after) {
		if ctx.Err() != nil {
			return
		}
		if err != nil { // the conversation is detached by it; the client attaches again after its cursor
			s.sendIn(ctx, serverOp{Op: "error", ID: id, Conv: string(at.conv), Error: schemas.Public(err)})
			return
		}
		for _, op := range at.frames(item, id) {
			if !s.sendIn(ctx, op) {
				return
			}
		}
	}
}

// frames tells one item of a conversation. Every ev names the cursor before it, so that a client
// can prove that it has them all.
func (at *attachment) frames(it streams.Item, id *int64) []serverOp {
	conv := string(at.conv)
	var ops []serverOp
	if it.Kind != streams.ItemAttached && it.Gap != nil {
		ops = append(ops, serverOp{Op: "gap", Conv: conv, Recovered: new(false), Gap: it.Gap})
	}
	switch it.Kind {
	case streams.ItemAttached:
		if at.prev == schemas.Tail.String() {
			at.prev = it.Head.String()
		}
		op := serverOp{Op: "attached", ID: id, Conv: conv, Head: it.Head.String(), Recovered: new(it.Recovered)}
		if it.Gap != nil {
			op.Gap = it.Gap
		}
		ops = append(ops, op)
	case streams.ItemEvent:
		data, err := json.Marshal(it.Entry.Value)
		if err != nil {
			data = []byte(`null`) // a stored event whose data is no JSON: tell it rather than leave a hole
		}
		cur := it.Entry.Cursor.String()
		ops = append(ops, serverOp{Op: "ev", Conv: conv, Cur: cur, Prev: at.prev, Replay: !at.live, Data: data})
		at.prev = cur
	case streams.ItemLive:
		at.live = true
		ops = append(ops, serverOp{Op: "live", Conv: conv, Cur: it.Head.String()})
	}
	return ops
}

// send hands a frame to the writer and waits while it is behind.
func (s *session) send(op serverOp) { s.sendIn(s.ctx, op) }

// sendIn is send for a part of the session; it reports false once ctx has ended.
func (s *session) sendIn(ctx context.Context, op serverOp) bool {
	b, err := json.Marshal(op)
	if err != nil {
		s.g.Log.Error("a frame could not be encoded", "op", op.Op, "error", err)
		return true
	}
	select {
	case s.out <- b:
		return true
	case <-ctx.Done():
		return false
	}
}

// write writes frames until the session ends, then says why and closes the connection, which ends
// the reader too.
func (s *session) write() {
	defer s.conn.Close() //nolint:errcheck // nothing can be done about it
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-s.ctx.Done():
			s.farewell()
			return
		case b := <-s.out:
			if err = s.conn.SetWriteDeadline(time.Now().Add(s.g.Stall)); err == nil {
				err = s.conn.WriteMessage(websocket.TextMessage, b)
			}
		case <-ping.C:
			err = s.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.g.Stall))
		}
		if err != nil {
			s.end(&closed{CloseBehind, "the client does not read"})
			s.g.metrics.dropped.WithLabelValues("websocket").Inc()
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				s.g.Log.Info("a socket was dropped: a write stood still", "stall", s.g.Stall)
			}
			s.farewell()
			return
		}
	}
}

// farewell writes what was answered already, bye if the client should come back, and the close
// frame. After a write that stood still nothing of this arrives: the connection just ends.
func (s *session) farewell() {
	why, ok := errors.AsType[*closed](context.Cause(s.ctx))
	if !ok || why.code == 0 {
		return
	}
	deadline := time.Now().Add(closeWithin)
	_ = s.conn.SetWriteDeadline(deadline) // shows at the write
	for more := true; more; {
		select {
		case b := <-s.out:
			more = s.conn.WriteMessage(websocket.TextMessage, b) == nil
		default:
			more = false
		}
	}
	if why.code == CloseDrain {
		bye := serverOp{Op: "bye", Code: why.code, RetryMS: comeBack().Milliseconds()}
		if b, err := json.Marshal(bye); err == nil {
			_ = s.conn.WriteMessage(websocket.TextMessage, b) // the client may have gone
		}
	}
	msg := websocket.FormatCloseMessage(int(why.code), why.text)
	if s.conn.WriteControl(websocket.CloseMessage, msg, deadline) == nil {
		s.linger()
	}
}

// linger reads away what the client still sends until it closes too, for a moment: closing with
// unread bytes would reset the connection, and the client might never see why it was closed.
func (s *session) linger() {
	nc := s.conn.NetConn()
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it is closed whole in a moment
	}
	defer time.AfterFunc(closeWithin, func() { _ = nc.Close() }).Stop() // as above
	_, _ = io.Copy(io.Discard, nc)                                      // it ends by the close
}

// under names a field inside another.
func under(outer string, err error) string {
	if e, ok := errors.AsType[*schemas.Error](err); ok && e.Field != "" {
		return outer + "." + e.Field
	}
	return outer
}
