// Package redisconn configures the connections to a Redis server: with short timeouts, since callers can do without Redis for a while, and
// without output of its own.
package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sandjet/sandjet/schemas"
)

// patience limits each dial, each write and each read.
const patience = 2 * time.Second

// Options returns the options of a client of the server at address: redis://[user:password@]host:port/db, rediss:// with TLS, or
// unix:///path. Code: invalid. The message never has the address, which may contain a password.
func Options(address string) (*redis.Options, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, schemas.Invalidf("redis-url",
			"is not the address of a Redis server: write redis://host:6379/0, rediss://… for TLS, or unix:///path")
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	o.ContextTimeoutEnabled = true
	o.MaxRetries = 1    // if the server has closed the connection; every command may be repeated
	o.DialerRetries = 1 // callers retry later
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // a feature of one vendor's service
	return o, nil
}

// Quiet disables the log of the Redis library. It has one logger for the whole process, on stderr, and all errors are returned to callers
// anyway.
func Quiet() { redis.SetLogger(silent{}) }

// silent is a logger for go-redis that discards everything.
type silent struct{}

// Printf implements go-redis's interface.
func (silent) Printf(context.Context, string, ...any) {}
