package main

import (
	"log/slog"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
)

// TestRolesLeaveTheNumberOfCopiesAlone: a gateway, worker or deliverer that is started with the flags that its help shows does not change
// the number of replicas of the log's streams, neither at the start nor when it reconnects.
//
//guarantee:what-can-be-lost-by-durability
func TestRolesLeaveTheNumberOfCopiesAlone(t *testing.T) {
	c := natstest.StartCluster(t, natstest.ClusterOptions{Streams: streams.Options{Shards: 1}})
	c.Open()
	user, password := c.User()
	none := func(string) (string, bool) { return "", false }
	for _, role := range []string{"gateway", "worker", "deliver"} {
		p, err := parse([]string{role, "--nats-url", c.URL(), "--nats-user", user, "--nats-password", password}, none)
		if err != nil {
			t.Fatal(err)
		}
		var top topologyFlags
		switch c := p.command.(type) {
		case *gatewayCommand:
			top = c.topologyFlags
		case *workerCommand:
			top = c.topologyFlags
		case *deliverCommand:
			top = c.topologyFlags
		default:
			t.Fatalf("%s is a %T", role, c)
		}
		if err := top.check(); err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		n, err := newNode(slog.New(slog.DiscardHandler), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.close)
		if err := n.openBus(t.Context(), natsFlags{NATSURL: c.URL(), NATSUser: user, NATSPassword: password}, top); err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		for name, copies := range c.Replicas() {
			if copies != natstest.Members {
				t.Errorf("after a %s: %s has %d copies", role, name, copies)
			}
		}
	}
}
