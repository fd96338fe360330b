package natsauth_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/streams/subjects"
)

const (
	account schemas.AccountID = "acct_test"
	other   schemas.AccountID = "acct_other"

	within = 90 * time.Second
)

func callOf(id string) schemas.Call {
	return schemas.Call{
		ID: schemas.CallID(id), Account: account, Conversation: "c_" + schemas.ConversationID(id), Tool: schemas.ToolBash,
		Input: json.RawMessage(`{"command":"true"}`), Provider: "local", Workspace: "ws_1", Sandbox: "sb_1",
		Accepted: time.Now().UTC(), Deadline: time.Now().Add(time.Hour).UTC(),
	}
}

func eventOf(c schemas.Call, n string, typ schemas.EventType, data any) schemas.Event {
	return schemas.NewEvent(c, typ, c.EventID()+"."+n, time.Now(), data)
}

func TestUsersAreChecked(t *testing.T) {
	t.Parallel()
	for name, users := range map[string][]natsauth.User{
		"a user twice":     {{Name: "a", Password: "b"}, {Name: "a", Password: "b"}},
		"without password": {{Name: "a"}},
		"without name":     {{Password: "b"}},
		"the own name":     {{Name: embedded.InProcessUser, Password: "b"}},
		"bad account":      {{Name: "a", Password: "b", Account: "a.b"}},
	} {
		if _, err := natsauth.New(natsauth.Options{Users: users}); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: %v; want invalid", name, err)
		}
	}
}

// TestATenantThatComesLater: an account that is made while the server runs has its own way in with its
// key, and loses it with the key.
//
//guarantee:tenants-are-isolated
func TestATenantThatComesLater(t *testing.T) {
	var keys sync.Map
	l := natstest.Start(t, natstest.ListenFor(testwait.Must(natsauth.New(natsauth.Options{
		Users: []natsauth.User{{Name: "role", Password: "r"}},
		Tenants: func(name, password string) (schemas.AccountID, time.Time, bool) {
			key, known := keys.Load(name)
			return schemas.AccountID(name), time.Time{}, known && key == password
		}}))(t)))
	dial := func(user, password string) (*nats.Conn, error) {
		return nats.Connect(l.Server.URL(), nats.UserInfo(user, password), nats.Timeout(within))
	}
	if _, err := dial("acct_later", "k"); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("before it was made: %v", err)
	}
	keys.Store("acct_later", "k")
	keys.Store("acct_second", "k2")
	keys.Store("no.account", "k3")
	for user, password := range map[string]string{"acct_later": "k2", "acct_second": "k", "no.account": "k3", "role": "k", "acct_none": ""} {
		if _, err := dial(user, password); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s with %q: %v", user, password, err)
		}
	}
	heard := make(chan *nats.Msg, 8)
	for range 2 { // the second time its account is there
		var all sync.WaitGroup
		var asking sync.Mutex // the server keeps what it makes of an import's subject without a lock
		for range 8 {         // all at once: none may find it half open
			all.Go(func() {
				nc, err := dial("acct_later", "k")
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
				asking.Lock()
				defer asking.Unlock()
				if _, err := nc.Request(subjects.IntakeSubject("acct_later"), []byte("{}"), within); err != nil {
					t.Errorf("a call of its own: %v", err)
				}
			})
		}
		all.Wait()
	}
	nc, err := dial("acct_second", "k2")
	testwait.OK(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.ChanSubscribe("sandjet.live.acct_second.>", heard)
	testwait.OK(t, err)
	testwait.OK(t, nc.Flush())
	for _, a := range []schemas.AccountID{"acct_later", "acct_second"} {
		e := schemas.NewEvent(schemas.Call{ID: "x", Account: a, Conversation: "c"}, schemas.Message, string(a)+".x", time.Now(), map[string]any{})
		testwait.OK(t, streams.Events.Publish(t.Context(), l.Bus, e))
	}
	select {
	case m := <-heard:
		if m.Subject != subjects.LiveSubject("acct_second", "c") {
			t.Errorf("it heard %s", m.Subject)
		}
	case <-time.After(within):
		t.Error("it does not hear its own events")
	}
	keys.Delete("acct_later")
	if _, err := dial("acct_later", "k"); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("after its key was taken back: %v", err)
	}
}

