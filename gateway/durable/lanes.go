package durable

import (
	"context"
	"sync"
)

// lanes bring the appends of each stream into one row, in this process: those of other processes are
// noticed by the log's condition. A lane remembers the stream's end, so that most appends are one
// write and no read; what it remembers is proven by the next write.
type lanes struct {
	mu   sync.Mutex
	open map[string]*lane
}

// lane is held by one goroutine at a time.
type lane struct {
	turn  chan struct{}
	users int // guarded by lanes.mu

	known   bool
	last    uint64
	state   state
	reached map[string]*producer // nil value: it never wrote
}

const (
	keptLanes     = 4096
	keptProducers = 256 // of one lane
)

// enter waits for the lane of a stream. Leave must be called after it, unless there is an error.
func (l *lanes) enter(ctx context.Context, id string) (*lane, error) {
	l.mu.Lock()
	n := l.open[id]
	if n == nil {
		if len(l.open) >= keptLanes {
			l.dropIdle()
		}
		n = &lane{turn: make(chan struct{}, 1)}
		if l.open == nil {
			l.open = map[string]*lane{}
		}
		l.open[id] = n
	}
	n.users++
	l.mu.Unlock()
	select {
	case n.turn <- struct{}{}:
		return n, nil
	case <-ctx.Done():
		l.mu.Lock()
		n.users--
		l.mu.Unlock()
		return nil, ctx.Err()
	}
}

func (l *lanes) leave(n *lane) {
	<-n.turn
	l.mu.Lock()
	n.users--
	l.mu.Unlock()
}

// dropIdle forgets one lane that nobody is in.
func (l *lanes) dropIdle() {
	for id, n := range l.open {
		if n.users == 0 {
			delete(l.open, id)
			return
		}
	}
}

// forget makes the next append read the stream's end.
func (n *lane) forget() { n.known, n.reached = false, nil }

// reach remembers where a producer is.
func (n *lane) reach(id string, p *producer) {
	if n.reached == nil || len(n.reached) >= keptProducers {
		n.reached = map[string]*producer{}
	}
	n.reached[id] = p
}
