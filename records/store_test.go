package records_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

const (
	within = 90 * time.Second // of everything that must happen at all
	key    = "sk_0123456789abcdef"
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

// bus opens a log of its own.
func bus(t *testing.T) *streams.Bus {
	t.Helper()
	return natstest.Start(t, natstest.Shards(1)).Bus
}

// ring is the same in every test: what one store seals, others open.
func ring(t *testing.T) *seal.Ring {
	t.Helper()
	r, err := seal.Parse([]byte("key_test " + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t *testing.T, b *streams.Bus) *records.Store {
	t.Helper()
	return openWith(t, b, recordstest.Providers())
}

func openWith(t *testing.T, b *streams.Bus, providers schemas.Catalog) *records.Store {
	t.Helper()
	s, err := records.Open(t.Context(), b, ring(t), providers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request() schemas.Request {
	return schemas.Request{Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)}
}

func TestEnsureAccountMakesWhatACallNeeds(t *testing.T) {
	b := bus(t)
	s := open(t, b)
	a, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Key: key, Provider: "local"})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ID.Validate(); err != nil || a.KeyHash != records.HashKey(key) {
		t.Errorf("%+v: %v", a, err)
	}
	for name, s := range map[string]*records.Store{"the same store": s, "one that is opened later": open(t, b)} {
		got, err := s.Authenticate(t.Context(), key)
		if err != nil || got != a.ID {
			t.Fatalf("%s: %s, %v", name, got, err)
		}
		c, err := s.Resolve(t.Context(), a.ID, request())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		box, err := s.Sandbox(t.Context(), a.ID, c.Sandbox)
		if err != nil || box.Provider != "local" || !box.Persistent || box.Network.Mode != schemas.DenyAll ||
			box.PermissionMode != schemas.PermissionBypass || time.Duration(box.Timeout) != 30*time.Second {
			t.Errorf("%s: %+v, %v", name, box, err)
		}
		if w, err := s.Workspace(t.Context(), a.ID, c.Workspace); err != nil || w.Name != records.DefaultName {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
}

func TestEnsureAccountTwiceChangesOnlyTheKey(t *testing.T) {
	s := open(t, bus(t))
	first, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_a", Key: key, Provider: "local"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_a", Key: key, Provider: "docker"})
	if err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("%+v, then %+v, %v", first, again, err)
	}
	if c, err := s.Resolve(t.Context(), "acct_a", request()); err != nil || c.Provider != "local" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_a", Key: "another" + key, Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Authenticate(t.Context(), key); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("the old key: %v", err)
	}
	if a, err := s.Authenticate(t.Context(), "another"+key); err != nil || a != "acct_a" {
		t.Errorf("the new key: %s, %v", a, err)
	}
}

func TestEnsureAccountByManyAtOnce(t *testing.T) {
	b := bus(t)
	const processes = 8
	var wg sync.WaitGroup
	for range processes {
		s := open(t, b)
		wg.Go(func() {
			if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_a", Key: key, Provider: "local"}); err != nil {
				t.Error(err)
			}
			if _, err := s.Resolve(t.Context(), "acct_a", request()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestEnsureAccountRefuses(t *testing.T) {
	s := open(t, bus(t))
	for _, b := range []records.Bootstrap{
		{Key: "short", Provider: "local"}, {Key: key}, {Account: "a.b", Key: key, Provider: "local"},
	} {
		if _, err := s.Accounts.Ensure(t.Context(), b); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

func TestRunFollowsOtherProcesses(t *testing.T) {
	b := bus(t)
	here, there := open(t, b), open(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- here.Run(ctx) }()
	if _, err := there.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_a", Key: key, Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(within); ; {
		if _, err := here.Authenticate(t.Context(), key); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the change did not arrive")
		}
		time.Sleep(time.Millisecond) // the pace of polling
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

// TestSpecsAreFoundWithoutRun: a worker asks by id for what was made after it was started.
func TestSpecsAreFoundWithoutRun(t *testing.T) {
	b := bus(t)
	worker, up := open(t, b), open(t, b)
	if _, err := up.Accounts.Ensure(t.Context(), records.Bootstrap{Account: "acct_a", Key: key, Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	c, err := up.Resolve(t.Context(), "acct_a", request())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := worker.Sandbox(t.Context(), "acct_a", c.Sandbox); err != nil || got.ID != c.Sandbox {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := worker.Workspace(t.Context(), "acct_a", c.Workspace); err != nil || got.ID != c.Workspace {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := worker.Sandbox(t.Context(), "acct_b", c.Sandbox); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("another account's: %v", err)
	}
}

func TestStoresStartAndStop(t *testing.T) {
	b := bus(t)
	for range 20 {
		for _, after := range []time.Duration{-1, 0, time.Millisecond} {
			s := open(t, b)
			ctx, cancel := context.WithCancel(t.Context())
			if after < 0 {
				cancel()
			}
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			if after > 0 {
				<-time.After(after)
			}
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("stopped after %s: %v", after, err)
				}
			case <-time.After(within):
				t.Fatalf("stopped after %s: it did not", after)
			}
		}
	}
}

// The stream is recreated behind a store: it has lower revisions than the store has seen, and lacks what was there.
func TestAStoreFollowsAnotherLog(t *testing.T) {
	t.Parallel()
	role := natsauth.User{Name: "role", Password: "role"}
	l := natstest.Start(t, natstest.OnDisk(), natstest.Listen(role), natstest.RecreateRecords())
	account := func(id schemas.AccountID) records.Bootstrap {
		return records.Bootstrap{Account: id, Key: "key-of-" + string(id) + "-which-is-long-enough", Provider: "local"}
	}
	knows := func(s *records.Store, id schemas.AccountID) bool {
		_, err := s.Resolve(t.Context(), id, request())
		return err == nil
	}
	s := open(t, l.Bus)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { testwait.OK(t, s.Run(ctx)) })
	for _, id := range []schemas.AccountID{"acct_first", "acct_second", "acct_both"} {
		testwait.Must(s.Accounts.Ensure(ctx, account(id)))(t)
	}
	natstest.Dial(t, l.Server.URL(), role.Name, role.Password).DeleteStream(t, "KV_records")
	again := open(t, l.Open())
	testwait.Must(again.Accounts.Ensure(ctx, account("acct_both")))(t)
	l.Restart()
	testwait.Eventually(t, "it has what is there, and no more", func() bool {
		return knows(s, "acct_both") && !knows(s, "acct_first") && !knows(s, "acct_second")
	})
	d, err := again.Documents.Add(ctx, "acct_both", schemas.Sandboxes, []byte(`{"name":"fresh"}`))
	testwait.Eventually(t, "the other store reaches the log again too", func() bool {
		if schemas.CodeOf(err) != schemas.Unavailable {
			return true
		}
		d, err = again.Documents.Add(ctx, "acct_both", schemas.Sandboxes, []byte(`{"name":"fresh"}`))
		return false
	})
	testwait.OK(t, err)
	testwait.Eventually(t, "it knows what came later", func() bool {
		_, err := s.Documents.Get(ctx, "acct_both", schemas.Sandboxes, d.ID)
		return err == nil
	})
}
