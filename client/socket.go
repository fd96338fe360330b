package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	dialWithin  = 15 * time.Second
	writeWithin = 10 * time.Second
	quiet       = 60 * time.Second // silence after which a socket is taken for dead: gateways ping every 25 s

	closeAuth  = 4002 // the token is no longer good
	closeFinal = 4500 // from here on, coming back would end the same way
)

// Socket is one WebSocket to a gateway that follows any number of conversations and sends operations. It reconnects whenever the
// connection ends; conversations and operations then continue from where they were. It is safe for concurrent use, also before
// [Socket.Run]; its methods wait while there is no connection.
type Socket struct {
	// Token returns the credential, for each connection and again before it expires. Nil means the client's key. Set it before Run.
	Token func(context.Context) (string, error)
	// Dialer opens connections. Nil means one with a time limit of 15 s, which takes compressed messages where the
	// gateway's operator lets them be. Set it before Run.
	Dialer *websocket.Dialer
	// Batch asks for the history of conversations in messages of many events, which is quicker for long ones and
	// without which little of it can be compressed. Set it before Run.
	Batch bool

	transport transport

	mu        sync.Mutex
	conn      *websocket.Conn // nil while there is none
	lastID    int64
	followers map[schemas.ConversationID]*follower
	questions map[int64]*question
	over      error // why it has ended for good
}

// Socket returns a socket to the client's gateway. It connects when [Socket.Run] is called.
func (c *Client) Socket() *Socket {
	return &Socket{transport: c.transport(), followers: map[schemas.ConversationID]*follower{}, questions: map[int64]*question{}}
}

// Run keeps the socket connected until ctx ends, and then returns nil. An error is permanent, such as a rejected key. In both cases
// everything that waits on the socket ends with an error.
func (s *Socket) Run(ctx context.Context) error {
	refused, tooLarge := false, false
	for try := 0; ; try++ {
		h, err := s.once(ctx)
		switch {
		case ctx.Err() != nil:
			s.end(fmt.Errorf("the socket was closed: %w", ctx.Err()))
			return nil //nolint:nilerr // it was asked to end
		case h.final && (h.received || refused || s.Token == nil || !errors.Is(err, schemas.ErrDenied)):
			s.end(err)
			return err
		case h.tooLarge && tooLarge: // twice in a row: the log has it, so it would come with each connection
			s.end(err)
			return err
		}
		tooLarge = h.tooLarge
		refused = h.final // once: another token may be better
		if h.received {
			try = 0
		}
		if h.comeBack > 0 {
			if wait.Sleep(ctx, h.comeBack) {
				continue
			}
		} else if s.transport.pause(ctx, try) == nil {
			continue
		}
		s.end(fmt.Errorf("the socket was closed: %w", ctx.Err()))
		return nil
	}
}

// history describes a connection that has ended.
type history struct {
	received bool          // something came: the next pause is short again
	final    bool          // another would end the same way
	tooLarge bool          // a message came that is too large
	comeBack time.Duration // the pause that the gateway asked for
}

// once opens one connection and serves it until it ends.
func (s *Socket) once(ctx context.Context) (history, error) {
	conn, h, err := s.dial(ctx)
	if err != nil {
		return h, err
	}
	defer conn.Close() //nolint:errcheck // nothing can be done about it
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(quiet)) } // shows at the next read
	pong := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		alive()
		return pong(data)
	})
	conn.SetReadLimit(mostFrame)
	s.connected(conn)
	defer s.disconnected()
	for {
		alive()
		b, err := readMessage(conn)
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok && ce.Code >= closeFinal {
			h.final = true
			return h, schemas.Errorf(schemas.Invalid, "the gateway ended the connection for good: %s", ce.Text)
		} else if ok && ce.Code == closeAuth && s.Token == nil {
			h.final = true
			return h, schemas.Errorf(schemas.Denied, "the key is no longer good: %s", ce.Text)
		}
		if err != nil {
			h.tooLarge = errors.Is(err, errFrame)
			return h, fmt.Errorf("read the socket: %w", err)
		}
		var f wsFrame
		if err := json.Unmarshal(b, &f); err != nil || f.Op == "" {
			h.final = true
			return h, schemas.Errorf(schemas.Invalid, "what came is not Sandjet's protocol: is the URL a gateway's?")
		}
		h.received = true
		switch f.Op {
		case "bye":
			h.comeBack = time.Duration(f.RetryMS) * time.Millisecond
		case "expiring":
			go s.renew(ctx, conn)
		case "batch":
			for _, one := range f.Frames {
				s.dispatch(one)
			}
		default:
			s.dispatch(f)
		}
	}
}

func (s *Socket) dial(ctx context.Context) (*websocket.Conn, history, error) {
	token := s.transport.key
	if s.Token != nil {
		var err error
		if token, err = s.Token(ctx); err != nil {
			return nil, history{}, fmt.Errorf("get a token: %w", err)
		}
	}
	d := s.Dialer
	if d == nil {
		d = &websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: dialWithin, EnableCompression: true}
	}
	header := http.Header{"Authorization": {"Bearer " + token}}
	conn, resp, err := d.DialContext(ctx, "ws"+strings.TrimPrefix(s.transport.base, "http")+"/v1/ws", header)
	if err == nil {
		conn.EnableWriteCompression(false) // what is small gains nothing
		return conn, history{}, nil
	}
	if resp == nil {
		return nil, history{}, fmt.Errorf("open a socket: %w", err)
	}
	defer resp.Body.Close()                                  //nolint:errcheck // it is only read
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // the status says enough
	return nil, history{final: !passing(resp.StatusCode)}, problem(resp.StatusCode, body)
}

// readMessage reads a message. Its size is limited, also after decompression.
func readMessage(conn *websocket.Conn) ([]byte, error) {
	_, r, err := conn.NextReader()
	if errors.Is(err, websocket.ErrReadLimit) {
		return nil, errFrame
	}
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, mostFrame+1))
	if err == nil && len(b) > mostFrame || errors.Is(err, websocket.ErrReadLimit) {
		err = errFrame
	}
	return b, err
}

// connected attaches all followers and sends all open questions on a new connection.
func (s *Socket) connected(conn *websocket.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	for _, f := range s.followers {
		s.attach(f)
	}
	for _, q := range s.questions {
		s.put(q)
	}
}

func (s *Socket) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = nil
	for _, f := range s.followers {
		f.request, f.answered = 0, false
	}
}

// end ends all followers and questions with an error.
func (s *Socket) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = why
	for _, f := range s.followers {
		f.finish(why)
	}
	for id := range s.questions {
		s.answered(id, answered{err: why})
	}
}

// renew sends a new token on a connection whose token expires soon. If it gets none, the gateway closes the connection, and the next one
// asks for a token again.
func (s *Socket) renew(ctx context.Context, conn *websocket.Conn) {
	if s.Token == nil {
		return
	}
	token, err := s.Token(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == conn {
		s.lastID++
		s.write(map[string]any{"op": "auth", "id": s.lastID, "token": token})
	}
}

// write sends a message if there is a connection, and reports whether it did. A failed write closes the connection, which the reader then
// notices. The caller holds the mutex.
func (s *Socket) write(frame map[string]any) bool {
	if s.conn == nil {
		return false
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeWithin)) // shows at the write
	if s.conn.WriteJSON(frame) != nil {
		_ = s.conn.Close() // it is broken already
		return false
	}
	return true
}
