package gateway

import "sync/atomic"

// pump runs a function in a goroutine of its own while there is something to do, and in no more than one.
type pump struct{ state atomic.Int32 }

// States of a pump: nothing runs, something runs, something runs and must look again.
const (
	pumpIdle int32 = iota
	pumpBusy
	pumpAgain
)

// wake starts run, or has the one that runs look again. It never waits.
func (p *pump) wake(run func()) {
	for {
		switch state := p.state.Load(); state {
		case pumpIdle:
			if p.state.CompareAndSwap(state, pumpBusy) {
				go run()
				return
			}
		case pumpBusy:
			if p.state.CompareAndSwap(state, pumpAgain) {
				return
			}
		default:
			return
		}
	}
}

// again reports whether what runs must look again. If not it must end: from then on wake starts another.
func (p *pump) again() bool {
	if p.state.CompareAndSwap(pumpBusy, pumpIdle) {
		return false
	}
	p.state.Store(pumpBusy)
	return true
}
