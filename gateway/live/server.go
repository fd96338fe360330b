package live

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// The transports, as metrics name them.
const (
	webSocket    = "websocket"
	eventStreams = "sse"
)

// Calls are the operations of sockets on calls and approvals. It must be safe for concurrent use.
type Calls interface {
	// Send admits a call of the account. Allow is called with the resolved call, and its error refuses it. Codes: those of admission.
	Send(ctx context.Context, a schemas.AccountID, r schemas.Request, allow func(schemas.Call) error) (admission.Accepted, error)
	// Find returns a call. Code: not_found.
	Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error)
	// Cancel requests the cancellation of a call. Code: conflict (it has ended).
	Cancel(ctx context.Context, c schemas.Call, reason string) error
	// Approval returns an approval. Code: not_found.
	Approval(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) (schemas.Approval, error)
	// Decide decides an approval. Codes: not_found, conflict.
	Decide(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID, answer schemas.ApprovalAnswer) (schemas.Approval, error)
}

// Metrics are the callbacks of a server. They are called from many goroutines. A transport is "websocket" or "sse".
type Metrics struct {
	Sockets   func(more int)                   // a number of WebSockets was opened, or, if negative, closed
	Following func(transport string, more int) // a number of conversations is followed in addition, or, if negative, no longer
	Dropped   func(transport string)           // a write failed, which ended the connection
}

// Options are the settings of a [Server]. All but Answers, Origins, Compression and ReplayBytes are required.
type Options struct {
	Bus         *streams.Bus
	Log         *slog.Logger
	Credentials credentials.Verifier
	Calls       Calls
	Places      *Places
	// Answers counts the memory for unread events. Nil: no limit.
	Answers *quota.Ledger
	Metrics Metrics
	// Draining is done when the gateway stops: sockets then get a bye and are closed, event streams end, and waiting requests are
	// answered.
	Draining context.Context //nolint:containedctx // it is a signal to all connections, not the context of one
	// Origins are the browser origins that may open WebSockets beside pages of the gateway's own host.
	Origins []string
	// Heartbeat is the longest silence of an event stream.
	Heartbeat time.Duration
	// Stall is how long one write may block before its client is dropped.
	Stall time.Duration
	// ReplayBytes is about how much memory is used for frames of conversations, in bytes. Default [replay.DefaultBudget].
	ReplayBytes int
	// Compression allows WebSockets to negotiate the compression of replays.
	Compression bool
}

// Server serves conversations to clients as they happen, by WebSockets, event streams and long polls. It is safe for concurrent use.
type Server struct {
	Options

	upgrader *wsconn.Server
	ring     wsconn.Ring[*session]
	streams  wsconn.Ring[*eventConn]
	buffers  wsconn.Buffers // of event streams
	entrance sync.Mutex     // between enter and Wait
	running  sync.WaitGroup // handlers, and streams that outlive them: net/http does not wait for those
	start    sync.Once
	hub      *replay.Hub // made by conversations
	drops    sometimes.Counted
}

// New returns a server. It starts no goroutines before the first client connects.
func New(o Options) *Server {
	s := &Server{Options: o}
	s.upgrader = newUpgrader(o)
	return s
}

// Wait blocks until all connections have ended, which they do after Draining has. It must be called after that.
func (s *Server) Wait() {
	s.entrance.Lock()   // all requests that have entered are counted, and no further one enters
	s.entrance.Unlock() //nolint:staticcheck // that is all: enter has ended
	s.running.Wait()
}

// enter registers a handler that Wait waits for. Without it, a connection that was taken over from net/http but is not counted yet would
// be missed. Code unavailable: the gateway drains.
func (s *Server) enter() (leave func(), err error) {
	s.entrance.Lock()
	defer s.entrance.Unlock()
	if s.Draining.Err() != nil {
		return nil, schemas.Errorf(schemas.Unavailable, "this gateway is stopping: reconnect")
	}
	s.running.Add(1)
	return s.running.Done, nil
}

