// Package sometimes limits how often something is done for each of many keys: a log line about a job that cannot be checked is useful
// once, but not in each round.
package sometimes

import (
	"cmp"
	"sync"
	"time"
)

// mostKeys is the maximum number of keys in memory, of some 100 bytes each. If there are more within Every, nothing is due for further
// keys.
const mostKeys = 1000

// Keyed limits how often something is due for each key. The zero value with Every set is ready to use. It is safe for concurrent use and
// does not block.
type Keyed struct {
	Every time.Duration // least time between two for one key

	mu   sync.Mutex
	last map[string]time.Time
}

// Due reports whether something is due for the key: the first time, and then when Every has passed since it last was.
func (k *Keyed) Due(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if last, ok := k.last[key]; ok && now.Sub(last) < k.Every {
		return false
	}
	if len(k.last) >= mostKeys {
		for other, last := range k.last {
			if now.Sub(last) >= k.Every {
				delete(k.last, other)
			}
		}
		if len(k.last) >= mostKeys {
			return false
		}
	}
	if k.last == nil {
		k.last = make(map[string]time.Time)
	}
	k.last[key] = now
	return true
}

// Counted is like [Keyed], and counts how often nothing was due. The zero value is ready to use. It is safe for concurrent use and does
// not block.
type Counted struct {
	Every time.Duration // least time between two for one key; 0: a minute

	mu   sync.Mutex
	last map[string]*counted
}

type counted struct {
	at      time.Time
	leftOut int
}

// Due reports whether something is due for the key, as [Keyed.Due] does, and if so how often it was called in vain since the last time.
// Keys beyond mostKeys share one time and one count.
func (k *Counted) Due(key string) (leftOut int, due bool) {
	const rest = "" // the shared key, which callers do not use
	k.mu.Lock()
	defer k.mu.Unlock()
	now, every := time.Now(), cmp.Or(k.Every, time.Minute)
	if k.last == nil {
		k.last = make(map[string]*counted)
	}
	c := k.last[key]
	if c == nil && len(k.last) >= mostKeys {
		for other, last := range k.last {
			if now.Sub(last.at) >= every {
				delete(k.last, other)
			}
		}
		if len(k.last) >= mostKeys {
			key = rest
			c = k.last[key]
		}
	}
	switch {
	case c == nil:
		k.last[key] = &counted{at: now}
		return 0, true
	case now.Sub(c.at) < every:
		c.leftOut++
		return 0, false
	}
	leftOut = c.leftOut
	c.at, c.leftOut = now, 0
	return leftOut, true
}
