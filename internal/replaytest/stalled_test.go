package replaytest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/faultproxy"
)

// TestWhoDoesNotReadCostsNothing: while many clients do not read from their connections, the others see all events, and the gateway keeps
// no events in memory for those that do not read. When they read again, they get everything. The test runs alone, because it measures
// memory.
func TestWhoDoesNotReadCostsNothing(t *testing.T) {
	s := open(t)
	h := s.single()
	still := open(t).proxy // a network of their own
	still.Aim(h.addr)
	still.Set(faultproxy.Faults{Most: 64 << 10})
	convs := names(2)
	quick, stalled := s.crowd(), s.crowd()
	url := s.url
	s.url = "http://" + still.Addr()
	stalled.everyWay(pick(6, 3), convs...)
	s.url = url
	quick.everyWay(1, convs...)
	s.write(convs, 0, 1)
	quick.reached()
	stalled.reached()

	const size = 16 << 10
	events, before := pick(150, 100), heap()
	for n := 1; n <= events; n++ {
		for _, c := range convs {
			e := note(c, n)
			e.Data = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("y", size))
			s.store(e)
		}
	}
	quick.reached()
	behind := 0
	for _, tr := range stalled.all {
		if tr.Count() < events {
			behind++
		}
	}
	// Polls are short: some may be done with the bytes they get.
	if want := len(stalled.all) / 2; behind < want {
		t.Errorf("%d of %d clients stand still, want %d: that proves little", behind, len(stalled.all), want)
	}
	queued, published := behind*events*size, len(convs)*events*size
	grown := heap() - before
	t.Logf("%d clients that stand still, %d MB queued for them, had it been: the heap has grown by %d MB", behind, queued>>20, grown>>20)
	if grown > 3*published+12<<20 { // the server's memory of its files is in it, and the ring
		t.Errorf("the heap has grown by %d bytes while %d readers stood still", grown, behind)
	}

	still.Set(faultproxy.Faults{})
	still.CutAll()
	quick.all = append(quick.all, stalled.all...)
	quick.caughtUp()
	quick.whole()
}

// heap returns the bytes in use on the heap, after a garbage collection.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
