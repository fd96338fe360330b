// Package gopool runs short functions in goroutines that are used again.
//
// A goroutine starts with a small stack, and work that decodes and encodes grows it several times by copying. Where each
// message has a goroutine of its own, that copying is a twentieth of what a message costs.
package gopool

import "sync"

// Pool runs functions, each in a goroutine that runs nothing else meanwhile. The zero value is ready. It keeps as many
// idle goroutines as functions ran at the same time, until [Pool.Close]. Its methods may be called concurrently.
type Pool struct {
	mu     sync.Mutex
	idle   []chan func() // the one that was busy last comes last, and is taken first: its stack is warm
	closed bool
	all    sync.WaitGroup
}

// Go runs f and does not wait for it, nor for a place: the caller bounds how many run. A panic of f is not caught.
// After Close it works on, without keeping goroutines.
func (p *Pool) Go(f func()) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		next := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		next <- f // it has room for one
		return
	}
	p.mu.Unlock()
	p.all.Go(func() { p.run(f) })
}

// run runs f, and what comes after it.
func (p *Pool) run(f func()) {
	next := make(chan func(), 1)
	for ok := true; ok; f, ok = <-next {
		f()
		if !p.rest(next) {
			return
		}
	}
}

// rest offers a goroutine for more work.
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
