package bench

import (
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

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
