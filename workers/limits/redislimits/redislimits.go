// Package redislimits implements [limits.Limiter] on Redis, so that the workers of many processes share limits.
//
// A limit has two keys: a sorted set of the expiry times of its slots, and a hash of their tokens. Both have the limit's key as their hash
// tag, and both expire with the last slot. Every method is one script, and therefore atomic. It uses the time of the Redis server, so that
// the clocks of the workers do not matter.
//
// Redis need not persist anything: a holder acquires its slots again if Redis has lost them. But it must not evict them, so its
// maxmemory-policy must be noeviction, the default. Redis 6 or later is required.
package redislimits

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sandjet/sandjet/internal/redisconn"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
)

const (
	prefix = "sandjet:limits:"
	batch  = 500 // leases per round trip: a script takes about 5 µs, during which other clients wait
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed renew.lua
	renewLua string
	//go:embed release.lua
	releaseLua string
)

// Limiter is a [limits.Limiter] on a Redis server. Its methods take one round trip, one more for each further 500 leases, and some more
// after a restart of the server. If the server is unavailable, they block for about four seconds and return an error of code unavailable.
type Limiter struct {
	db                      redis.UniversalClient
	acquire, renew, release *redis.Script
}

var _ limits.Limiter = (*Limiter)(nil)

// Open returns a limiter on the server with this address: redis://[user:password@]host:port/db, rediss:// with TLS, or unix:///path. It
// does not connect yet, so that a worker can start before the server. Codes: invalid; its message never contains the address, which may
// contain a password.
func Open(address string) (*Limiter, error) {
	o, err := redisconn.Options(address)
	if err != nil {
		return nil, err
	}
	return New(redis.NewClient(o)), nil
}

// New returns a limiter that uses a given client, which may be one of a cluster. The limiter owns the client: Close closes it.
func New(db redis.UniversalClient) *Limiter {
	redisconn.Quiet()
	return &Limiter{
		db:      db,
		acquire: redis.NewScript(acquireLua), renew: redis.NewScript(renewLua), release: redis.NewScript(releaseLua),
	}
}

// Close closes the connections. Occupied slots expire.
func (l *Limiter) Close() error { return l.db.Close() }

// Ping reports whether the server answers. Codes: unavailable.
func (l *Limiter) Ping(ctx context.Context) error { return problem(ctx, "ping", l.db.Ping(ctx).Err()) }

// Acquire implements [limits.Limiter].
func (l *Limiter) Acquire(ctx context.Context, key, holder string, most int, ttl time.Duration) (limits.Lease, error) {
	if err := ctx.Err(); err != nil {
		return limits.Lease{}, problem(ctx, "acquire", err)
	}
	if most <= 0 || ttl <= 0 || holder == "" {
		return limits.Lease{}, schemas.OpErrorf(schemas.Invalid, "acquire",
			"a cap needs places, time and a holder: got %d, %s and %q", most, ttl, holder)
	}
	token, err := l.acquire.Run(ctx, l.db, keys(key), holder, most, micros(ttl)).Text()
	if errors.Is(err, redis.Nil) {
		return limits.Lease{}, schemas.OpErrorf(schemas.Exhausted, "acquire", "all %d places are held: try again later", most)
	}
	if err != nil {
		return limits.Lease{}, problem(ctx, "acquire", err)
	}
	n, err := strconv.ParseUint(token, 10, 64)
	if err != nil {
		return limits.Lease{}, problem(ctx, "acquire", err)
	}
	return limits.Lease{Key: key, Holder: holder, Token: n}, nil
}

// Renew implements [limits.Limiter].
func (l *Limiter) Renew(ctx context.Context, ttl time.Duration, leases ...limits.Lease) ([]limits.Lease, error) {
	if ttl <= 0 {
		return nil, schemas.OpErrorf(schemas.Invalid, "renew", "a lease needs time: got %s", ttl)
	}
	kept, err := l.each(ctx, "renew", l.renew, leases, micros(ttl))
	if err != nil {
		return nil, err
	}
	var lost []limits.Lease
	for i, lease := range leases {
		if !kept[i] {
			lost = append(lost, lease)
		}
	}
	return lost, nil
}

// Release implements [limits.Limiter].
func (l *Limiter) Release(ctx context.Context, leases ...limits.Lease) error {
	_, err := l.each(ctx, "release", l.release, leases)
	return err
}

// each runs a script for every lease, many in one round trip, and returns for each whether the script returned 1.
func (l *Limiter) each(ctx context.Context, op string, s *redis.Script, leases []limits.Lease, more ...any) ([]bool, error) {
	said := make([]bool, 0, len(leases))
	for part := range slices.Chunk(leases, batch) {
		answers, err := l.pipeline(ctx, s, part, more)
		if redis.HasErrorPrefix(err, "NOSCRIPT") { // the server was restarted or its scripts were flushed
			if err = s.Load(ctx, l.db).Err(); err == nil {
				answers, err = l.pipeline(ctx, s, part, more)
			}
		}
		if err != nil {
			return nil, problem(ctx, op, err)
		}
		said = append(said, answers...)
	}
	return said, nil
}

// pipeline is one round trip of each. If the server does not know the script for some of the commands, all may be repeated: every method
// is idempotent.
func (l *Limiter) pipeline(ctx context.Context, s *redis.Script, leases []limits.Lease, more []any) ([]bool, error) {
	pipe := l.db.Pipeline()
	commands := make([]*redis.Cmd, len(leases))
	for i, lease := range leases {
		args := append([]any{lease.Holder, strconv.FormatUint(lease.Token, 10)}, more...)
		commands[i] = s.EvalSha(ctx, pipe, keys(lease.Key), args...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	said := make([]bool, len(leases))
	for i, c := range commands {
		n, err := c.Int()
		if err != nil {
			return nil, err
		}
		said[i] = n == 1
	}
	return said, nil
}

// keys returns the Redis keys of a limit. The tag in braces puts both into one slot of a cluster.
func keys(key string) []string {
	return []string{prefix + "{" + key + "}:ends", prefix + "{" + key + "}:tokens"}
}

// micros returns a duration in microseconds, the unit of the scripts, at least 1.
func micros(d time.Duration) int64 { return max(1, d.Microseconds()) }

// problem converts an error of the client to one with a code.
func problem(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return schemas.Wrap(schemas.CodeOf(ctx.Err()), op, "the limiter was not waited for", err)
	}
	return schemas.Wrap(schemas.Unavailable, op,
		"the Redis server of the limits does not answer as it should: see that it runs and that --redis-url leads to it", err)
}