// TestReproveKeepsWhoseKeyCounts: a revoked key is of no use to a client that is connected with it, and the connections with another key
// are back by themselves.
//
//guarantee:tenants-are-isolated
func TestReproveKeepsWhoseKeyCounts(t *testing.T) {
	t.Parallel()
	var keys sync.Map
	auth := testwait.Must(natsauth.New(natsauth.Options{Users: []natsauth.User{{Name: "role", Password: "r"}},
		Tenants: func(name, password string) (schemas.AccountID, time.Time, bool) {
			a, known := keys.Load(name + " " + password)
			if !known {
				return "", time.Time{}, false
			}
			return a.(schemas.AccountID), time.Time{}, true
		}}))(t)
	l := natstest.Start(t, natstest.ListenFor(auth))
	for _, id := range []schemas.AccountID{"acct_later", "acct_second"} {
		keys.Store(string(id)+" former", id)
		keys.Store(string(id)+" new", id)
	}
	type session struct {
		nc           *nats.Conn
		back, closed chan struct{}
	}
	dial := func(user, password string) session {
		s := session{back: make(chan struct{}, 8), closed: make(chan struct{})}
		var err error
		s.nc, err = nats.Connect(l.Server.URL(), nats.UserInfo(user, password), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1),
			nats.Timeout(time.Minute), nats.ReconnectHandler(func(*nats.Conn) { s.back <- struct{}{} }),
			nats.ClosedHandler(func(*nats.Conn) { close(s.closed) }))
		testwait.OK(t, err)
		t.Cleanup(s.nc.Close)
		return s
	}
	gone, stays, other := dial("acct_later", "former"), dial("acct_later", "new"), dial("acct_second", "former")
	keys.Delete("acct_later former")
	auth.Reprove("acct_later")
	for name, c := range map[string]<-chan struct{}{"the former key's is closed": gone.closed, "the new key's is back": stays.back} {
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Errorf("never: %s", name)
		}
	}
	if err := gone.nc.LastError(); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("it was closed by %v", err)
	}
	for user, s := range map[schemas.AccountID]session{"acct_later": stays, "acct_second": other} {
		if _, err := s.nc.Request(subjects.IntakeSubject(user), []byte("{}"), time.Minute); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	if n := other.nc.Stats().Reconnects; n != 0 {
		t.Errorf("the other account was cut off %d times", n)
	}
	auth.Reprove("acct_none") // an account that never existed
}

