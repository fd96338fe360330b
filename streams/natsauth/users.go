package natsauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/subjects"
)

// User may connect to an embedded server.
//
// A user without an account is a part of Sandjet and may do everything. One with an account is that tenant: it lives in a NATS account of
// its own, in which only this exists: it may publish to sandjet.calls.auto.<account>, ask sandjet.rpc.call and sandjet.rpc.approvals, it
// may subscribe to sandjet.live.<account>.> and to inboxes, with the prefix of [Access] or without. Its inboxes are its own: no other
// tenant can subscribe to them.
type User struct {
	Name, Password string
	Account        schemas.AccountID
}

// Tenants finds the tenant of a user that is not among [Options.Users], by the name and the
// password of a connection, and until when the password is good; zero: for as long as it is known. It
// is called from many goroutines and must answer at once.
type Tenants func(name, password string) (a schemas.AccountID, until time.Time, ok bool)

// tenantSession is how long a connection of such a tenant lasts before it has to prove itself again: without calls of
// [Authenticator.Reprove], a revoked key works no longer than that. Client libraries connect again by themselves.
const tenantSession = 15 * time.Minute

// Options say who may connect to an embedded server.
type Options struct {
	Users   []User
	Tenants Tenants      // whose users are not among Users. Nil: none
	Limits  Limits       // of one tenant's NATS clients
	Log     *slog.Logger // nil: silent
}

// Authenticator decides who may connect to one embedded server. It is safe for concurrent use.
type Authenticator struct {
	users   map[string]User
	tenants Tenants
	limits  Limits
	log     *slog.Logger
	server  atomic.Pointer[server.Server] // the present one: nil before its start

	opening sync.Mutex   // of a tenant's account, so that no client enters one that is half open
	proving sync.RWMutex // held for reading from the question whether a password is good until its connection can be found
}

// New returns the authenticator of one embedded server, for [embedded.Options]. Code: invalid (a user without name or
// password, one that is there twice, or an account that is none).
func New(o Options) (*Authenticator, error) {
	a := &Authenticator{users: map[string]User{}, tenants: o.Tenants, limits: o.Limits, log: o.Log}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	for _, u := range o.Users {
		if u.Name == "" || u.Password == "" || u.Name == embedded.InProcessUser {
			return nil, schemas.Invalidf("users", "a user needs a name and a password")
		}
		if _, twice := a.users[u.Name]; twice {
			return nil, schemas.Invalidf("users", "%q is there twice", schemas.Quotable(u.Name))
		}
		if u.Account != "" {
			if err := u.Account.Validate(); err != nil {
				return nil, err
			}
		}
		a.users[u.Name] = u
	}
	return a, nil
}

// Attach sets the server whose connections it decides about.
func (a *Authenticator) Attach(srv *server.Server) { a.server.Store(srv) }

// Check decides about a connection. It blocks while the tenant's account is made, and for as long as [Tenants] takes.
func (a *Authenticator) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	u, known := a.users[o.Username]
	want, got := sha256.Sum256([]byte(u.Password)), sha256.Sum256([]byte(o.Password))
	srv := a.server.Load()
	switch {
	case srv == nil:
		return false
	case !known && a.tenants != nil:
		return a.checkTenant(srv, c, o.Username, o.Password)
	case subtle.ConstantTimeCompare(want[:], got[:]) != 1 || !known:
		return u.Account != "" && a.tenants != nil && a.checkTenant(srv, c, o.Username, o.Password) // by an issued password
	}
	if u.Account == "" {
		c.RegisterUser(&server.User{Username: u.Name, Account: srv.GlobalAccount()})
		return true
	}
	account, err := srv.LookupAccount(tenantAccount(u.Account))
	if err != nil {
		return false
	}
	c.RegisterUser(&server.User{Username: u.Name, Account: account, Permissions: tenantPermissions(u.Account)})
	return true
}

