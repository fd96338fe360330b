package quota

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Pace holds what goes out to each account to a number of bytes per second. It delays and drops nothing:
// who sends asks how long to wait first. A second's worth may go out at once. It is safe for concurrent
// use.
type Pace struct {
	rate float64 // bytes per second; 0: any

	mu    sync.Mutex
	debts map[schemas.AccountID]time.Time // when what was taken will have been earned
}

// mostPaced is how many accounts are remembered before those without debts are forgotten.
const mostPaced = 1024

// NewPace returns a pace of some bytes per second for each account; less than 1 means any.
func NewPace(bytesPerSecond int64) *Pace {
	return &Pace{rate: float64(max(bytesPerSecond, 0)), debts: map[schemas.AccountID]time.Time{}}
}

// Take counts n bytes of an account at a time and returns how long to wait after they were sent: 0 while
// the account is within its pace. Several who send for one account share it.
func (p *Pace) Take(a schemas.AccountID, n int, now time.Time) time.Duration {
	if p.rate == 0 || n <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free, ok := p.debts[a]
	if burst := now.Add(-time.Second); !ok || free.Before(burst) {
		free = burst // what was not used for longer than a second is lost
	}
	free = free.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	if len(p.debts) >= mostPaced && !ok {
		p.forget(now)
	}
	p.debts[a] = free
	return max(free.Sub(now), 0)
}

// forget drops the accounts that are as good as new.
func (p *Pace) forget(now time.Time) {
	for a, free := range p.debts {
		if free.Before(now.Add(-time.Second)) {
			delete(p.debts, a)
		}
	}
}
