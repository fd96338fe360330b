package streams_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/subjects"
)

// TestAnOrderlyEndIsNoLostConnection: what this process closes itself, a service's connection before the log's own, is no warning;
// a server that goes away is one, with its error.
func TestAnOrderlyEndIsNoLostConnection(t *testing.T) {
	ctx := t.Context()
	said := &lines{}
	server, err := streams.StartServer(ctx, embedded.Options{DataDir: t.TempDir(), Port: -1}, fair.Shares{})
	testwait.OK(t, err)
	defer server.Shutdown()
	bus, err := streams.Open(ctx, streams.Options{Server: server, Log: slog.New(slog.NewTextHandler(said, nil))})
	testwait.OK(t, err)
	serve := func() {
		serving, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- bus.Serve(serving, streams.ServiceOptions{Name: "test", Version: "1.0.0", Subjects: []string{subjects.RPCCall + ".*"}},
				func(context.Context, streams.Request) ([]byte, error) { return []byte("{}"), nil })
		}()
		testwait.Eventually(t, "the service answers", func() bool {
			_, err := bus.Ask(ctx, subjects.RPCCall+".acct_1", nil)
			return err == nil
		})
		end()
		testwait.OK(t, <-ended)
	}
	serve()
	if s := said.String(); strings.Contains(s, "WARN") {
		t.Errorf("a service that ended: %s", s)
	}
	server.Shutdown()
	testwait.Eventually(t, "the loss is reported", func() bool { return strings.Contains(said.String(), "connection to the log lost") })
	_ = bus.Close(ctx)
	for line := range strings.Lines(said.String()) {
		if strings.Contains(line, "error=<nil>") {
			t.Errorf("no error in %s", line)
		}
	}
}

// lines is a log that several write.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// TestNothingIsTakenInHandBehindTheEnd: while messages come as fast as they can, consumers end. None of their handlers is called
// once Consume has returned.
func TestNothingIsTakenInHandBehindTheEnd(t *testing.T) {
	t.Parallel()
	const rounds, calls = 60, 100
	l := natstest.Start(t)
	for i := range calls {
		testwait.OK(t, streams.Calls.Publish(t.Context(), l.Bus, callOf(fmt.Sprint("call_", i))))
	}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var over atomic.Bool
		var n atomic.Int32
		some := make(chan struct{})
		done := make(chan error, 1)
		o := streams.ConsumeOptions{Name: "w-p", Filter: callOf("x").Provider, Slots: 8, Turns: round%2 == 0, MaxAttempts: 1 << 20}
		go func() {
			done <- streams.Calls.Consume(ctx, l.Bus, o, func(context.Context, streams.Delivery[schemas.Call]) error {
				if over.Load() {
					t.Error("a handler was called behind the end")
				}
				if n.Add(1) == int32(1+round) {
					close(some)
				}
				return streams.RetryAfter(0, nil)
			})
		}()
		<-some
		cancel()
		testwait.OK(t, <-done)
		over.Store(true)
	}
}

// Messages that the server has sent to a closing consumer are nak'ed at once, so that another consumer gets them before AckWait is over.
func TestWhatIsOnItsWayToAConsumerThatEndsGoesBack(t *testing.T) {
	const rounds, calls = 20, 40
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		for round := range rounds {
			for i := range calls {
				testwait.OK(t, streams.Calls.Publish(t.Context(), b, callOf(fmt.Sprintf("call_%d_%d", round, i))))
			}
			o := streams.ConsumeOptions{Name: "w-p", Filter: callOf("x").Provider, Slots: calls}
			ctx, cancel := context.WithCancel(t.Context())
			testwait.OK(t, streams.Calls.Consume(ctx, b, o, func(context.Context, streams.Delivery[schemas.Call]) error {
				cancel()
				return nil
			}))
			ctx, cancel = context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- streams.Calls.Consume(ctx, b, o, func(context.Context, streams.Delivery[schemas.Call]) error { return nil })
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			left := testwait.Must(b.Unfinished(ctx, "CALLS", "w-p"))(t)
			cancel()
			testwait.OK(t, <-done)
			if left != 0 {
				t.Fatalf("round %d: %d calls wait for the server to miss an answer", round, left)
			}
		}
	})
}
