package clustertest_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A server that finds no majority of the others is one to wait for, also while it still takes itself for their leader.
//
//guarantee:pauses-cuts-and-full-disks
func TestALogWithoutALeaderIsUnavailable(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "three servers: make long-cluster")
	c := natstest.StartCluster(t, natstest.ClusterOptions{Streams: streams.Options{Shards: 1}})
	alone := c.MetaLeader()
	if alone < 0 {
		t.Fatal("no server leads")
	}
	for i := range natstest.Members {
		if i != alone {
			c.Kill(i)
		}
	}
	seen := map[string]bool{}
	for end := time.Now().Add(30 * time.Second); len(seen) < 2 && time.Now().Before(end); { // it notices that it leads no more
		b, err := streams.Open(t.Context(), c.Options(alone))
		if err == nil {
			_ = b.Close(t.Context())
		}
		if schemas.CodeOf(err) != schemas.Unavailable {
			t.Fatalf("a log of one of three servers: %v", err)
		}
		seen[err.Error()] = true
	}
	for text := range seen {
		t.Log(text)
	}
}
