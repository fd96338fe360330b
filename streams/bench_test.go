package streams_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
)

// BenchmarkAcceptCalls publishes calls one by one, each confirmed, from many goroutines: what each
// durability costs, and what there is to gain by writing several with one sync.
func BenchmarkAcceptCalls(b *testing.B) {
	for _, way := range []string{"1s", "always", "always-ungrouped"} {
		for _, waiting := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", way, waiting), func(b *testing.B) {
				d, alone := strings.CutSuffix(way, "-ungrouped")
				l := natstest.Start(b, natstest.Durability(embedded.Durability(d)))
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
		err := streams.Events.Publish(b.Context(), l.Bus,
			eventOf(d.Value, "finished", schemas.CallFinished, schemas.Result{Call: d.Value.ID, Status: schemas.StatusCompleted}))
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

// BenchmarkWatchJobs begins to watch jobs beside many that have settled.
func BenchmarkWatchJobs(b *testing.B) {
	const settled, open = 70_000, 100
	l := natstest.Start(b)
	over := schemas.Job{Account: account, Provider: "local", State: schemas.JobCompleted,
		Completion: &schemas.Completion{Logs: strings.Repeat("x", 1<<10)}}
	for i := range settled {
		over.ID = schemas.JobID(fmt.Sprint(schemas.JobPrefix, i))
		if _, err := lifecycle.OpenJobs(l.Bus).Put(b.Context(), over.Key(), over); err != nil {
			b.Fatal(err)
		}
	}
	for i := range open {
		if _, err := lifecycle.EnsureJob(b.Context(), l.Bus,
			schemas.Call{Account: account, Job: schemas.JobID(fmt.Sprint(schemas.JobPrefix, "open", i)), Provider: "local"}); err != nil {
			b.Fatal(err)
		}
	}
	begin := func(want int) {
		w := lifecycle.WatchJobs(l.Bus, "")
		for range w.Watch(b.Context()) {
			if want--; want == 0 {
				break
			}
		}
		if err := w.Cover(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for _, way := range []struct {
		name string
		told int
	}{{"older", settled + open}, {"covered", open}} {
		b.Run(way.name, func(b *testing.B) {
			before := l.Bus.Received()
			b.ReportAllocs()
			for b.Loop() {
				begin(way.told)
			}
			b.ReportMetric(float64(l.Bus.Received()-before)/float64(b.N), "read-B/op")
		})
	}
}
