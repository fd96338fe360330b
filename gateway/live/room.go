package live

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// room is the memory that one connection occupies of the limit for unread events: that of one large event at a time. A client that does
// not read occupies it until its connection is dropped, and other clients of its account may have to wait. It is safe for concurrent use.
type room struct {
	answers *quota.Ledger // nil: there is no limit
	copies  int64         // copies of an event in memory while it is written
	again   func()        // is called a moment after the limit was reached

	mu   sync.Mutex
	held *quota.Place
}

// take reserves memory for a large event, and releases what was reserved for the one before, which has been written or soon will be. If
// the limit is reached it returns false and calls again after a moment.
func (m *room) take(a schemas.AccountID, bytes int) bool {
	m.free()
	if m.answers == nil {
		return true
	}
	place, full := m.answers.TakeMany(a, int64(bytes)*m.copies)
	if full == quota.Free {
		m.mu.Lock()
		m.held = place
		m.mu.Unlock()
		return true
	}
	const least, spread = 250 * time.Millisecond, 250 * time.Millisecond
	time.AfterFunc(least+wait.Upto(spread), m.again)
	return false
}

// free releases the reserved memory, once the event is written or dropped.
func (m *room) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held.Release()
	m.held = nil
}
