package wsconn

import "sync/atomic"

// Coalescer runs a function in a goroutine of its own while there is something to do, and in no more than one: what is
// asked for while it runs is done by it, together. The zero value is ready; its methods may be called from many
// goroutines and never wait.
//
// No wake is lost, and no two functions run: the state is idle exactly while none runs. What a caller did before Wake is seen by the
// function that Wake starts, or by the one that runs, which can only become idle from busy: after a Wake the state is again, so Again
// reports true and the function looks once more. It must look at everything after each true, and end after a false. Any number of wakes
// meanwhile are one more look, which is why many messages go out in one write.
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
