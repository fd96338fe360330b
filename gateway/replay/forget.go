package replay

import (
	"slices"
	"time"
)

// forget stops following conversations without readers, and drops those of which nothing is kept. Conversations whose turn it is release
// what only some readers need, and their frames if they have had no reader for long: memory of a busy hour is not held until the next.
func (h *Hub) forget(turn []*conversation) {
	for _, c := range turn {
		c.mu.Lock()
		c.forgetIndex()
		unread := c.stop == nil && len(c.readers) == 0 && h.tick.Load()-c.used.Load() >= unreadKept
		c.mu.Unlock()
		if unread {
			c.evict()
			h.drop(c)
		}
	}
	unread := h.list(h.idle)
	idle := make([]time.Duration, 0, len(unread))
	for _, c := range unread {
		c.mu.RLock()
		if c.abandoned() {
			idle = append(idle, time.Since(c.idle))
		}
		c.mu.RUnlock()
	}
	least := patience(idle)
	for _, c := range unread {
		c.mu.Lock()
		if c.abandoned() && time.Since(c.idle) >= least {
			c.stop()
			c.stop, c.synced = nil, false
		}
		if len(c.readers) > 0 || c.stop == nil && !c.working && !c.seeking {
			h.unnote(h.idle, c)
		}
		c.mu.Unlock()
		h.drop(c)
	}
}

// patience is how long conversations without readers are followed that have been without for so long: a client that
// goes from one to the next must not leave any number of them behind.
func patience(idle []time.Duration) time.Duration {
	if len(idle) <= idleKept {
		return linger
	}
	slices.Sort(idle)
	return min(linger, idle[idleKept])
}

// drop removes a conversation that is not followed and of which nothing is kept.
func (h *Hub) drop(c *conversation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.readers) == 0 && !c.working && !c.seeking && c.stop == nil && c.bytes() == c.index.bytes {
		c.dropIndex()
		delete(h.known, key{c.account, c.id})
		delete(h.slots[c.turn%checkEvery], c)
		h.unnote(h.idle, c)
		h.unnote(h.doubted, c)
	}
}

// trim forgets the frames of the conversations that were not read for longest until the budget is
// kept.
func (h *Hub) trim() {
	if h.bytes.Load() <= h.budget {
		return
	}
	all := h.all()
	slices.SortFunc(all, func(a, b *conversation) int { return int(a.used.Load() - b.used.Load()) })
	for _, c := range all {
		if h.bytes.Load() <= h.budget-h.budget/keepPart {
			return
		}
		c.evict()
		h.drop(c)
	}
}
