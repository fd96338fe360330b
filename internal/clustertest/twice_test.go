package clustertest_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestTheSameCallTwiceAtOnce publishes each call by two processes at once. The one that is refused must find the call.
func TestTheSameCallTwiceAtOnce(t *testing.T) {
	longtest.Only(t, "writes that meet one in process on three servers")
	c := natstest.StartCluster(t, natstest.ClusterOptions{SyncAlways: true, Streams: streams.Options{Shards: 1}})
	buses := []*streams.Bus{c.Open(0), c.Open(1)}
	const pairs = 500
	lost := 0
	for n := range pairs {
		call := newCall(schemas.CallID(fmt.Sprintf("call_twice_%d", n)), []byte(`{"command":"true"}`))
		var (
			both sync.WaitGroup
			errs [2]error
		)
		for i, b := range buses {
			both.Go(func() {
				errs[i] = streams.Calls.Publish(t.Context(), b, call)
				if errors.Is(errs[i], schemas.ErrConflict) {
					_, errs[i] = streams.FindCall(t.Context(), b, call.Account, call.ID)
				}
			})
		}
		both.Wait()
		if err := errors.Join(errs[0], errs[1]); err != nil {
			lost++
			t.Logf("pair %d: %v", n, err)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d pairs have one that was refused and does not find the call", lost, pairs)
	}
}
