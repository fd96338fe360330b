package live

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// room is what one connection has of the memory for what clients have not read yet: that of one large event. A client that does not
// read holds it until its connection is dropped, and others of its account wait meanwhile. It is safe for concurrent use.
type room struct {
	answers *quota.Ledger // nil: there is no limit
	copies  int64         // of an event that its writing makes
	again   func()        // is called a moment after there was none

	mu   sync.Mutex
	held *quota.Place
}

// take takes room for a large event instead of what was taken before, which is written by now or soon. Where there is none it reports
// false, and again is called.
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

// free releases what was taken, once it is written or dropped.
func (m *room) free() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held.Release()
	m.held = nil
}
