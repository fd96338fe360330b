// Package sometimes bounds how often something is done about each of many things: a line of the log about a job that cannot be
// checked is worth its place once, not in each round.
package sometimes

import (
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
