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

// TestANewAccountSpeaksNATS makes an account while everything runs: its key opens the NATS listener to
// its own calls, until the account is removed.
func TestANewAccountSpeaksNATS(t *testing.T) {
	t.Parallel()
	n, err := newNode(slog.New(slog.DiscardHandler), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	id, err := n.dir.identity()
	free := address{"127.0.0.1", 0}
	if err = errors.Join(err, n.openServer(ctx, serverFlags{NATSListen: free, Durability: "1s"}, tenantFlags{}, id)); err != nil {
		t.Fatal(err)
	}
	if err = n.openBus(ctx, natsFlags{}, topologyFlags{Replicas: 1, Shards: 1}); err == nil {
		err = n.openRecords(ctx, secretsFlags{}, natsFlags{})
	}
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := n.run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	if _, err := n.records.Accounts.Ensure(ctx, records.Bootstrap{Account: id.Account, Key: id.Key, Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	made, key, err := n.records.Accounts.Add(ctx, []byte(`{"name":"later"}`))
	if err != nil {
		t.Fatal(err)
	}
	user := made.ID
	dial := func(user, password string) error {
		nc, err := nats.Connect(n.server.URL(), nats.UserInfo(user, password), nats.Timeout(time.Minute))
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = nc.Request("sandjet.calls.auto."+user, []byte(`{}`), time.Minute)
		return err
	}
	for name, c := range map[string]struct{ user, password string }{
		"another's key":     {user, id.Key},
		"another's account": {string(id.Account), key},
		"no key":            {user, ""},
		"its key's hash":    {user, records.HashKey(key)},
	} {
		if err := dial(c.user, c.password); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := dial(user, key); err != nil {
		t.Errorf("its own key: %v", err)
	}
	if n.gone(ctx, "acct_without_a_record") {
		t.Error("an account without a record counts as removed: its conversations would be purged")
	}
	if n.gone(ctx, schemas.AccountID(user)) {
		t.Error("the account counts as removed before it is")
	}
	if _, err := n.records.Accounts.Remove(ctx, schemas.AccountID(user), 0); err != nil {
		t.Fatal(err)
	}
	if !n.gone(ctx, schemas.AccountID(user)) {
		t.Error("the account was removed and does not count as such")
	}
	if err := dial(user, key); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("after its end: %v", err)
	}
}
