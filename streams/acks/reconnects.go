package acks

import (
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// Reconnects counts how often a connection was lost or restored. The client library counts too, but behind a lock that it holds while it
// writes, and this count is read several times for each call.
type Reconnects struct {
	// changed has a token for each change that is not counted yet. The client puts it there before anything of the new connection is read.
	// When it is full more are dropped, and the count still differs from any earlier one.
	Changed chan nats.Status

	mu sync.Mutex // of who takes tokens out
	n  atomic.Uint64
}

// Watch starts counting.
func (r *Reconnects) Watch(conn *nats.Conn) {
	r.Changed = conn.StatusChanged(nats.RECONNECTING, nats.CONNECTED)
}

// Count returns a number that changes whenever the connection is lost or restored.
func (r *Reconnects) Count() uint64 {
	if len(r.Changed) == 0 {
		return r.n.Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range len(r.Changed) {
		r.n.Add(1) // first: who finds no token finds it counted
		<-r.Changed
	}
	return r.n.Load()
}
