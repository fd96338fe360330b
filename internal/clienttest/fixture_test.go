package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	alice    schemas.AccountID = "acct_alice"
	aliceKey                   = "sk_alice"
	events                     = 700 // of each conversation
	patience                   = 4 * time.Minute
	home                       = "../../clients/js"
)

var conversations = []string{"c_1", "c_2", "chat/3@x"}

// TestMain fails if goroutines are left after the tests. On a busy machine those of the last test may take a while to end.
func TestMain(m *testing.M) {
	ticker := goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1") // one per process, see natstest
	code := m.Run()
	for began := time.Now(); code == 0; {
		err := goleak.Find(ticker)
		if err == nil {
			break
		}
		if time.Since(began) > patience {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// book is the records of a gateway in tests: one account with one key, for which every call is valid.
type book struct{}

var _ gateway.Records = book{}

func (book) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	if key != aliceKey {
		return "", schemas.Errorf(schemas.Denied, "no")
	}
	return alice, nil
}

func (book) Resolve(_ context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	now := time.Now().UTC()
	return schemas.Call{
		ID: r.ID, Account: a, Conversation: r.Conversation, Tool: r.Tool, Input: r.Input, Provider: "fake",
		Workspace: "ws_1", Sandbox: "sb_1", Timeout: schemas.Duration(time.Minute), Accepted: now, Deadline: now.Add(time.Hour),
		Origin: r.Origin, Digest: r.Digest(),
	}, nil
}

// edge is a gateway behind a proxy that cuts connections.
type edge struct {
	bus   *streams.Bus
	proxy *faultproxy.Proxy
	url   string // through the proxy
}

// open starts a gateway that accepts requests from pages of origin, behind a proxy that cuts every connection after 50 to 500 ms.
func open(t *testing.T, origin string) *edge {
	t.Helper()
	bus := natstest.Start(t, natstest.Durability("os"), natstest.Shards(2)).Bus
	gw := gateway.New(gateway.Options{Bus: bus, Records: book{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Origins: []string{origin}, ReplayCompression: true})
	srv := httptest.NewServer(gw)
	t.Cleanup(func() {
		gw.Drain()
		srv.Close()
	})
	proxy, err := faultproxy.Listen(t.Context(), strings.TrimPrefix(srv.URL, "http://"), 1, faultproxy.Faults{
		Cut: faultproxy.Span{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}, Reset: 0.3, Slice: 4 << 10,
		Stall: faultproxy.Span{Min: time.Millisecond, Max: 50 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &edge{bus: bus, proxy: proxy, url: "http://" + proxy.Addr()}
}

// write puts all events on the log: half of them at once, the others over about six seconds, while
// clients follow. It returns when the test ends or when all are there.
func (e *edge) write(t *testing.T) {
	t.Helper()
	write := func(ctx context.Context, n int) error {
		for _, conv := range conversations {
			c := schemas.Call{ID: "call", Account: alice, Conversation: schemas.ConversationID(conv)}
			text := fmt.Sprintf("line %d of %s\r\nwith <b>é</b> \u2028 and ", n, conv) + strings.Repeat("x", n%200)
			ev := schemas.NewEvent(c, schemas.CallOutput, fmt.Sprintf("%s.%d", conv, n), time.Now(),
				schemas.OutputData{Call: c.ID, Stream: "stdout", Offset: int64(n), Text: text})
			if err := streams.Events.Publish(ctx, e.bus, ev); err != nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
		return nil
	}
	for n := range events / 2 {
		if err := write(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	var writer sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	writer.Go(func() {
		pace := time.NewTicker(15 * time.Millisecond)
		defer pace.Stop()
		for n := events / 2; n < events; n++ {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
			if err := write(ctx, n); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		writer.Wait()
	})
}

// judge compares what each client saw with the log, and fails at events that are lost, repeated, out of order or different.
func (e *edge) judge(t *testing.T, clients ...[]streamcheck.Seen) {
	t.Helper()
	var log []streamcheck.Seen
	after := map[string]string{}
	for _, conv := range conversations {
		after[conv] = "-1"
		for _, entry := range e.replay(t, conv) {
			log = append(log, streamcheck.Seen{Conversation: conv, Cursor: entry.Cursor.String(), Digest: digest(t, entry.Value)})
		}
	}
	judge, want, faults := streamcheck.NewLog(log), len(conversations)*events, 0
	if len(log) != want {
		t.Errorf("the log has %d events, want %d", len(log), want)
	}
	for i, saw := range clients {
		found := judge.Check(saw, after)
		for _, f := range found[:min(len(found), 3)] {
			t.Errorf("client %d: %s", i, f)
		}
		if faults += len(found); len(saw) != want {
			t.Errorf("client %d saw %d events, want %d", i, len(saw), want)
		}
	}
	t.Logf("%d clients, %d events each, over %d connections, of which %d were cut: %d faults", len(clients), want,
		e.proxy.Connections(), e.proxy.Cuts(), faults)
	if e.proxy.Cuts() < 5 {
		t.Errorf("only %d cuts: that proves little", e.proxy.Cuts())
	}
}

// replay returns all events of a conversation that the log has.
func (e *edge) replay(t *testing.T, conv string) (all []streams.Entry[schemas.Event]) {
	t.Helper()
	for entry, err := range streams.Events.Replay(t.Context(), e.bus, string(alice)+"/"+conv, schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry)
	}
	return all
}

// long skips, except in long runs, a test of clients other than the one in Go.
func long(t *testing.T) {
	t.Helper()
	longtest.Only(t, "other clients than that in Go")
}

// program returns the path of the first of the programs that is installed. If none is, the test is skipped, or fails in CI.
func program(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return absent(t, names[0]+" is not installed")
}

// library returns the folder of the built JavaScript client. If it is not built, the test is skipped, or fails in CI.
func library(t *testing.T) string {
	t.Helper()
	dist, err := filepath.Abs(filepath.Join(home, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dist, "index.js")); err != nil {
		return absent(t, "clients/js is not built: run npm ci and npm run build there")
	}
	return dist
}

func absent(t *testing.T, why string) string {
	t.Helper()
	longtest.Missing(t, "%s", why)
	return ""
}

// digest is that of an event's content. It may be called from any goroutine.
func digest(t *testing.T, ev schemas.Event) string {
	t.Helper()
	b, err := json.Marshal(ev)
	if err != nil {
		t.Error(err)
	}
	d, err := streamcheck.Content(b)
	if err != nil {
		t.Error(err)
	}
	return d
}