// TestATenantReachesOnlyItsOwn: what a tenant's NATS client may and may not do.
//
//guarantee:tenants-are-isolated
func TestATenantReachesOnlyItsOwn(t *testing.T) {
	l := natstest.Start(t, natstest.Listen(
		natsauth.User{Name: "role", Password: "r"}, natsauth.User{Name: "me", Password: "m", Account: account},
		natsauth.User{Name: "you", Password: "y", Account: other}))
	ctx := t.Context()
	refused := make(chan error, 64)
	dial := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(l.Server.URL(), nats.UserInfo(user, password), nats.Timeout(within),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		testwait.OK(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	if _, err := nats.Connect(l.Server.URL(), nats.UserInfo("me", "wrong"), nats.Timeout(within)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("wrong password: %v", err)
	}
	if _, err := nats.Connect(l.Server.URL(), nats.Timeout(within)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("no credential: %v", err)
	}
	me, you := dial("me", "m"), dial("you", "y")
	for _, subject := range []string{
		"sandjet.calls.local.acct_test.YQ", "sandjet.calls.auto.acct_other", "sandjet.events.00.acct_test.YQ", "sandjet.rpc.call.acct_other",
		"sandjet.rpc.approvals.acct_other",
		"$JS.API.STREAM.LIST", "$JS.API.STREAM.DELETE.CALLS", "$JS.API.DIRECT.GET.EVENTS_00", "$KV.records.x",
		"sandjet.live.acct_test.YQ", "sandjet.inbox.acct_other.x",
	} {
		testwait.OK(t, me.Publish(subject, []byte("{}")))
		testwait.OK(t, me.Flush())
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("publish %s: %v", subject, err)
			}
		case <-time.After(within):
			t.Errorf("publish %s: allowed", subject)
		}
	}
	for _, subject := range []string{"sandjet.>", ">", "sandjet.live.acct_other.>", "sandjet.live.*.*", "$JS.>", "sandjet.inbox.>"} {
		sub, err := me.SubscribeSync(subject)
		testwait.OK(t, err)
		testwait.OK(t, me.Flush())
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("subscribe %s: %v", subject, err)
			}
		case <-time.After(within):
			t.Errorf("subscribe %s: allowed", subject)
		}
		_ = sub.Unsubscribe() // it was never there
	}
	// What it may: publish to its own intake with confirmation, receive its own conversation, ask.
	if _, err := me.Request("sandjet.calls.auto.acct_test", []byte("hello"), within); err != nil {
		t.Errorf("publish to the intake: %v", err)
	}
	live, err := me.SubscribeSync("sandjet.live.acct_test.>")
	testwait.OK(t, err)
	spy, err := you.SubscribeSync("_INBOX.>")
	testwait.OK(t, err)
	mine := nats.NewInbox()
	inbox, err := me.SubscribeSync(mine)
	testwait.OK(t, err)
	testwait.OK(t, errors.Join(me.Flush(), you.Flush()))
	c := callOf("a")
	testwait.OK(t, streams.Events.Publish(ctx, l.Bus, eventOf(c, "1", schemas.CallOutput, schemas.OutputData{Text: "x"})))
	if _, err := live.NextMsg(within); err != nil {
		t.Errorf("its conversation: %v", err)
	}
	testwait.OK(t, l.Bus.Reply(ctx, account, mine, []byte("for you")))
	if m, err := inbox.NextMsg(within); err != nil || string(m.Data) != "for you" {
		t.Errorf("its inbox: %v %v", m, err)
	}
	testwait.OK(t, you.Flush())
	if n, _, err := spy.Pending(); err != nil || n != 0 {
		t.Errorf("another tenant heard %d messages, %v", n, err)
	}
	serve, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- l.Bus.Serve(serve, streams.ServiceOptions{Name: "sandjet", Version: "1.0.0",
			Subjects: []string{subjects.RPCCall + ".*", subjects.RPCApprovals + ".*"}},
			func(_ context.Context, r streams.Request) ([]byte, error) {
				if string(r.Data) == "bad" {
					return nil, schemas.Invalidf("tool", "is missing")
				}
				return []byte(r.Account), nil
			})
	}()
	testwait.Eventually(t, "the service answers", func() bool {
		m, err := me.Request(subjects.RPCCall, nil, time.Second)
		return err == nil && string(m.Data) == string(account)
	})
	for _, subject := range []string{subjects.RPCApprovals, subjects.RPCApprovals + ".acct_test"} { // opened one after the other
		testwait.Eventually(t, subject+" is answered", func() bool {
			m, err := me.Request(subject, nil, time.Second)
			return err == nil && string(m.Data) == string(account)
		})
	}
	if m, err := you.Request(subjects.RPCCall, []byte("x"), within); err != nil || string(m.Data) != string(other) {
		t.Errorf("the other tenant: %v %v", m, err)
	}
	if m, err := me.Request(subjects.RPCCall, []byte("bad"), within); err != nil || !strings.Contains(string(m.Data), `"code":"invalid"`) ||
		m.Header.Get("Nats-Service-Error-Code") != "invalid" {
		t.Errorf("an error: %v %v", m, err)
	}
	end()
	testwait.OK(t, <-served)
}

