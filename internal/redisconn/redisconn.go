// Package redisconn says how this project talks with a Redis server: with little patience, since what is kept there can be done without
// for a while, and without a word on the process's output.
package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sandjet/sandjet/schemas"
)

// patience is for one dial, one write and one read.
const patience = 2 * time.Second

// Options says how to talk with the server at address: redis://[user:password@]host:port/db, rediss:// with TLS, or unix:///path.
// Codes: invalid; the message never has the address, which may hold a password.
func Options(address string) (*redis.Options, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, schemas.Invalidf("redis-url",
			"is not the address of a Redis server: write redis://host:6379/0, rediss://… for TLS, or unix:///path")
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	o.ContextTimeoutEnabled = true
	o.MaxRetries = 1    // for connections that the server has closed meanwhile; each verb may be repeated
	o.DialerRetries = 1 // callers try again, and later
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // of one vendor's service
	return o, nil
}

// Quiet has the client's library say nothing: it has one logger for the whole process, on stderr, and errors come back from every verb
// anyway.
func Quiet() { redis.SetLogger(silent{}) }

// silent is a logger for go-redis that says nothing.
type silent struct{}

// Printf implements go-redis's interface.
func (silent) Printf(context.Context, string, ...any) {}
