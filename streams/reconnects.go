package streams

import (
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// reconnects counts how often a connection was lost or has reconnected. The client library counts too, but has its own lock for that, which
// it holds while it writes; and this is asked several times for each call.
type reconnects struct {
	// changed has a token for each change that is not counted yet. The client puts it there before anything of the new connection is read.
	// When it is full more are dropped, and the count still differs from any earlier one.
	changed chan nats.Status

	mu sync.Mutex // of who takes tokens out
	n  atomic.Uint64
}

// watch begins to count.
func (r *reconnects) watch(conn *nats.Conn) {
	r.changed = conn.StatusChanged(nats.RECONNECTING, nats.CONNECTED)
}

// count differs from an earlier one if the connection was lost or has reconnected since.
func (r *reconnects) count() uint64 {
	if len(r.changed) == 0 {
		return r.n.Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range len(r.changed) {
		r.n.Add(1) // first: who finds no token finds it counted
		<-r.changed
	}
	return r.n.Load()
}