// TestATenantsConnectionsAreBounded: connections, subscriptions, sizes and what waits for those who do not read.
//
//guarantee:what-one-tenant-can-do-to-another
func TestATenantsConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const most, subs = 5, 10
	logged := &lines{}
	log := slog.New(slog.NewTextHandler(logged, nil))
	s, err := streams.StartServer(t.Context(), embedded.Options{
		DataDir: t.TempDir(), Port: 0, Log: log,
		Auth: testwait.Must(natsauth.New(natsauth.Options{
			Users:  []natsauth.User{{Name: "me", Password: "m", Account: account}, {Name: "you", Password: "y", Account: other}},
			Limits: natsauth.Limits{Connections: most, Subscriptions: subs, Payload: 64 << 10, Pending: 1 << 20}, Log: log,
		}))(t),
	}, fair.Shares{})
	testwait.OK(t, err)
	t.Cleanup(s.Shutdown)
	b := testwait.Must(streams.Open(t.Context(), streams.Options{Server: s}))(t)
	t.Cleanup(func() { testwait.OK(t, b.Close(context.WithoutCancel(t.Context()))) })
	dial := func(user string) (*nats.Conn, error) {
		return nats.Connect(s.URL(), nats.UserInfo(user, user[:1]), nats.Timeout(within), nats.NoReconnect())
	}
	var conns []*nats.Conn
	for range most {
		nc, err := dial("me")
		testwait.OK(t, err)
		t.Cleanup(nc.Close)
		conns = append(conns, nc)
	}
	if nc, err := dial("me"); err == nil {
		t.Error("one connection more than there may be")
		nc.Close()
	}
	nc, err := dial("you")
	testwait.OK(t, err)
	nc.Close()
	for range subs + 5 {
		_, err := conns[0].SubscribeSync(subjects.LiveSubject(account, "c_1"))
		testwait.OK(t, err)
	}
	testwait.Eventually(t, "more subscriptions than there may be are refused",
		func() bool { return conns[0].IsClosed() || conns[0].LastError() != nil })
	if err := conns[1].Publish(subjects.IntakeSubject(account), make([]byte, 80<<10)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("a message larger than it may be: %v", err)
	}
	conns[2].Close()

	// One that reads nothing of what happens on its conversation.
	testwait.Eventually(t, "there is room for it", func() bool { // the one that was closed may be counted still
		raw, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
		testwait.OK(t, err)
		t.Cleanup(func() { _ = raw.Close() })
		testwait.OK(t, raw.(*net.TCPConn).SetReadBuffer(4<<10))
		_, err = fmt.Fprintf(raw, "CONNECT {\"user\":\"me\",\"pass\":\"m\",\"verbose\":false}\r\nSUB sandjet.live.%s.> 1\r\nPING\r\n", account)
		if err != nil {
			return false
		}
		for lines := bufio.NewScanner(raw); lines.Scan(); {
			if lines.Text() == "PONG" {
				return true
			}
		}
		return false
	})
	text := strings.Repeat("x", 500<<10)
	c := callOf("a")
	testwait.Eventually(t, "its connection is closed", func() bool {
		for range 8 {
			e := eventOf(c, schemas.NewID("e_"), schemas.CallOutput, schemas.OutputData{Text: text})
			testwait.OK(t, streams.Events.Publish(t.Context(), b, e))
		}
		return strings.Contains(logged.String(), "its client does not read")
	})
	if strings.Contains(logged.String(), "level=ERROR") {
		t.Errorf("what tenants do wrong is logged as errors of the server:\n%s", logged)
	}
}

// lines is what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
