package streams_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestOneAccountsRequestsLeaveOthersTheirTurn: an account asks thousands of times while nothing of it is
// answered. Another one is answered at once, and everything that is too much is refused at once.
func TestOneAccountsRequestsLeaveOthersTheirTurn(t *testing.T) {
	t.Parallel()
	l, me, you := tenants(t)
	release := make(chan struct{})
	var handled atomic.Int32
	startPart(t, func(ctx context.Context) error {
		return l.Bus.Serve(ctx, streams.ServiceOptions{Name: "test", Version: "1.0.0", Subjects: []string{streams.RPCSubject + ".*"}},
			func(_ context.Context, r streams.Request) ([]byte, error) {
				if string(r.Data) == "wait" {
					handled.Add(1)
					<-release
				}
				return []byte("done"), nil
			})
	})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	eventually(t, "the service answers", func() bool {
		_, err := you.Request(streams.RPCSubject, nil, time.Second)
		return err == nil
	})
	const flood = 3000
	var done, refused atomic.Int32
	inbox := nats.NewInbox()
	_, err := me.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get("Nats-Service-Error-Code") == "exhausted" {
			refused.Add(1)
		} else {
			done.Add(1)
		}
	})
	ok(t, err)
	for range flood {
		ok(t, me.PublishRequest(streams.RPCSubject, inbox, []byte("wait")))
	}
	ok(t, me.Flush())
	eventually(t, "what is too much is refused", func() bool { return refused.Load() == flood-48-1024 })
	for range 20 {
		if m, err := you.Request(streams.RPCSubject, []byte("now"), within); err != nil || string(m.Data) != "done" {
			t.Fatalf("the other account: %v %v", m, err)
		}
	}
	if n := handled.Load(); n != 48 {
		t.Errorf("%d of its requests are in hand; want three quarters of the slots", n)
	}
	let()
	eventually(t, "the rest is answered", func() bool { return done.Load() == 48+1024 })
}

// TestAFloodOfOneAccountIsNobodyElsesReset: requests that are too many and too large are refused, and neither
// the watchers nor the connections of the process notice.
func TestAFloodOfOneAccountIsNobodyElsesReset(t *testing.T) {
	t.Parallel()
	l, me, _ := tenants(t)
	bucket := streams.OpenBucket[string](l.Bus, streams.Records)
	for i := range 20 {
		must(bucket.Put(t.Context(), fmt.Sprint("k", i), "v"))(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told atomic.Int32
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range bucket.Watch(ctx) {
			told.Add(1)
		}
	}()
	release := make(chan struct{})
	startPart(t, func(ctx context.Context) error {
		return l.Bus.Serve(ctx, streams.ServiceOptions{Name: "test", Version: "1.0.0", Subjects: []string{streams.RPCSubject + ".*"}},
			func(_ context.Context, r streams.Request) ([]byte, error) {
				if len(r.Data) > 0 {
					<-release
				}
				return nil, nil
			})
	})
	eventually(t, "the service answers", func() bool {
		_, err := me.Request(streams.RPCSubject, nil, time.Second)
		return err == nil
	})
	const flood = 160
	var answers atomic.Int32
	inbox := nats.NewInbox()
	_, err := me.Subscribe(inbox, func(*nats.Msg) { answers.Add(1) })
	ok(t, err)
	body := []byte(strings.Repeat("x", 950<<10))
	for range flood {
		ok(t, me.PublishRequest(streams.RPCSubject, inbox, body))
	}
	ok(t, me.Flush())
	eventually(t, "what is too much is refused", func() bool { return answers.Load() >= flood-48-4 })
	close(release)
	eventually(t, "everything is answered", func() bool { return answers.Load() == flood })
	must(bucket.Put(t.Context(), "last", "v"))(t)
	eventually(t, "the watcher goes on", func() bool { return told.Load() >= 21 })
	if n := told.Load(); n != 21 {
		t.Errorf("the watcher was told %d values; want each once", n)
	}
	cancel()
	<-watched
}

// TestThousandsOfOneAccountLeaveOthersTheirTurn: in virtual time, where each message takes 10 ms and one
// account has 2,000 waiting before another publishes one.
func TestThousandsOfOneAccountLeaveOthersTheirTurn(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const flood, slots, each = 2000, 16, 10 * time.Millisecond
		for i := range flood {
			ok(t, streams.Intake.Publish(t.Context(), b, streams.Raw{Account: account, Data: fmt.Append(nil, i)}))
		}
		ok(t, streams.Intake.Publish(t.Context(), b, streams.Raw{Account: otherAccount, Data: []byte("x")}))
		begin := time.Now()
		var mu sync.Mutex
		seen, other, last := map[string]int{}, time.Duration(0), time.Duration(0)
		stop := consume(t, b, streams.Intake, streams.ConsumeOptions{Name: "test", Slots: slots, Turns: true, MaxAttempts: 1 << 20},
			func(ctx context.Context, d streams.Delivery[streams.Raw]) error {
				time.Sleep(each)
				mu.Lock()
				defer mu.Unlock()
				seen[string(d.Account)+string(d.Value.Data)]++
				if last = time.Since(begin); d.Account == otherAccount {
					other = last
				}
				return nil
			})
		for time.Since(begin) < time.Hour {
			time.Sleep(time.Second)
			mu.Lock()
			n := len(seen)
			mu.Unlock()
			if n == flood+1 {
				break
			}
		}
		stop()
		for key, n := range seen {
			if n != 1 {
				t.Errorf("%s was handled %d times", key, n)
			}
		}
		if len(seen) != flood+1 {
			t.Fatalf("%d messages came; want %d", len(seen), flood+1)
		}
		if other > time.Second {
			t.Errorf("the other account waited %s; want less than a second", other)
		}
		if most := 4 * flood * each / slots; last > most {
			t.Errorf("all of it took %s; want less than %s", last, most)
		}
		t.Logf("the other account after %s, the last of all after %s", other, last)
	})
}

