package replay

import (
	"slices"
	"time"
)

// forget stops following conversations that have had no reader for a while, and drops those that have no frames. The conversations in turn
// also drop their index if no reader needs it, and their frames if they have had no reader for unreadKept ticks.
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

// patience returns for how long a conversation without readers is followed, given how long each has been without: linger, or less if there
// are more than idleKept, so that a client that visits one after the other cannot make their number grow without bound.
func patience(idle []time.Duration) time.Duration {
	if len(idle) <= idleKept {
		return linger
	}
	slices.Sort(idle)
	return min(linger, idle[idleKept])
}

// drop removes a conversation from the hub if it is not followed and has no readers and no frames.
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

// trim evicts the conversations that have not been read for longest, if the hub is over its budget, until a tenth of the budget is free.
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
