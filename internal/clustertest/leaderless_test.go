package clustertest_test

import (
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A server that finds no majority of the others is one to wait for, whoever asks it, and is not taken for one that cannot keep a log.
func TestALogWithoutALeaderIsUnavailable(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "three servers: make long-cluster")
	c := natstest.StartCluster(t, natstest.ClusterOptions{Streams: streams.Options{Shards: 1}})
	c.Kill(1)
	c.Kill(2)
	for _, existing := range []bool{false, true} {
		for range 4 { // it notices that it leads no more
			o := c.Options(0)
			o.Existing = existing
			b, err := streams.Open(t.Context(), o)
			if err == nil {
				_ = b.Close(t.Context())
			}
			if schemas.CodeOf(err) != schemas.Unavailable {
				t.Errorf("existing %v: %v", existing, err)
			}
		}
	}
}
