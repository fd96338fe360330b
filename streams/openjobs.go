package streams

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	jobsCounted = 10 * time.Second // that a count of an account's open jobs is believed
	jobsRefused = 5 * time.Second  // the same, while it lets jobs be refused
	jobsIdle    = 10 * time.Minute // after which an account is forgotten
)

// openJobs counts the background jobs of accounts that have not settled. It is safe for concurrent use.
type openJobs struct {
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

func newOpenJobs(b *Bus, most int) *openJobs {
	return &openJobs{most: orDefault(most, schemas.MaxOpenJobs), count: b.countOpenJobs, of: map[schemas.AccountID]*jobCount{}}
}

// AdmitJob admits one more background job of an account. It looks at the log once in ten seconds: so much as other processes admit in
// that time may come on top. Code exhausted: the account has as many open jobs as it may. Where they cannot be counted it is admitted.
func (b *Bus) AdmitJob(ctx context.Context, a schemas.AccountID) error {
	return b.openJobs.admit(ctx, a)
}

func (o *openJobs) admit(ctx context.Context, a schemas.AccountID) error {
	now := time.Now()
	o.mu.Lock()
	o.sweep(now)
	c := o.of[a]
	if c == nil {
		c = &jobCount{}
		o.of[a] = c
	}
	believed := jobsCounted
	if c.counted+c.since >= o.most {
		believed = jobsRefused
	}
	due := now.Sub(c.at) > believed && now.Sub(c.asked) > jobsRefused // one request counts, the others go by what is known
	if due {
		c.asked = now
	}
	before := c.since
	o.mu.Unlock()
	if due {
		n, err := o.count(ctx, a, o.most)
		o.mu.Lock()
		if err == nil {
			c.counted, c.since, c.at = n, max(c.since-before, 0), time.Now()
		}
		o.mu.Unlock()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.counted+c.since >= o.most {
		return schemas.Errorf(schemas.Exhausted, "",
			"the account has %d background jobs that have not ended, and may have %d: wait until some have ended, or stop some "+
				"(sandjet jobs ls, sandjet jobs stop)", c.counted+c.since, o.most)
	}
	c.since++
	return nil
}

// sweep forgets accounts that have begun no job for long. The lock is held.
func (o *openJobs) sweep(now time.Time) {
	if now.Sub(o.swept) < jobsIdle {
		return
	}
	o.swept = now
	for a, c := range o.of {
		if now.Sub(c.asked) > jobsIdle {
			delete(o.of, a)
		}
	}
}

// countOpenJobs counts the marks of an account's open jobs: all of its marks, which is one read, and one by one only where they are as
// many as it may have, since those of jobs that have just settled are still there.
func (b *Bus) countOpenJobs(ctx context.Context, a schemas.AccountID, most int) (int, error) {
	stream, subject := "KV_"+string(OpenJobMarks), "$KV."+string(OpenJobMarks)+"."+string(a)+".*"
	first, err := b.getOne(ctx, stream, getRequest{Seq: 1, Next: subject, Batch: 1})
	if errors.Is(err, schemas.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if all, err := first.andBehind(); err != nil || all < uint64(most) {
		return int(min(all, uint64(most))), err
	}
	open := 0
	for next, more := uint64(1), true; more && open < most; {
		page, behind, err := b.getPage(ctx, stream, subject, next, nil, 0)
		if err != nil {
			return 0, err
		}
		for _, m := range page {
			var mark struct {
				Settled bool `json:"settled"`
			}
			if len(m.data) > 0 && json.Unmarshal(m.data, &mark) == nil && !mark.Settled { // a removal has no value
				open++
			}
			next = m.seq + 1
		}
		more = behind && len(page) > 0
	}
	return open, nil
}
