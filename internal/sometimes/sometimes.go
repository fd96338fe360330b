// Package sometimes bounds how often something is done about each of many things: a line of the log about a job that cannot be
// checked is worth its place once, not in each round.
package sometimes

import (
	"cmp"
	"sync"
	"time"
)

// mostKeys is how many keys are remembered, of some 100 bytes. Where there are more within Every, nothing is due for the others.
const mostKeys = 1000

// Keyed says for each key whether something is due. The zero value with Every set is ready. It may be used concurrently, and
// does not block.
type Keyed struct {
	Every time.Duration // between two times for one key

	mu   sync.Mutex
	last map[string]time.Time
}

// Due reports whether it is time, and counts as the last time if it is: the first time for a key, and again after Every.
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

// Counted is [Keyed] that counts what was not due. The zero value is ready. It may be used concurrently, and does not block.
type Counted struct {
	Every time.Duration // between two times for one key; 0: a minute

	mu   sync.Mutex
	last map[string]*counted
}

type counted struct {
	at      time.Time
	leftOut int
}

// Due reports whether it is time for a key, as with [Keyed], and how many times it was not since the last one. Keys for which there
// is no room share one time and one count.
func (k *Counted) Due(key string) (leftOut int, due bool) {
	const rest = "" // no key of anything
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
