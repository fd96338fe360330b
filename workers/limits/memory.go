package limits

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Memory is a [Limiter] for one process. Its zero value is ready to use. It stores nothing for keys without holders.
type Memory struct {
	mu    sync.Mutex
	caps  map[string]holders
	token uint64
}

type holders map[string]place

type place struct {
	token uint64
	ends  time.Time
}

// Acquire implements [Limiter]. If all slots are occupied, its time is proportional to the holders of the key.
func (m *Memory) Acquire(ctx context.Context, key, holder string, most int, ttl time.Duration) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return Lease{}, schemas.Wrap(schemas.CodeOf(err), "acquire", "the wait for a place was ended", err)
	}
	if most <= 0 || ttl <= 0 {
		return Lease{}, schemas.OpErrorf(schemas.Invalid, "acquire", "a cap needs places and time: got %d and %s", most, ttl)
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.caps[key]
	if _, mine := held[holder]; !mine && len(held) >= most {
		held.dropEnded(now)
		if len(held) >= most {
			return Lease{}, schemas.OpErrorf(schemas.Exhausted, "acquire", "all %d places are held: try again later", most)
		}
	}
	if held == nil {
		if m.caps == nil {
			m.caps = make(map[string]holders)
		}
		held = make(holders)
		m.caps[key] = held
	}
	m.token++
	held[holder] = place{token: m.token, ends: now.Add(ttl)}
	return Lease{Key: key, Holder: holder, Token: m.token}, nil
}

// Renew implements [Limiter].
func (m *Memory) Renew(ctx context.Context, ttl time.Duration, leases ...Lease) ([]Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, schemas.Wrap(schemas.CodeOf(err), "renew", "the renewal was ended", err)
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var lost []Lease
	for _, l := range leases {
		p, ok := m.caps[l.Key][l.Holder]
		if !ok || p.token != l.Token || !now.Before(p.ends) {
			lost = append(lost, l)
			continue
		}
		m.caps[l.Key][l.Holder] = place{token: l.Token, ends: now.Add(ttl)}
	}
	return lost, nil
}

// Release implements [Limiter]. It also works after its context has ended.
func (m *Memory) Release(_ context.Context, leases ...Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range leases {
		held := m.caps[l.Key]
		if p, ok := held[l.Holder]; ok && p.token == l.Token {
			delete(held, l.Holder)
		}
		if len(held) == 0 {
			delete(m.caps, l.Key)
		}
	}
	return nil
}

func (h holders) dropEnded(now time.Time) {
	for holder, p := range h {
		if !now.Before(p.ends) {
			delete(h, holder)
		}
	}
}
