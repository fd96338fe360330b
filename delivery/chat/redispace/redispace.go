// Package redispace implements [chat.Pacer] on Redis, so that the deliverers of many processes share rate limits.
//
// A limit is a list with the times of its latest turns, as many as it allows. A pause is a key that expires at its end. All keys of a
// channel have its id as their hash tag. All keys expire, the lists with the limit's period. A turn is taken by one script, and therefore
// atomically, with the time of the Redis server. If the server loses its data, the limits start empty. Redis 6 or later is required.
package redispace

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/chat"
	"github.com/sandjet/sandjet/internal/redisconn"
	"github.com/sandjet/sandjet/schemas"
)

const prefix = "sandjet:pace:"

var (
	//go:embed take.lua
	takeLua string
	//go:embed rest.lua
	restLua string
)

// Pacer is a [chat.Pacer] on a Redis server. Its methods take one round trip, some more after a restart of the server; they block for about
// four seconds when the server is unavailable and then return an error of code unavailable.
type Pacer struct {
	db         redis.UniversalClient
	take, rest *redis.Script
}

var _ chat.Pacer = (*Pacer)(nil)

// Open returns a pacer on the server with this address, in the format of [redisconn.Options]. It does not connect yet. Codes: invalid.
func Open(address string) (*Pacer, error) {
	o, err := redisconn.Options(address)
	if err != nil {
		return nil, err
	}
	return New(redis.NewClient(o)), nil
}

// New returns a pacer that uses a given client, which may be one of a cluster. The pacer owns the client: Close closes it.
func New(db redis.UniversalClient) *Pacer {
	redisconn.Quiet()
	return &Pacer{db: db, take: redis.NewScript(takeLua), rest: redis.NewScript(restLua)}
}

// Close closes the connections.
func (p *Pacer) Close() error { return p.db.Close() }

// Ping reports whether the server answers. Codes: unavailable.
func (p *Pacer) Ping(ctx context.Context) error { return problem(ctx, "ping", p.db.Ping(ctx).Err()) }

// Take implements [chat.Pacer].
func (p *Pacer) Take(ctx context.Context, at chat.Place, limits []channel.Pace) (time.Duration, error) {
	keys, args := make([]string, 0, len(limits)+2), make([]any, 1, 2*len(limits)+1)
	for _, l := range limits {
		if l.Events <= 0 || l.Per <= 0 {
			continue
		}
		of := chat.Place{Channel: at.Channel}
		if l.Of == channel.PerDestination {
			of = at
		}
		keys, args = append(keys, key(of, l.Per.String())), append(args, l.Events, l.Per.Microseconds())
	}
	args[0] = len(keys)
	keys = append(keys, key(chat.Place{Channel: at.Channel}, "rest"))
	if at.Destination != "" {
		keys = append(keys, key(at, "rest"))
	}
	wait, err := p.take.Run(ctx, p.db, keys, args...).Int64()
	if err != nil {
		return 0, problem(ctx, "take a turn", err)
	}
	return time.Duration(wait) * time.Microsecond, nil
}

// Rest implements [chat.Pacer].
func (p *Pacer) Rest(ctx context.Context, at chat.Place, wait time.Duration) error {
	ms := max(1, wait.Milliseconds())
	return problem(ctx, "leave a chat alone", p.rest.Run(ctx, p.db, []string{key(at, "rest")}, ms).Err())
}

// key returns the Redis key for data of a place. The tag in braces puts all keys of a channel into one slot of a cluster.
func key(at chat.Place, what string) string {
	return fmt.Sprintf("%s{%s}:%s:%s", prefix, at.Channel, what, at.Destination)
}

// problem maps an error of the client to one with a code.
func problem(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return schemas.Wrap(schemas.CodeOf(ctx.Err()), op, "the shared pace was not waited for", err)
	}
	return schemas.Wrap(schemas.Unavailable, op,
		"the Redis server of the shared pace does not answer as it should: see that it runs and that --redis-url leads to it", err)
}
