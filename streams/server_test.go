package streams_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const within = 90 * time.Second

// eventually waits for a condition by the wall clock.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
		<-tick.C
	}
}

// TestRestartLosesNothing restarts the server under a publisher, a consumer and a reader.
func TestRestartLosesNothing(t *testing.T) {
	l := natstest.Start(t, natstest.Shards(2))
	b, ctx := l.Bus, t.Context()
	const calls = 300
	var handled heap[schemas.CallID]
	stop := consume(t, b, streams.Calls, streams.ConsumeOptions{Name: "w-local", Filter: "local", Slots: 8}, func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
		e := eventOf(d.Value, "finished", schemas.CallFinished, schemas.Result{Call: d.Value.ID, Status: schemas.Completed})
		e.Conversation = "c_all"
		if err := streams.Events.Publish(ctx, b, e); err != nil {
			return err
		}
		handled.add(d.Value.ID)
		return nil
	})
	seen := map[string]int{}
	var mu sync.Mutex
	readerCtx, endReader := context.WithCancel(ctx)
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		for i, err := range streams.Follow(readerCtx, b, account, "c_all", schemas.Cursor{}) {
			if err != nil {
				t.Errorf("follow: %v", err)
				return
			}
			if i.Gap != nil {
				t.Errorf("gap %+v", i.Gap)
			}
			if i.Kind == streams.ItemEvent {
				mu.Lock()
				seen[i.Entry.Value.ID]++
				mu.Unlock()
			}
		}
	}()
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		for range 3 {
			before := len(handled.all())
			eventually(t, "some calls are handled", func() bool { return len(handled.all()) >= min(before+30, calls) })
			l.Restart()
		}
	}()
	for n := range calls {
		c := callOf(fmt.Sprintf("r%d", n))
		eventually(t, "the call is accepted", func() bool {
			err := streams.Calls.Publish(ctx, b, c)
			return err == nil || errors.Is(err, schemas.ErrConflict) // its first confirmation was lost
		})
	}
	<-restarted
	eventually(t, "every call is seen", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == calls })
	stop()
	endReader()
	<-readerDone
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was seen %d times", id, n)
		}
	}
}

func TestASecondServerOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := streams.ServerOptions{DataDir: dir, Port: -1}
	s := must(streams.StartServer(t.Context(), o))(t)
	_, err := streams.StartServer(t.Context(), o)
	if !errors.Is(err, schemas.ErrConflict) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("second server: %v", err)
	}
	s.Shutdown()
	s.Shutdown()
	s = must(streams.StartServer(t.Context(), o))(t)
	if s.URL() != "" {
		t.Errorf("URL %q without a listener", s.URL())
	}
	ok(t, s.Healthy())
	s.Shutdown()
	if s.Healthy() == nil {
		t.Error("a stopped server is healthy")
	}
}

func TestServerOptionsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ok(t, os.WriteFile(file, nil, 0o600))
	listening := must(streams.StartServer(t.Context(), streams.ServerOptions{DataDir: t.TempDir()}))(t)
	defer listening.Shutdown()
	var port int
	if _, err := fmt.Sscanf(listening.URL(), "nats://127.0.0.1:%d", &port); err != nil || port == 0 {
		t.Fatalf("URL %q", listening.URL())
	}
	for name, tc := range map[string]struct {
		o    streams.ServerOptions
		want schemas.Code
	}{
		"no directory":     {streams.ServerOptions{}, schemas.Invalid},
		"a file":           {streams.ServerOptions{DataDir: file}, schemas.Denied},
		"durability":       {streams.ServerOptions{DataDir: t.TempDir(), Durability: "never"}, schemas.Invalid},
		"port in use":      {streams.ServerOptions{DataDir: t.TempDir(), Port: port}, schemas.Conflict},
		"a user twice":     {streams.ServerOptions{DataDir: t.TempDir(), Users: []streams.User{{Name: "a", Password: "b"}, {Name: "a", Password: "b"}}}, schemas.Invalid},
		"without password": {streams.ServerOptions{DataDir: t.TempDir(), Users: []streams.User{{Name: "a"}}}, schemas.Invalid},
		"bad account":      {streams.ServerOptions{DataDir: t.TempDir(), Users: []streams.User{{Name: "a", Password: "b", Account: "a.b"}}}, schemas.Invalid},
	} {
		if s, err := streams.StartServer(t.Context(), tc.o); schemas.CodeOf(err) != tc.want {
			t.Errorf("%s: %v; want %s", name, err, tc.want)
			if s != nil {
				s.Shutdown()
			}
		}
	}
}