func newUpgrader(o Options) *wsconn.Server {
	return wsconn.NewServer(wsconn.Options{
		Subprotocols: []string{Subprotocol}, MaxMessage: MaxFrame, Compression: o.Compression, Stall: o.Stall,
		CheckOrigin: func(r *http.Request) bool { return web.AllowedOrigin(r, o.Origins) },
		Refuse: func(w http.ResponseWriter, _ *http.Request, code int, reason error) {
			var err error = &schemas.Error{Code: schemas.Invalid, Message: reason.Error()}
			if code == http.StatusForbidden {
				err = schemas.Errorf(schemas.Denied, "origin not allowed: the operator can allow it with --origins")
			}
			web.WriteProblem(w, web.WithStatus(code, err))
		},
		Translate: func(why wsconn.CloseError) wsconn.CloseError {
			if why.Code == wsconn.CloseTooLarge {
				why.Reason = "the message is larger than 65536 bytes: use POST /v1/calls"
			}
			why.Code = wsconn.CloseCode(CloseProtocol)
			return why
		},
	})
}

// Upgrade opens a WebSocket. It returns as soon as that is done, which frees net/http's buffers; the session continues in goroutines of
// its own. A returned error must be answered as a problem. Codes: denied, exhausted, unavailable.
func (s *Server) Upgrade(w http.ResponseWriter, r *http.Request) error {
	shake, err := s.Places.handshake()
	if err != nil {
		web.Later(w.Header())
		return err
	}
	defer shake.Release()
	who, err := s.principal(r)
	if err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		web.Later(w.Header()) // not all of its clients at once
		return err
	}
	defer leave()
	place, err := s.Places.Socket(who.Account)
	if err != nil {
		web.Later(w.Header())
		return err
	}
	conn, err := s.upgrader.Upgrade(w, r)
	if err != nil {
		place.Release()
		return nil // it was answered
	}
	s.conversations() // the ring turns
	session := newSession(s, conn, who.Account)
	session.place = place
	session.admit(who)
	session.begin()
	s.running.Go(session.run)
	return nil
}

// principal returns the owner of the credential that opens a socket; the zero Principal if the client will authenticate in its first
// message.
func (s *Server) principal(r *http.Request) (credentials.Principal, error) {
	credential := socketKey(r.Header)
	if credential == "" && wsconn.Offers(r, authProtocol) {
		return credentials.Principal{}, nil
	}
	return s.Credentials.Principal(r.Context(), credential)
}

// conversations returns the hub. The first call starts the goroutines of the hub and of the rings, which run until the gateway drains.
func (s *Server) conversations() *replay.Hub {
	s.start.Do(func() {
		s.hub = replay.New(replay.NewBusLog(s.Bus), replay.Options{Log: s.Log, Budget: s.ReplayBytes})
		s.running.Go(func() {
			if err := s.hub.Run(s.Draining); err != nil {
				s.Log.Error("stopped following conversations", "error", err)
			}
		})
		s.running.Go(func() {
			for _, open := range s.ring.Run(s.Draining, wsconn.Round) {
				s.running.Go(func() { open.close(CloseDrain, "this gateway stops") })
			}
		})
		s.running.Go(func() {
			for _, c := range s.streams.Run(s.Draining, s.Heartbeat) {
				c.stop()
			}
		})
	})
	return s.hub
}

// View is what a client asks to read: a conversation, the cursor after which it begins, and the form.
type View struct {
	Account      schemas.AccountID
	Conversation schemas.ConversationID
	After        schemas.Cursor
	Compact      bool // the output of finished calls is left out, since their results contain it
}

// Follows reports whether this server follows the conversation already, so that reading it costs the log nothing.
func (s *Server) Follows(v View) bool { return s.conversations().Follows(v.Account, v.Conversation) }

// follow attaches a reader to a conversation.
func (s *Server) follow(v View, wake func()) *replay.Reader {
	if v.Compact {
		return s.conversations().AttachCompact(v.Account, v.Conversation, v.After, wake)
	}
	return s.conversations().Attach(v.Account, v.Conversation, v.After, wake)
}

// socketKey returns the credential in the Authorization header or, for browsers, in the offered subprotocols; empty if there is none.
func socketKey(h http.Header) string {
	if key := web.Bearer(h); key != "" {
		return key
	}
	for _, line := range h.Values("Sec-Websocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if key, ok := strings.CutPrefix(strings.TrimSpace(p), keyProtocol); ok {
				return key
			}
		}
	}
	return ""
}
