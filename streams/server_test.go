package streams_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natsauth"
)

const within = 90 * time.Second

// TestRestartLosesNothing restarts the server under a publisher, a consumer and a reader.
func TestRestartLosesNothing(t *testing.T) {
	l := natstest.Start(t, natstest.OnDisk(), natstest.Shards(2))
	b, ctx := l.Bus, t.Context()
	const calls = 300
	var handled heap[schemas.CallID]
	stop := consume(t, b, streams.Calls, streams.ConsumeOptions{Name: "w-local", Filter: "local", Slots: 8},
		func(ctx context.Context, d streams.Delivery[schemas.Call]) error {
			e := eventOf(d.Value, "finished", schemas.CallFinished, schemas.Result{Call: d.Value.ID, Status: schemas.StatusCompleted})
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
			testwait.Eventually(t, "some calls are handled", func() bool { return len(handled.all()) >= min(before+30, calls) })
			l.Restart()
		}
	}()
	for n := range calls {
		c := callOf(fmt.Sprintf("r%d", n))
		testwait.Eventually(t, "the call is accepted", func() bool {
			err := streams.Calls.Publish(ctx, b, c)
			return err == nil || errors.Is(err, schemas.ErrConflict) // its first confirmation was lost
		})
	}
	<-restarted
	testwait.Eventually(t, "every call is seen", func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == calls })
	stop()
	endReader()
	<-readerDone
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was seen %d times", id, n)
		}
	}
}

func TestManyProcessesMakeTheTopologyAtOnce(t *testing.T) {
	s := testwait.Must(streams.StartServer(t.Context(), embedded.Options{DataDir: t.TempDir(),
		Auth: testwait.Must(natsauth.New(natsauth.Options{Users: []natsauth.User{{Name: "role", Password: "r"}}}))(t)}, fair.Shares{}))(t)
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
			testwait.OK(t, b.Ready(t.Context()))
			testwait.OK(t, b.Close(t.Context()))
		})
	}
	all.Wait()
	if got := shards.all(); len(got) != 6 || len(slices.Compact(got)) != 1 {
		t.Errorf("shards %v; want all alike", got)
	}
	if _, err := streams.Open(t.Context(), streams.Options{URL: s.URL(), User: "role", Password: "x"}); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := streams.Open(t.Context(), streams.Options{URL: "nats://u:secret@127.0.0.1:1"}); !errors.Is(err, schemas.ErrUnavailable) ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody there: %v", err)
	}
}

// TestAClientMayTakeItsTimeToSayWhoItIs: a machine may be so busy that a client comes to it only after seconds.
func TestAClientMayTakeItsTimeToSayWhoItIs(t *testing.T) {
	var log *streams.Options
	natstest.Run(t, func(t *testing.T, _ *streams.Bus) {
		c := testwait.Must(log.Server.InProcessConn())(t)
		defer c.Close()
		lines := bufio.NewScanner(c)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "INFO ") {
			t.Fatalf("the server begins with %q, %v", lines.Text(), lines.Err())
		}
		time.Sleep(5 * time.Second)
		_, err := c.Write([]byte(`CONNECT {"user":"somebody","pass":"else","verbose":false}` + "\r\nPING\r\n"))
		testwait.OK(t, err)
		if !lines.Scan() || !strings.Contains(lines.Text(), "Authorization Violation") {
			t.Errorf("it is answered %q, %v; want that the user is refused", lines.Text(), lines.Err())
		}
	}, func(s *natstest.Settings) { log = &s.Log })
}

// TestAStartAfterAKillLogsOneLine: the server rebuilds an index for each stream and bucket then, and nothing is wrong.
func TestAStartAfterAKillLogsOneLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := streams.StartServer(t.Context(), embedded.Options{DataDir: dir, Port: -1, Durability: embedded.DurabilityAlways}, fair.Shares{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Shutdown()
	bus := testwait.Must(streams.Open(t.Context(), streams.Options{Server: first}))(t)
	defer func() { _ = bus.Close(context.WithoutCancel(t.Context())) }()
	for _, name := range []streams.BucketName{streams.Leases, streams.ServedProviders} {
		if _, err := streams.OpenBucket[string](bus, name).Create(t.Context(), "key", "value", 0); err != nil {
			t.Fatal(err)
		}
	}
	killed := filepath.Join(t.TempDir(), "killed") // as a kill leaves it: nothing was closed
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	second, err := streams.StartServer(t.Context(), embedded.Options{
		DataDir: killed, Port: -1, Log: slog.New(slog.NewTextHandler(&said, nil)),
	}, fair.Shares{})
	if err != nil {
		t.Fatal(err)
	}
	second.Shutdown()
	if lines := strings.Count(said.String(), "\n"); lines != 1 || !strings.Contains(said.String(), "not closed cleanly") {
		t.Errorf("%d lines:\n%s", lines, said.String())
	}
}
