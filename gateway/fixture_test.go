package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natsauth"
)

const (
	alice    schemas.AccountID = "acct_alice"
	bob      schemas.AccountID = "acct_bob"
	aliceKey                   = "sk_alice"
	bobKey                     = "sk_bob"

	within = 90 * time.Second // of everything that must happen at all
)

// TestMain wants no goroutine left behind. Servers of the log and connections end in their own time, for which a
// busy machine may need more than goleak waits by itself.
func TestMain(m *testing.M) {
	code := m.Run()
	ticker := goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1") // one per process, see natstest
	for end := time.Now().Add(within); code == 0; {
		err := goleak.Find(ticker)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// book is the records of a test: two accounts whose calls go to the provider "fake".
type book struct{}

func (book) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	switch key {
	case aliceKey:
		return alice, nil
	case bobKey:
		return bob, nil
	case "sk_panic":
		panic("a defect")
	case "sk_broken":
		return "", errors.New("dial 10.0.0.1: secret")
	}
	return "", schemas.Errorf(schemas.Denied, "no")
}

func (book) Resolve(_ context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	if a != alice && a != bob {
		return schemas.Call{}, &schemas.Error{Code: schemas.NotFound, Field: "account", Message: "there is no account " + string(a)}
	}
	if r.Sandbox != "" {
		return schemas.Call{}, &schemas.Error{Code: schemas.NotFound, Field: "sandbox", Message: "there is no sandbox " + r.Sandbox}
	}
	now := time.Now().UTC()
	if !r.Deadline.IsZero() && !r.Deadline.After(now) {
		return schemas.Call{}, schemas.Invalidf("deadline", "has passed")
	}
	c := schemas.Call{
		ID: r.ID, Account: a, Conversation: r.Conversation, Tool: r.Tool, Input: r.Input, Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour),
		Origin: r.Origin, Group: r.Group, TraceParent: r.TraceParent, Digest: r.Digest(), Misuse: r.Misuse(),
	}
	if c.ID == "" {
		c.ID = schemas.NewCallID()
	}
	if c.Conversation == "" {
		c.Conversation = schemas.NewConversationID()
	}
	return c, nil
}

var _ gateway.Records = book{}

// edge is a gateway over a real log: an embedded server with alice as a tenant of her own.
type edge struct {
	t      *testing.T
	server *streams.Server
	bus    *streams.Bus
	gw     *gateway.Gateway
	url    string
	client *http.Client
	dialer *websocket.Dialer
}

func open(t *testing.T, change ...func(*gateway.Options)) *edge {
	t.Helper()
	return openLog(t, true, change...)
}

// openOnDisk is open for tests that restart the server: in memory it would forget all. It takes twice as long.
func openOnDisk(t *testing.T, change ...func(*gateway.Options)) *edge {
	t.Helper()
	return openLog(t, false, change...)
}

func openLog(t *testing.T, memory bool, change ...func(*gateway.Options)) *edge {
	t.Helper()
	return openLogOf(t, memory, nil, change...)
}

func openLogOf(t *testing.T, memory bool, quotas *streams.Quotas, change ...func(*gateway.Options)) *edge {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	auth, err := natsauth.New(natsauth.Options{Users: []natsauth.User{{Name: "role", Password: "role"},
		{Name: "alice", Password: "alice", Account: alice}}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := streams.StartServer(ctx, embedded.Options{
		DataDir: t.TempDir(), Host: "127.0.0.1", Durability: "os", Auth: auth, Memory: memory,
	}, fair.Shares{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	bus, err := streams.Open(ctx, streams.Options{Server: server, Shards: 1, MemoryStorage: memory, Quotas: quotas})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := bus.Close(ctx); err != nil {
			t.Errorf("close the bus: %v", err)
		}
	})
	o := gateway.Options{
		Bus: bus, Records: book{}, Version: "1.0.0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Providers: []string{"fake"}, DurableStreams: true,
	}
	for _, c := range change {
		c(&o)
	}
	gw := gateway.New(o)
	srv := httptest.NewServer(gw)
	t.Cleanup(func() {
		gw.Drain()
		srv.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &edge{t: t, server: server, bus: bus, gw: gw, url: srv.URL, client: http.DefaultClient, dialer: websocket.DefaultDialer}
}

// tenant connects alice's own NATS client.
func (e *edge) tenant() *natstest.Client {
	e.t.Helper()
	return natstest.Dial(e.t, e.server.URL(), "alice", "alice")
}

// background runs a part until the test ends and then wants it to return nil.
func (e *edge) background(run func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	e.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				e.t.Errorf("a part ended with %v", err)
			}
		case <-time.After(within):
			e.t.Error("a part did not stop")
		}
	})
}

// work answers calls: bash "echo X" prints X; "hang" starts and waits to be cancelled.
func (e *edge) work() {
	e.t.Helper()
	e.background(func(ctx context.Context) error {
		o := streams.ConsumeOptions{Name: "w-fake", Filter: "fake", Slots: 16}
		return streams.Calls.Consume(ctx, e.bus, o, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
			c := d.Value
			if unfit := c.Unfit(); unfit != nil {
				e.publish(schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), time.Now(), lifecycle.FailedResult(c, unfit)))
				return nil
			}
			var in schemas.BashInput
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return err
			}
			e.publish(schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, d.Attempt), time.Now(),
				schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "fake", Attempt: d.Attempt}))
			res := schemas.Result{
				Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: schemas.StatusCompleted,
				Text: strings.TrimPrefix(in.Command, "echo "), Finished: time.Now().UTC(),
			}
			if in.Command == "hang" {
				e.cancelled(ctx, c)
				res.Status, res.Text = schemas.StatusCancelled, "cancelled"
			}
			e.publish(schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), time.Now(), res))
			return nil
		})
	})
}

