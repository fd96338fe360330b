package streams_test

import (
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// All that ask at the same time are of one deployment, and another log is another one.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestADeploymentHasOneID(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		natstest.Run(t, func(t *testing.T, b *streams.Bus) {
			const n = 16
			var asking sync.WaitGroup
			ids := make([]string, n)
			for i := range ids {
				asking.Go(func() {
					id, err := streams.Deployment(t.Context(), b)
					if err != nil {
						t.Error(err)
					}
					ids[i] = id
				})
			}
			asking.Wait()
			for _, id := range ids {
				if id != ids[0] || id == "" || len(id) > 40 || !subjects.IsToken(id) {
					t.Fatalf("ids %q", ids)
				}
			}
			if seen[ids[0]] {
				t.Error("another log has the same id")
			}
			seen[ids[0]] = true
		})
	}
}
