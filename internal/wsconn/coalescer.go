package wsconn

import "sync/atomic"

// Coalescer runs a function in a goroutine of its own while there is something to do, and in no more than one: what is
// asked for while it runs is done by it, together. The zero value is ready; its methods may be called from many
// goroutines and never wait.
type Coalescer struct{ state atomic.Int32 }

// States of a coalescer.
const (
	idle  int32 = iota // nothing runs
	busy               // something runs
	again              // something runs and must look again
)

// Wake starts run, or has the one that runs look again.
func (p *Coalescer) Wake(run func()) {
	for {
		switch state := p.state.Load(); state {
		case idle:
			if p.state.CompareAndSwap(state, busy) {
				go run()
				return
			}
		case busy:
			if p.state.CompareAndSwap(state, again) {
				return
			}
		default:
			return
		}
	}
}

// Again reports whether what runs must look again. If not it must end: from then on Wake starts another.
func (p *Coalescer) Again() bool {
	if p.state.CompareAndSwap(busy, idle) {
		return false
	}
	p.state.Store(busy)
	return true
}
