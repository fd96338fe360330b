package usage

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	jobsCounted = 10 * time.Second // that a count of an account's open jobs is believed
	jobsRefused = 5 * time.Second  // the same, while it lets jobs be refused
	jobsIdle    = 10 * time.Minute // after which an account is forgotten
)

// Jobs counts the background jobs of accounts that have not settled. It is safe for concurrent use.
type Jobs struct {
	most  int
	count func(ctx context.Context, a schemas.AccountID, most int) (int, error)

	mu    sync.Mutex
	of    map[schemas.AccountID]*jobCount
	swept time.Time
}

// jobCount is what is known of one account.
type jobCount struct {
	counted, since int       // by the last count, and admitted by this process since
	at             time.Time // of the count; zero: there was none
	asked          time.Time // when one was begun last
}

// NewJobs makes a count of jobs, of which an account may have so many open; 0: [schemas.MaxOpenJobs]. The function count counts those of an
// account, at least as far as that bound.
func NewJobs(most int, count func(ctx context.Context, a schemas.AccountID, most int) (int, error)) *Jobs {
	if most <= 0 {
		most = schemas.MaxOpenJobs
	}
	return &Jobs{most: most, count: count, of: map[schemas.AccountID]*jobCount{}}
}

// Admit admits one more background job of an account. It counts once in ten seconds: so much as other processes admit in
// that time may come on top. Code exhausted: the account has as many open jobs as it may. Where they cannot be counted it is admitted.
func (j *Jobs) Admit(ctx context.Context, a schemas.AccountID) error {
	now := time.Now()
	j.mu.Lock()
	j.sweep(now)
	c := j.of[a]
	if c == nil {
		c = &jobCount{}
		j.of[a] = c
	}
	believed := jobsCounted
	if c.counted+c.since >= j.most {
		believed = jobsRefused
	}
	due := now.Sub(c.at) > believed && now.Sub(c.asked) > jobsRefused // one request counts, the others go by what is known
	if due {
		c.asked = now
	}
	before := c.since
	j.mu.Unlock()
	if due {
		n, err := j.count(ctx, a, j.most)
		j.mu.Lock()
		if err == nil {
			c.counted, c.since, c.at = n, max(c.since-before, 0), time.Now()
		}
		j.mu.Unlock()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.counted+c.since >= j.most {
		return schemas.Errorf(schemas.Exhausted,
			"the account has %d background jobs that have not ended, and may have %d: wait until some have ended, or stop some "+
				"(sandjet jobs ls, sandjet jobs stop)", c.counted+c.since, j.most)
	}
	c.since++
	return nil
}

// sweep forgets accounts that have begun no job for long. The lock is held.
func (j *Jobs) sweep(now time.Time) {
	if now.Sub(j.swept) < jobsIdle {
		return
	}
	j.swept = now
	for a, c := range j.of {
		if now.Sub(c.asked) > jobsIdle {
			delete(j.of, a)
		}
	}
}