// checkTenant decides about a connection of a tenant that may have come while the server runs.
func (a *Authenticator) checkTenant(srv *server.Server, c server.ClientAuthentication, name, password string) bool {
	a.proving.RLock()
	defer a.proving.RUnlock()
	id, until, ok := a.tenants(name, password)
	if !ok || id.Validate() != nil {
		return false
	}
	account, err := a.openTenant(srv, id)
	if err != nil {
		srv.Errorf("the account of the tenant %s cannot be opened: %v", id, err)
		return false
	}
	c.RegisterUser(&server.User{
		Username: name, Account: account, Permissions: tenantPermissions(id), ConnectionDeadline: sessionEnd(until, time.Now()),
	})
	return true
}

// Reprove closes the connections of an account's NATS clients, so that each must authenticate again: one with a revoked key or password
// stays out, and all others reconnect by themselves. Call it after the answer of [Options.Tenants] has changed.
func (a *Authenticator) Reprove(id schemas.AccountID) {
	srv := a.server.Load()
	if srv == nil {
		return
	}
	a.proving.Lock()   // all clients that the former answer let in can be found now
	a.proving.Unlock() //nolint:staticcheck // nothing is done under it: waiting is its use
	const all = 1 << 30
	found, err := srv.Connz(&server.ConnzOptions{Account: tenantAccount(id), Limit: all})
	if err != nil {
		a.log.Warn("connections of an account not found, they end within 15 minutes", "account", id, "error", err)
		return
	}
	for _, c := range found.Conns {
		_ = srv.DisconnectClientByID(c.Cid) // it may have gone by itself
	}
}

// tenantPermissions repeats what the tenant's account allows, so that a client gets an error for anything else rather than no answer.
func tenantPermissions(a schemas.AccountID) *server.Permissions {
	access := AccessOf(a)
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: append(access.Publish, subjects.RPCCall, subjects.RPCApprovals)},
		Subscribe: &server.SubjectPermission{Allow: append(access.Subscribe, "_INBOX.>")},
	}
}

// tenantPrefix begins the names of the tenants' NATS accounts.
const tenantPrefix = "tenant_"

func tenantAccount(a schemas.AccountID) string { return tenantPrefix + string(a) }

// Open creates the accounts of the tenants known at the start, once the attached server runs, with their imports and exports.
func (a *Authenticator) Open() error {
	srv := a.server.Load()
	for _, u := range a.users {
		if u.Account == "" {
			continue
		}
		if _, err := a.openTenant(srv, u.Account); err != nil {
			return err
		}
	}
	return nil
}

// openTenant returns the NATS account of a tenant, which it creates if it does not exist.
func (a *Authenticator) openTenant(srv *server.Server, id schemas.AccountID) (*server.Account, error) {
	a.opening.Lock()
	defer a.opening.Unlock()
	tenant, isNew := srv.LookupOrRegisterAccount(tenantAccount(id))
	if !isNew {
		return tenant, nil
	}
	a.limits.apply(srv, tenant)
	if err := openWays(srv.GlobalAccount(), tenant, id); err != nil {
		return nil, fmt.Errorf("account %s: %w", id, err)
	}
	return tenant, nil
}

func openWays(own, tenant *server.Account, a schemas.AccountID) error {
	access := AccessOf(a)
	intake, call, approvals := access.Publish[0], access.Publish[1], access.Publish[2]
	live, reply, inbox := access.Subscribe[0], access.Subscribe[1], subjects.InboxPrefix(a)+".>"
	for _, subject := range []string{intake, call, approvals} {
		if err := own.AddServiceExport(subject, []*server.Account{tenant}); err != nil {
			return err
		}
	}
	for _, subject := range []string{live, reply, inbox} {
		if err := own.AddStreamExport(subject, []*server.Account{tenant}); err != nil {
			return err
		}
	}
	// The account in the subject is put there by the server: a tenant cannot ask as another.
	for from, to := range map[string]string{intake: intake, subjects.RPCCall: call, call: call,
		subjects.RPCApprovals: approvals, approvals: approvals} {
		if err := tenant.AddServiceImport(own, from, to); err != nil {
			return err
		}
	}
	for _, subject := range []string{live, reply} {
		if err := tenant.AddMappedStreamImport(own, subject, subject); err != nil {
			return err
		}
	}
	return tenant.AddMappedStreamImport(own, inbox, "_INBOX.>")
}

var _ embedded.Authenticator = (*Authenticator)(nil)
