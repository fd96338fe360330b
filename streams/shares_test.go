package streams_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// TestOneAccountsRequestsLeaveOthersTheirTurn: an account asks thousands of times while nothing of it is
// answered. Another one is answered at once, and everything that is too much is refused at once.
//
//guarantee:what-one-tenant-can-do-to-another
func TestOneAccountsRequestsLeaveOthersTheirTurn(t *testing.T) {
	t.Parallel()
	l, me, you := tenants(t)
	release := make(chan struct{})
	var handled atomic.Int32
	startPart(t, func(ctx context.Context) error {
		return l.Bus.Serve(ctx, streams.ServiceOptions{Name: "test", Version: "1.0.0", Subjects: []string{subjects.RPCCall + ".*"}},
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
	testwait.Eventually(t, "the service answers", func() bool {
		_, err := you.Request(subjects.RPCCall, nil, time.Second)
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
	testwait.OK(t, err)
	for range flood {
		testwait.OK(t, me.PublishRequest(subjects.RPCCall, inbox, []byte("wait")))
	}
	testwait.OK(t, me.Flush())
	testwait.Eventually(t, "what is too much is refused", func() bool { return refused.Load() == flood-48-1024 })
	for range 20 {
		if m, err := you.Request(subjects.RPCCall, []byte("now"), within); err != nil || string(m.Data) != "done" {
			t.Fatalf("the other account: %v %v", m, err)
		}
	}
	if n := handled.Load(); n != 48 {
		t.Errorf("%d of its requests are in hand; want three quarters of the slots", n)
	}
	let()
	testwait.Eventually(t, "the rest is answered", func() bool { return done.Load() == 48+1024 })
}

// TestAFloodOfOneAccountResetsNoOther: requests that are too many and too large are refused, and neither
// the watchers nor the connections of the process notice.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAFloodOfOneAccountResetsNoOther(t *testing.T) {
	t.Parallel()
	l, me, _ := tenants(t)
	bucket := streams.OpenBucket[string](l.Bus, streams.Records)
	for i := range 20 {
		testwait.Must(bucket.Put(t.Context(), fmt.Sprint("k", i), "v"))(t)
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
		return l.Bus.Serve(ctx, streams.ServiceOptions{Name: "test", Version: "1.0.0", Subjects: []string{subjects.RPCCall + ".*"}},
			func(_ context.Context, r streams.Request) ([]byte, error) {
				if len(r.Data) > 0 {
					<-release
				}
				return nil, nil
			})
	})
	testwait.Eventually(t, "the service answers", func() bool {
		_, err := me.Request(subjects.RPCCall, nil, time.Second)
		return err == nil
	})
	const flood = 160
	var answers atomic.Int32
	inbox := nats.NewInbox()
	_, err := me.Subscribe(inbox, func(*nats.Msg) { answers.Add(1) })
	testwait.OK(t, err)
	body := []byte(strings.Repeat("x", 950<<10))
	for range flood {
		testwait.OK(t, me.PublishRequest(subjects.RPCCall, inbox, body))
	}
	testwait.OK(t, me.Flush())
	testwait.Eventually(t, "what is too much is refused", func() bool { return answers.Load() >= flood-48-4 })
	close(release)
	testwait.Eventually(t, "everything is answered", func() bool { return answers.Load() == flood })
	testwait.Must(bucket.Put(t.Context(), "last", "v"))(t)
	testwait.Eventually(t, "the watcher goes on", func() bool { return told.Load() >= 21 })
	if n := told.Load(); n != 21 {
		t.Errorf("the watcher was told %d values; want each once", n)
	}
	cancel()
	<-watched
}

// TestThousandsOfOneAccountLeaveOthersTheirTurn: in virtual time, where each message takes 10 ms and one
// account has 2,000 waiting before another publishes one.
//
//guarantee:what-one-tenant-can-do-to-another
func TestThousandsOfOneAccountLeaveOthersTheirTurn(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const flood, slots, each = 2000, 16, 10 * time.Millisecond
		for i := range flood {
			testwait.OK(t, streams.Intake.Publish(t.Context(), b, streams.Raw{Account: account, Data: fmt.Append(nil, i)}))
		}
		testwait.OK(t, streams.Intake.Publish(t.Context(), b, streams.Raw{Account: otherAccount, Data: []byte("x")}))
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
		if most := 8 * flood * each / slots; last > most { // slots idle while nak'ed messages wait for their redelivery
			t.Errorf("all of it took %s; want less than %s", last, most)
		}
		t.Logf("the other account after %s, the last of all after %s", other, last)
	})
}

// startPart runs a part until the end of the test, which ends it without an error.
func startPart(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testwait.OK(t, <-done)
	})
}
