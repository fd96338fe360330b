package durable

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// countFor is how long the number of an account's streams is cached. Several gateways may together exceed the limit by the streams that
// they make in that time.
const countFor = 10 * time.Second

// counts limits how many streams an account may have.
type counts struct {
	most int

	mu sync.Mutex
	of map[schemas.AccountID]counted
}

type counted struct {
	n     int
	until time.Time
}

// take counts one more stream of an account. Code exhausted: the account has reached the limit.
func (c *counts) take(ctx context.Context, log streams.Durable, a schemas.AccountID, now time.Time) error {
	c.mu.Lock()
	have, ok := c.of[a]
	c.mu.Unlock()
	if !ok || now.After(have.until) {
		n, err := log.Count(ctx, a)
		if err != nil {
			return err
		}
		have = counted{n, now.Add(countFor)}
	}
	if have.n >= c.most {
		return refuse(http.StatusTooManyRequests, schemas.Exhausted, "the account has %d streams, which is the most: delete some", have.n)
	}
	have.n++
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[schemas.AccountID]counted{}
	}
	for other, old := range c.of { // so that it does not grow with the accounts
		if now.After(old.until) {
			delete(c.of, other)
		}
	}
	c.of[a] = have
	return nil
}
