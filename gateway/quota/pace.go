package quota

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Pace limits the bytes per second that are sent for each account. It neither blocks nor drops: a sender calls Take, and sleeps for as
// long as it says. Bursts of up to one second's bytes pass without a delay. It is safe for concurrent use.
type Pace struct {
	rate float64 // bytes per second; 0: any

	mu    sync.Mutex
	debts map[schemas.AccountID]time.Time // the time at which the bytes taken so far are paid for
}

// mostPaced is the number of accounts above which those without a debt are dropped.
const mostPaced = 1024

// NewPace returns a Pace of bytesPerSecond for each account; less than 1 means no limit.
func NewPace(bytesPerSecond int64) *Pace {
	return &Pace{rate: float64(max(bytesPerSecond, 0)), debts: map[schemas.AccountID]time.Time{}}
}

// Take counts n bytes that an account sends at now, and returns how long the sender must sleep after it: 0 while the account is within its
// rate. All senders of an account share the rate.
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

// forget drops the accounts that may send a full burst again. The caller holds the lock.
func (p *Pace) forget(now time.Time) {
	for a, free := range p.debts {
		if free.Before(now.Add(-time.Second)) {
			delete(p.debts, a)
		}
	}
}
