// Package redislimits keeps caps in Redis, so that the workers of many processes share them.
//
// A cap is two keys: the ends of its places as a sorted set, and their tokens as a hash. Both have
// the cap's name as their hash tag, and both end with the last place. Every verb is one script, so
// that it is one step for all; the time is that of the Redis server, so that the clocks of the
// workers do not matter.
//
// Redis is asked to keep nothing: a holder acquires its slots again when it has lost them. It must not evict them either, so its
// maxmemory-policy has to be noeviction, the default. Any version from 6 on will do.
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
	batch  = 500 // leases in one round trip: a script takes about 5 µs, and others wait meanwhile
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed renew.lua
	renewLua string
	//go:embed release.lua
	releaseLua string
)

// Limiter is a [limits.Limiter] on a Redis server. Its methods take one round trip, but for some more after a restart of the server and one
// more for each 500 leases; they block for about four seconds when the server is unavailable and then return an error of code unavailable.
type Limiter struct {
	db                      redis.UniversalClient
	acquire, renew, release *redis.Script
}

var _ limits.Limiter = (*Limiter)(nil)

// Open returns a limiter on the server with this address: redis://[user:password@]host:port/db,
// rediss:// with TLS, or unix:///path. It does not connect yet, so that a worker can start first.
// Codes: invalid; the message never has the address, which may hold a password.
func Open(address string) (*Limiter, error) {
	o, err := redisconn.Options(address)
	if err != nil {
		return nil, err
	}
	return New(redis.NewClient(o)), nil
}

// New returns a limiter on a client of the caller's making, which may be one of a cluster. It
// belongs to the limiter: Close closes it.
func New(db redis.UniversalClient) *Limiter {
	redisconn.Quiet()
	return &Limiter{
		db:      db,
		acquire: redis.NewScript(acquireLua), renew: redis.NewScript(renewLua), release: redis.NewScript(releaseLua),
	}
}

// Close closes the connections. Places that are held end by themselves.
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

// each runs a script for every lease, many in one round trip, and returns which of them said 1.
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

// pipeline is one round trip of each. A script that some of the commands did not find has no effect
// with the others that matters: each verb may be repeated.
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

// keys are where a cap is kept. The tag in braces puts both into one slot of a cluster.
func keys(key string) []string {
	return []string{prefix + "{" + key + "}:ends", prefix + "{" + key + "}:tokens"}
}

// micros is the time in the unit of the scripts, at least one.
func micros(d time.Duration) int64 { return max(1, d.Microseconds()) }

// problem gives an error of the client its code.
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
