package bench

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkCall is one call from its acceptance to its result, with all that happens in the process, the log's server
// included: beside the time its processor time, which a busy machine changes less.
func BenchmarkCall(b *testing.B) {
	const warm, slots = 2000, 32
	o, err := openOurs(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer o.close(b.Context())
	var finished atomic.Pointer[func()]
	run := func(n int) {
		done, all := countdown(n)
		finished.Store(&done)
		if err := produce(n, producers, func() error { return o.accept(b.Context()) }); err != nil {
			b.Fatal(err)
		}
		if err := waitFor(b.Context(), all); err != nil {
			b.Fatal(err)
		}
	}
	o.work(b.Context(), slots, func() { (*finished.Load())() })
	run(warm)
	b.ReportAllocs()
	before := processorTime(b)
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// BenchmarkPipeline measures two baselines of [BenchmarkCall]: the bare pipeline, and the messages that a call writes, without the rest of
// Sandjet.
func BenchmarkPipeline(b *testing.B) {
	const warm, slots = 2000, 32
	w, err := openWrites(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	bare, err := openBare(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer bare.close()
	var serial counter
	for _, bm := range []struct {
		name   string
		serve  func(ctx context.Context, done func()) error
		accept func() error
	}{
		{"bare", func(ctx context.Context, done func()) error { return bare.serve(ctx, slots, w.body, done) },
			func() error { return bare.accept(b.Context(), serial.next(), w.body) }},
		{"writes", func(ctx context.Context, done func()) error { return w.serve(ctx, slots, done) },
			func() error { return w.accept(b.Context(), serial.next()) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			if _, err := throughput(b.Context(), warm, bm.serve, bm.accept); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			before := processorTime(b)
			b.ResetTimer()
			if _, err := throughput(b.Context(), b.N, bm.serve, bm.accept); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// BenchmarkWrite is each of the four messages of a call by itself, and beside them those of the bare pipeline: processor time of
// client and server together.
func BenchmarkWrite(b *testing.B) {
	w, err := openWrites(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	var serial counter
	event := func(kind string) func() error {
		return func() error { return w.event(b.Context(), serial.next(), kind) }
	}
	for _, bm := range []struct {
		name  string
		write func() error
	}{
		{"bare call", func() error { return w.bare.accept(b.Context(), serial.next(), w.body) }},
		{"bare result", func() error { return w.result(b.Context(), serial.next(), w.body) }},
		{"call", func() error { return w.call(b.Context(), serial.next()) }},
		{"call.accepted", event("accepted")},
		{"call.started", event("started")},
		{"call.finished", event("finished")},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			before := processorTime(b)
			if err := produce(b.N, producers, bm.write); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