// TestATenantThatComesLater: an account that is made while the server runs has its own way in with its
// key, and loses it with the key.
func TestATenantThatComesLater(t *testing.T) {
	var keys sync.Map
	l := natstest.Start(t, natstest.Listen(streams.User{Name: "role", Password: "r"}), natstest.Tenants(func(name, password string) (schemas.AccountID, time.Time, bool) {
		key, known := keys.Load(name)
		return schemas.AccountID(name), time.Time{}, known && key == password
	}))
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
		for range 8 { // all at once: nobody may find it half open
			all.Go(func() {
				nc, err := dial("acct_later", "k")
				if err != nil {
					t.Error(err)
					return
				}
				defer nc.Close()
				if _, err := nc.Request(streams.IntakeSubject("acct_later"), []byte("{}"), within); err != nil {
					t.Errorf("a call of its own: %v", err)
				}
			})
		}
		all.Wait()
	}
	nc, err := dial("acct_second", "k2")
	ok(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.ChanSubscribe("sandjet.live.acct_second.>", heard)
	ok(t, err)
	ok(t, nc.Flush())
	for _, a := range []schemas.AccountID{"acct_later", "acct_second"} {
		e := schemas.NewEvent(schemas.Call{ID: "x", Account: a, Conversation: "c"}, schemas.Message, string(a)+".x", time.Now(), map[string]any{})
		ok(t, streams.Events.Publish(t.Context(), l.Bus, e))
	}
	select {
	case m := <-heard:
		if m.Subject != streams.LiveSubject("acct_second", "c") {
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

// TestReproveKeepsWhoseKeyCounts: a key that was taken back is of use to nobody who is connected with it, and
// the connections with another key are back by themselves.
func TestReproveKeepsWhoseKeyCounts(t *testing.T) {
	t.Parallel()
	var keys sync.Map
	l := natstest.Start(t, natstest.Listen(streams.User{Name: "role", Password: "r"}), natstest.Tenants(func(name, password string) (schemas.AccountID, time.Time, bool) {
		a, known := keys.Load(name + " " + password)
		if !known {
			return "", time.Time{}, false
		}
		return a.(schemas.AccountID), time.Time{}, true
	}))
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
			nats.Timeout(time.Minute), nats.ReconnectHandler(func(*nats.Conn) { s.back <- struct{}{} }), nats.ClosedHandler(func(*nats.Conn) { close(s.closed) }))
		ok(t, err)
		t.Cleanup(s.nc.Close)
		return s
	}
	gone, stays, other := dial("acct_later", "former"), dial("acct_later", "new"), dial("acct_second", "former")
	keys.Delete("acct_later former")
	l.Server.Reprove("acct_later")
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
		if _, err := s.nc.Request(streams.IntakeSubject(user), []byte("{}"), time.Minute); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	if n := other.nc.Stats().Reconnects; n != 0 {
		t.Errorf("the other account was cut off %d times", n)
	}
	l.Server.Reprove("acct_none") // whom nobody has ever been
}

// TestATenantReachesOnlyItsOwn: what a tenant's NATS client may and may not do.
func TestATenantReachesOnlyItsOwn(t *testing.T) {
	const other schemas.AccountID = "acct_other"
	l := natstest.Start(t, natstest.Listen(
		streams.User{Name: "role", Password: "r"}, streams.User{Name: "me", Password: "m", Account: account}, streams.User{Name: "you", Password: "y", Account: other}))
	ctx := t.Context()
	refused := make(chan error, 64)
	dial := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(l.Server.URL(), nats.UserInfo(user, password), nats.Timeout(within), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		ok(t, err)
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
		"sandjet.calls.local.acct_test.YQ", "sandjet.calls.auto.acct_other", "sandjet.events.00.acct_test.YQ", "sandjet.rpc.call.acct_other", "sandjet.rpc.approvals.acct_other",
		"$JS.API.STREAM.LIST", "$JS.API.STREAM.DELETE.CALLS", "$JS.API.DIRECT.GET.EVENTS_00", "$KV.records.x", "sandjet.live.acct_test.YQ", "sandjet.inbox.acct_other.x",
	} {
		ok(t, me.Publish(subject, []byte("{}")))
		ok(t, me.Flush())
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
		ok(t, err)
		ok(t, me.Flush())
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
	// What it may: publish to its own intake with confirmation, hear its own conversation, ask.
	if _, err := me.Request("sandjet.calls.auto.acct_test", []byte("hello"), within); err != nil {
		t.Errorf("publish to the intake: %v", err)
	}
	live, err := me.SubscribeSync("sandjet.live.acct_test.>")
	ok(t, err)
	spy, err := you.SubscribeSync("_INBOX.>")
	ok(t, err)
	mine := nats.NewInbox()
	inbox, err := me.SubscribeSync(mine)
	ok(t, err)
	ok(t, errors.Join(me.Flush(), you.Flush()))
	c := callOf("a")
	ok(t, streams.Events.Publish(ctx, l.Bus, eventOf(c, "1", schemas.CallOutput, schemas.OutputData{Text: "x"})))
	if _, err := live.NextMsg(within); err != nil {
		t.Errorf("its conversation: %v", err)
	}
	ok(t, l.Bus.Reply(ctx, account, mine, []byte("for you")))
	if m, err := inbox.NextMsg(within); err != nil || string(m.Data) != "for you" {
		t.Errorf("its inbox: %v %v", m, err)
	}
	ok(t, you.Flush())
	if n, _, err := spy.Pending(); err != nil || n != 0 {
		t.Errorf("another tenant heard %d messages, %v", n, err)
	}
	serve, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- l.Bus.Serve(serve, streams.ServiceOptions{Name: "sandjet", Version: "1.0.0", Subjects: []string{streams.RPCSubject + ".*", streams.RPCApprovals + ".*"}},
			func(_ context.Context, r streams.Request) ([]byte, error) {
				if string(r.Data) == "bad" {
					return nil, schemas.Invalidf("tool", "is missing")
				}
				return []byte(r.Account), nil
			})
	}()
	eventually(t, "the service answers", func() bool {
		m, err := me.Request(streams.RPCSubject, nil, time.Second)
		return err == nil && string(m.Data) == string(account)
	})
	for _, subject := range []string{streams.RPCApprovals, streams.RPCApprovals + ".acct_test"} { // opened one after the other
		eventually(t, subject+" is answered", func() bool {
			m, err := me.Request(subject, nil, time.Second)
			return err == nil && string(m.Data) == string(account)
		})
	}
	if m, err := you.Request(streams.RPCSubject, []byte("x"), within); err != nil || string(m.Data) != string(other) {
		t.Errorf("the other tenant: %v %v", m, err)
	}
	if m, err := me.Request(streams.RPCSubject, []byte("bad"), within); err != nil || !strings.Contains(string(m.Data), `"code":"invalid"`) || m.Header.Get("Nats-Service-Error-Code") != "invalid" {
		t.Errorf("an error: %v %v", m, err)
	}
	end()
	ok(t, <-served)
}

func TestManyProcessesMakeTheTopologyAtOnce(t *testing.T) {
	s := must(streams.StartServer(t.Context(), streams.ServerOptions{DataDir: t.TempDir(), Users: []streams.User{{Name: "role", Password: "r"}}}))(t)
	defer s.Shutdown()
	var shards heap[int]
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() {
			b, err := streams.Open(t.Context(), streams.Options{URL: s.URL(), User: "role", Password: "r", Shards: 1 + n%3})
			if err != nil {
				t.Error(err)
				return
			}
			shards.add(b.Shards())
			ok(t, b.Ready(t.Context()))
			ok(t, b.Close(t.Context()))
		})
	}
	all.Wait()
	if got := shards.all(); len(got) != 6 || len(slices.Compact(got)) != 1 {
		t.Errorf("shards %v; want all alike", got)
	}
	if _, err := streams.Open(t.Context(), streams.Options{URL: s.URL(), User: "role", Password: "x"}); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := streams.Open(t.Context(), streams.Options{URL: "nats://u:secret@127.0.0.1:1"}); !errors.Is(err, schemas.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody there: %v", err)
	}
}

// TestAClientMayTakeItsTimeToSayWhoItIs: a machine may be so busy that a client comes to it only after seconds.
func TestAClientMayTakeItsTimeToSayWhoItIs(t *testing.T) {
	var log *streams.Options
	natstest.Run(t, func(t *testing.T, _ *streams.Bus) {
		c := must(log.Server.InProcessConn())(t)
		defer c.Close()
		lines := bufio.NewScanner(c)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "INFO ") {
			t.Fatalf("the server begins with %q, %v", lines.Text(), lines.Err())
		}
		time.Sleep(5 * time.Second)
		_, err := c.Write([]byte(`CONNECT {"user":"somebody","pass":"else","verbose":false}` + "\r\nPING\r\n"))
		ok(t, err)
		if !lines.Scan() || !strings.Contains(lines.Text(), "Authorization Violation") {
			t.Errorf("it is answered %q, %v; want that the user is refused", lines.Text(), lines.Err())
		}
	}, func(_ *streams.ServerOptions, o *streams.Options) { log = o })
}
