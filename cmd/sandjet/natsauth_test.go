package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
)

// TestAServerAloneKnowsTheAccountsOfItsLog has the server in one process and the records in another. It
// comes first, so that there is no log yet.
//
//guarantee:tenants-are-isolated
func TestAServerAloneKnowsTheAccountsOfItsLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, other := startNode(t, dir), startNode(t, dir)
	ctx := t.Context()
	id, err := server.dir.identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.openServer(ctx, serverFlags{NATSListen: address{"127.0.0.1", 0}, Durability: "1s"}, tenantFlags{}, id); err != nil {
		t.Fatal(err)
	}
	ring, err := secretsFlags{}.ring(ctx, server.dir)
	if err != nil {
		t.Fatal(err)
	}
	server.add("tenants", func(ctx context.Context) error { return server.followTenants(ctx, ring) })
	background(t, server.run)
	err = other.openBus(ctx, natsFlags{}, topologyFlags{Replicas: 1, Shards: 3})
	if err == nil {
		err = other.openRecords(ctx, secretsFlags{}, natsFlags{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if other.bus.Shards() != 3 {
		t.Errorf("the log has %d shards: the server decided about it", other.bus.Shards())
	}
	background(t, other.run)

	dial := func(user schemas.AccountID, password string) error {
		nc, err := nats.Connect(server.server.URL(), nats.UserInfo(string(user), password), nats.Timeout(time.Minute))
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = nc.Request("sandjet.calls.auto."+string(user), []byte(`{}`), time.Minute)
		return err
	}
	until := func(what string, f func() bool) {
		t.Helper()
		end, tick := time.Now().Add(time.Minute), time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		for !f() {
			if time.Now().After(end) {
				t.Fatal(what)
			}
			<-tick.C
		}
	}
	accounts, keys := [2]schemas.AccountID{}, [2]string{}
	for i := range accounts {
		d, key, err := other.records.Accounts.Add(ctx, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		accounts[i], keys[i] = schemas.AccountID(d.ID), key
		until("a new account comes in", func() bool { return dial(accounts[i], key) == nil })
	}
	issued, _, err := other.records.Accounts.IssueNATS(ctx, accounts[0], time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := dial(accounts[0], issued); err != nil {
		t.Errorf("with a password that another process issued: %v", err)
	}
	if _, err := other.records.Accounts.Ensure(ctx, records.Bootstrap{Account: id.Account, Key: id.Key, Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	own, _, err := other.records.Accounts.IssueNATS(ctx, id.Account, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	until("the account of the settings comes in with one too", func() bool { return dial(id.Account, own) == nil })
	for name, c := range map[string]struct {
		user     schemas.AccountID
		password string
	}{
		"the key of another":        {accounts[1], keys[0]},
		"what another was issued":   {accounts[1], issued},
		"what is not the settings'": {id.Account, issued},
		"nobody":                    {"acct_none", issued},
	} {
		if err := dial(c.user, c.password); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Who is connected when another process takes the key back is cut off, and not when its session ends.
	cut := make(chan struct{})
	connected, err := nats.Connect(server.server.URL(), nats.UserInfo(string(accounts[0]), issued), nats.Timeout(time.Minute),
		nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ClosedHandler(func(*nats.Conn) { close(cut) }))
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	second, err := other.records.Accounts.RotateKey(ctx, accounts[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	until("the new key comes in", func() bool { return dial(accounts[0], second) == nil })
	select {
	case <-cut:
	case <-time.After(5 * time.Minute):
		t.Error("a connection outlives its key")
	}
	for name, password := range map[string]string{"the former key": keys[0], "what was issued under it": issued} {
		if err := dial(accounts[0], password); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := dial(accounts[1], keys[1]); err != nil {
		t.Errorf("the other account: %v", err)
	}
}

// startNode opens a data folder for a test.
func startNode(t *testing.T, dir string) *node {
	t.Helper()
	n, err := newNode(slog.New(slog.DiscardHandler), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return n
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func TestAddressesAreToldWithoutPasswords(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"": "", "nats://a:4222": "nats://a:4222", "nats://u:p@a:1, tls://u:p@b:2": "nats://a:1,tls://b:2", "u:p@a:1": "", "nats://u:p%zz@a": "",
	} {
		if got := bareURLs(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}
