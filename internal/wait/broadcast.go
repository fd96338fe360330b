package wait

import "sync"

// Broadcast wakes all goroutines that wait for the same event. The zero value is ready. It is safe for concurrent use.
type Broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

// Next returns a channel that is closed by the next call of Notify.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// Notify wakes the goroutines that have taken a channel from Next before.
func (b *Broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
