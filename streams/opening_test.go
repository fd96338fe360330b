package streams_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// TestPartsThatBeginWhileTheServerIsAwayWaitForIt: a process has opened the log and the server is gone before its parts have made
// connections of their own. They wait, as they would had it gone a moment later, and work once it is back.
func TestPartsThatBeginWhileTheServerIsAwayWaitForIt(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t, natstest.OnDisk(), natstest.Listen(natsauth.User{Name: "role", Password: "r"}))
	server := l.Server.URL()[len("nats://"):]
	network, err := faultproxy.Listen(t.Context(), server, 1, faultproxy.Faults{})
	testwait.OK(t, err)
	startPart(t, network.Run)
	retried := retries{seen: map[string]chan struct{}{"service": make(chan struct{}), "intake": make(chan struct{})}}
	b, err := streams.Open(t.Context(), streams.Options{URL: "nats://" + network.Addr(), User: "role", Password: "r",
		Log: slog.New(&retried)})
	testwait.OK(t, err)
	t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })

	network.Aim()
	network.CutAll()
	startPart(t, streams.IntakeDoor{Bus: b}.Run)
	startPart(t, func(ctx context.Context) error {
		return b.Serve(ctx, streams.ServiceOptions{Name: "test", Version: "1.0.0", Subjects: []string{"opening.test"}},
			func(context.Context, streams.Request) ([]byte, error) { return []byte("done"), nil })
	})
	for part, seen := range retried.seen {
		select {
		case <-seen:
		case <-time.After(within):
			t.Fatalf("the part %s does not try again", part)
		}
	}
	network.Aim(server)
	client, err := nats.Connect(l.Server.URL(), nats.UserInfo("role", "r"), nats.Timeout(within))
	testwait.OK(t, err)
	t.Cleanup(client.Close)
	testwait.Eventually(t, "the service answers", func() bool {
		m, err := client.Request("opening.test", nil, time.Second)
		return err == nil && string(m.Data) == "done"
	})
}

// retries is a log that notes which connections are tried again.
type retries struct {
	mu   sync.Mutex
	seen map[string]chan struct{}
}

func (*retries) Enabled(context.Context, slog.Level) bool { return true }
func (r *retries) WithAttrs([]slog.Attr) slog.Handler     { return r }
func (r *retries) WithGroup(string) slog.Handler          { return r }
func (r *retries) Handle(_ context.Context, l slog.Record) error {
	if l.Message != "connection to the log not made, retrying" {
		return nil
	}
	l.Attrs(func(a slog.Attr) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c := r.seen[a.Value.String()]; a.Key == "connection" && c != nil {
			select {
			case <-c:
			default:
				close(c)
			}
		}
		return true
	})
	return nil
}
