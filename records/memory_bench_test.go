package records

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/records/recordstest"
)

// BenchmarkMemory opens the records of many accounts, each with its workspace and sandbox, as every process does.
func BenchmarkMemory(b *testing.B) {
	const accounts, each = 10_000, 3
	l := natstest.Start(b)
	s, err := Open(b.Context(), l.Bus, nil, recordstest.Providers())
	if err != nil {
		b.Fatal(err)
	}
	for i := range accounts {
		if _, err := s.Accounts.Ensure(b.Context(), Bootstrap{Key: fmt.Sprintf("key_of_account_%06d", i), Provider: "local",
			Name: "somebody"}); err != nil {
			b.Fatal(err)
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		opened, err := Open(b.Context(), l.Bus, nil, recordstest.Providers())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(heap()-before)/(accounts*each), "B/record")
		runtime.KeepAlive(opened)
	}
}