// cancelled waits for the cancellation of c.
func (e *edge) cancelled(ctx context.Context, c schemas.Call) {
	for ctx.Err() == nil {
		for entry, err := range streams.Cancels.Replay(ctx, e.bus, string(c.Account), schemas.Cursor{}) {
			if err == nil && entry.Value.Call == c.ID {
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (e *edge) publish(ev schemas.Event) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := streams.Events.Publish(ctx, e.bus, ev)
	for schemas.CodeOf(err).Retryable() && ctx.Err() == nil { // it is stored once, however often
		err = streams.Events.Publish(ctx, e.bus, ev)
	}
	if err != nil {
		e.t.Errorf("publish %s: %v", ev.Type, err)
	}
}

// note puts an event with a text on a conversation of alice.
func (e *edge) note(conv schemas.ConversationID, n int, text string) {
	e.t.Helper()
	c := schemas.Call{ID: "note", Account: alice, Conversation: conv}
	e.publish(schemas.NewEvent(c, schemas.CallOutput, fmt.Sprintf("%s.%d", conv, n), time.Now(),
		schemas.OutputData{Call: c.ID, Stream: "stdout", Offset: int64(n), Text: text}))
}

// answer is what came back over HTTP.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t *testing.T) *schemas.Error {
	t.Helper()
	var p struct {
		Error *schemas.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Error == nil {
		t.Fatalf("%d %s: not a problem", a.status, a.body)
	}
	return p.Error
}

func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return v
}

type ask struct {
	method, path, body, key string
	header                  http.Header
}

// do asks; the key is alice's unless another is given, "-" for none.
func (e *edge) do(a ask) answer {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, e.url+a.path, strings.NewReader(a.body))
	if err != nil {
		e.t.Fatal(err)
	}
	if a.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, a.header)
	if a.key == "" {
		a.key = aliceKey
	}
	if a.key != "-" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(bytes.TrimSpace(body))}
}

func (e *edge) post(path, body string) answer {
	e.t.Helper()
	return e.do(ask{method: http.MethodPost, path: path, body: body})
}

func (e *edge) get(path string) answer {
	e.t.Helper()
	return e.do(ask{method: http.MethodGet, path: path})
}

// socket is a WebSocket client.
type socket struct {
	t *testing.T
	c *websocket.Conn
}

func (e *edge) dial(header http.Header) (*socket, *http.Response, error) {
	e.t.Helper()
	if header == nil {
		header = http.Header{"Authorization": {"Bearer " + aliceKey}}
	}
	c, resp, err := e.dialer.DialContext(e.t.Context(), "ws"+strings.TrimPrefix(e.url, "http")+"/v1/ws", header)
	if err != nil {
		return nil, resp, err
	}
	e.t.Cleanup(func() { c.Close() })
	return &socket{e.t, c}, resp, nil
}

func (e *edge) socket() *socket {
	e.t.Helper()
	s, _, err := e.dial(nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

func (s *socket) write(frame string) {
	s.t.Helper()
	if err := s.c.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		s.t.Fatal(err)
	}
}

// frame is one frame from the gateway.
type frame struct {
	Op           string          `json:"op"`
	ID           *int64          `json:"id"`
	Conv         string          `json:"conv"`
	Cur          string          `json:"cur"`
	Prev         string          `json:"prev"`
	Head         string          `json:"head"`
	Recovered    *bool           `json:"recovered"`
	Gap          json.RawMessage `json:"gap"`
	Replay       bool            `json:"replay"`
	Data         schemas.Event   `json:"data"`
	Call         string          `json:"call"`
	Conversation string          `json:"conversation"`
	Existing     bool            `json:"existing"`
	Code         int             `json:"code"`
	RetryMS      int64           `json:"retry_ms"`
	Error        *schemas.Error  `json:"error"`
}

func (s *socket) read() (frame, error) {
	if err := s.c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return frame{}, err
	}
	var f frame
	err := s.c.ReadJSON(&f)
	return f, err
}

func (s *socket) next() frame {
	s.t.Helper()
	f, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// until reads up to a frame with op and returns all frames.
func (s *socket) until(op string) []frame {
	s.t.Helper()
	var all []frame
	for {
		f := s.next()
		all = append(all, f)
		if f.Op == op {
			return all
		}
	}
}

// closedWith reads to the end and returns the close code.
func (s *socket) closedWith() (code int, before []frame) {
	s.t.Helper()
	for {
		f, err := s.read()
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
			return ce.Code, before
		}
		if err != nil {
			s.t.Fatalf("the socket ended without a close frame: %v", err)
		}
		before = append(before, f)
	}
}

// eventually polls until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("it did not happen in %s: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond) // the pace of polling, not a wait for something
	}
}
