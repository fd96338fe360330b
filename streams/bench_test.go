package streams_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// BenchmarkAcceptCalls publishes calls one by one, each confirmed, from many goroutines: what each
// durability costs, and what there is to gain by writing several with one sync.
func BenchmarkAcceptCalls(b *testing.B) {
	for _, way := range []string{"1s", "always", "always-ungrouped"} {
		for _, waiting := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", way, waiting), func(b *testing.B) {
				d, alone := strings.CutSuffix(way, "-ungrouped")
				l := natstest.Start(b, natstest.Durability(streams.Durability(d)))
				if alone {
					l.Bus.Ungrouped()
				}
				var n atomic.Int64
				b.SetParallelism(max(waiting/2, 1)) // of two processors
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						c := callOf(fmt.Sprint(n.Add(1)))
						if err := streams.Calls.Publish(b.Context(), l.Bus, c); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkPipeline is a call's whole way over the log: accepted, consumed, its result stored, its
// message acknowledged.
func BenchmarkPipeline(b *testing.B) {
	l := natstest.Start(b)
	done := make(chan struct{}, b.N)
	stop := consumeB(b, l.Bus, 64, func(d streams.Delivery[schemas.Call]) error {
		err := streams.Events.Publish(b.Context(), l.Bus, eventOf(d.Value, "finished", schemas.CallFinished, schemas.Result{Call: d.Value.ID, Status: schemas.Completed}))
		done <- struct{}{}
		return err
	})
	b.ResetTimer()
	go func() {
		for n := range b.N {
			if _, err := streams.Calls.PublishAsync(b.Context(), l.Bus, callOf(fmt.Sprint(n))); err != nil {
				b.Error(err)
			}
		}
	}()
	for range b.N {
		<-done
	}
	b.StopTimer()
	stop()
}
