package embedded

import (
	"context"
	"crypto/subtle"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// InProcessUser is the name under which this process's own connections come to an embedded server. No other user may have it.
const InProcessUser = "sandjet-in-process"

// Authenticator decides who may connect to an embedded server from outside of its process. It is safe for concurrent use.
type Authenticator interface {
	server.Authentication
	// Attach is called with the server before each of its starts, and from then on Check may be.
	Attach(srv *server.Server)
	// Open is called when the attached server runs, before the embedded server is said to have started. Its error ends the start.
	Open() error
	// Run checks the connections of the attached server until ctx ends; then it returns.
	Run(ctx context.Context)
}

// ownConnections admits this process's own connections and lets the Authenticator decide about all others.
type ownConnections struct {
	password string
	others   Authenticator // nil: there are none
	server   atomic.Pointer[server.Server]
}

// Check decides about a connection.
func (a *ownConnections) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if o.Username != InProcessUser {
		return a.others != nil && a.others.Check(c)
	}
	srv := a.server.Load()
	if srv == nil || subtle.ConstantTimeCompare([]byte(o.Password), []byte(a.password)) != 1 {
		return false
	}
	c.RegisterUser(&server.User{Username: InProcessUser, Account: srv.GlobalAccount()})
	return true
}
