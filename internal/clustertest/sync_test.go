package clustertest_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// BenchmarkConfirmedOnThreeServers says what syncing each write costs: confirmed calls a second of a log with three
// copies, by how many publish at the same time. The servers share one disk and the processors of this machine, so only
// the ratio of the two kinds says something:
//
//	go test ./internal/clustertest -run '^$' -bench Confirmed -benchtime 3s -count 5
func BenchmarkConfirmedOnThreeServers(b *testing.B) {
	for _, kind := range []struct {
		name   string
		always bool
	}{{"lazy", false}, {"always", true}} {
		for _, publishers := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, publishers), func(b *testing.B) {
				c := natstest.StartCluster(b, natstest.ClusterOptions{SyncAlways: kind.always, Streams: streams.Options{Shards: 1}})
				bus := c.Open(0)
				var (
					serial atomic.Int64
					all    sync.WaitGroup
				)
				b.ResetTimer()
				for range publishers {
					all.Go(func() {
						for n := serial.Add(1); n <= int64(b.N); n = serial.Add(1) {
							call := newCall(schemas.CallID(fmt.Sprintf("call_%d", n)), []byte(`{"command":"true"}`))
							if err := streams.Calls.Publish(b.Context(), bus, call); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/max(b.Elapsed(), time.Nanosecond).Seconds(), "calls/s")
			})
		}
	}
}
