package wsconn

import "sync/atomic"

// Coalescer runs a function in its own goroutine while there is something to do, and never twice at the same time. Wakes while it runs are
// handled by that run, together. The zero value is ready to use. Its methods are safe for concurrent use and never block.
//
// No wake is lost: the state is idle exactly while no function runs. Everything that a caller did before Wake is visible to the function
// that Wake starts, or to the one that runs: after a Wake its state is again rather than busy, so that Again returns true and the function
// checks once more. The function must check everything after each true, and return after a false. Any number of wakes meanwhile cause one
// more check, which is why many messages go out in one write.
type Coalescer struct{ state atomic.Int32 }

// States of a coalescer.
const (
	idle  int32 = iota // no function runs
	busy               // the function runs
	again              // the function runs and must check once more
)

// Wake starts run, or makes the running function check once more.
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

// Again reports whether the running function must check once more. If not, it must return: the next Wake starts another.
func (p *Coalescer) Again() bool {
	if p.state.CompareAndSwap(busy, idle) {
		return false
	}
	p.state.Store(busy)
	return true
}