// TestATenantsConnectionsAreBounded: connections, subscriptions, sizes and what waits for those who do not read.
func TestATenantsConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const most, subs = 5, 10
	logged := &lines{}
	s, err := streams.StartServer(t.Context(), streams.ServerOptions{
		DataDir: t.TempDir(), Port: 0, Log: slog.New(slog.NewTextHandler(logged, nil)),
		Users:        []streams.User{{Name: "me", Password: "m", Account: account}, {Name: "you", Password: "y", Account: otherAccount}},
		TenantLimits: streams.TenantLimits{Connections: most, Subscriptions: subs, Payload: 64 << 10, Pending: 1 << 20},
	})
	ok(t, err)
	t.Cleanup(s.Shutdown)
	b := must(streams.Open(t.Context(), streams.Options{Server: s}))(t)
	t.Cleanup(func() { ok(t, b.Close(context.WithoutCancel(t.Context()))) })
	dial := func(user string) (*nats.Conn, error) {
		return nats.Connect(s.URL(), nats.UserInfo(user, user[:1]), nats.Timeout(within), nats.NoReconnect())
	}
	var conns []*nats.Conn
	for range most {
		nc, err := dial("me")
		ok(t, err)
		t.Cleanup(nc.Close)
		conns = append(conns, nc)
	}
	if nc, err := dial("me"); err == nil {
		t.Error("one connection more than there may be")
		nc.Close()
	}
	nc, err := dial("you")
	ok(t, err)
	nc.Close()
	for range subs + 5 {
		_, err := conns[0].SubscribeSync(streams.LiveSubject(account, "c_1"))
		ok(t, err)
	}
	eventually(t, "more subscriptions than there may be are refused", func() bool { return conns[0].IsClosed() || conns[0].LastError() != nil })
	if err := conns[1].Publish(streams.IntakeSubject(account), make([]byte, 80<<10)); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("a message larger than it may be: %v", err)
	}
	conns[2].Close()

	// One that reads nothing of what happens on its conversation.
	eventually(t, "there is room for it", func() bool { // the one that was closed may be counted still
		raw, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
		ok(t, err)
		t.Cleanup(func() { _ = raw.Close() })
		ok(t, raw.(*net.TCPConn).SetReadBuffer(4<<10))
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
	eventually(t, "its connection is closed", func() bool {
		for range 8 {
			ok(t, streams.Events.Publish(t.Context(), b, eventOf(c, schemas.NewID("e_"), schemas.CallOutput, schemas.OutputData{Text: text})))
		}
		return strings.Contains(logged.String(), "too much waits for it to be read")
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
