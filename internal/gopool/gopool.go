// Package gopool runs short functions in reused goroutines.
//
// A goroutine starts with a small stack. Encoding and decoding grow it several times, by copying. If each message has a new goroutine,
// that copying is a twentieth of the message's cost.
package gopool

import "sync"

// Pool runs each function in a goroutine that runs nothing else meanwhile. The zero value is ready to use. It retains as many idle
// goroutines as functions ran at the same time, until [Pool.Close]. It is safe for concurrent use.
type Pool struct {
	mu     sync.Mutex
	idle   []chan func() // the one that was busy last is reused first: its stack is warm
	closed bool
	all    sync.WaitGroup
}

// Go runs f in a goroutine and returns at once. The number of goroutines is not limited, that is left to the caller. A panic of f is not
// caught. After Close it still runs functions, but retains no goroutines.
func (p *Pool) Go(f func()) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		next := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		next <- f // does not block: the channel has a buffer
		return
	}
	p.mu.Unlock()
	p.all.Go(func() { p.run(f) })
}

// run runs f, and then the functions that the goroutine gets next.
func (p *Pool) run(f func()) {
	next := make(chan func(), 1)
	for ok := true; ok; f, ok = <-next {
		f()
		if !p.rest(next) {
			return
		}
	}
}

// rest adds a goroutine to the idle ones; false if the pool is closed.
func (p *Pool) rest(next chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.idle = append(p.idle, next)
	return true
}

// Close ends the idle goroutines, and each busy one after its function. It does not wait.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, next := range p.idle {
		close(next)
	}
	p.idle = nil
}

// Wait blocks until every goroutine has ended. Call Close first.
func (p *Pool) Wait() { p.all.Wait() }
