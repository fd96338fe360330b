package streams

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sandjet/sandjet/schemas"
)

// User may connect to an embedded server.
//
// A user without an account is a part of Sandjet and may do everything. One with an account is that
// tenant: it lives in a NATS account of its own, in which only this exists: it may publish to
// sandjet.calls.auto.<account>, ask sandjet.rpc.call and sandjet.rpc.approvals, it may subscribe to
// sandjet.live.<account>.> and to inboxes, with the prefix of [Access] or without. Its inboxes are its
// own: no other tenant can hear them.
type User struct {
	Name, Password string
	Account        schemas.AccountID
}

// Tenants finds the tenant of a user that is not among [ServerOptions.Users], by the name and the
// password of a connection, and until when the password is good; zero: for as long as it is known. It
// is called from many goroutines and must answer at once.
type Tenants func(name, password string) (a schemas.AccountID, until time.Time, ok bool)

// tenantSession is how long a connection of such a tenant lasts before it has to prove itself again: where
// nobody calls [Server.Reprove], a key that was taken back is of use for no longer. Client libraries
// connect again by themselves.
const tenantSession = 15 * time.Minute

// inProcessUser is the name under which this process's own connections come.
const inProcessUser = "sandjet-in-process"

// authenticator is the server's door.
type authenticator struct {
	users    map[string]User
	tenants  Tenants // nil: there are no others
	password string  // of the connections inside the process
	limits   TenantLimits
	server   atomic.Pointer[server.Server]

	opening sync.Mutex   // of a tenant's account, so that nobody comes into one that is half open
	proving sync.RWMutex // held for reading from the question whether a password is good until its connection can be found
}

func newAuthenticator(users []User, tenants Tenants, limits TenantLimits) (*authenticator, error) {
	a := &authenticator{users: map[string]User{}, tenants: tenants, limits: limits, password: rand.Text()}
	for _, u := range users {
		if u.Name == "" || u.Password == "" || u.Name == inProcessUser {
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
	a.users[inProcessUser] = User{Name: inProcessUser, Password: a.password}
	return a, nil
}

// Check decides about a connection.
func (a *authenticator) Check(c server.ClientAuthentication) bool {
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
func (a *authenticator) checkTenant(srv *server.Server, c server.ClientAuthentication, name, password string) bool {
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

// Reprove ends the connections of an account's NATS clients, so that each has to prove itself again: one
// whose key or password counts no more stays outside, and the client libraries of all others are back by
// themselves. Call it when the answer of [ServerOptions.Tenants] has changed already.
func (s *Server) Reprove(a schemas.AccountID) {
	srv := s.running.Load()
	if srv == nil {
		return
	}
	s.auth.proving.Lock()   // whoever was let in by the former answer can be found now
	s.auth.proving.Unlock() //nolint:staticcheck // nothing is done under it: waiting is its use
	const all = 1 << 30
	found, err := srv.Connz(&server.ConnzOptions{Account: tenantAccount(a), Limit: all})
	if err != nil {
		s.log.Warn("the connections of an account are not found: they end within 15 minutes", "account", a, "error", err)
		return
	}
	for _, c := range found.Conns {
		_ = srv.DisconnectClientByID(c.Cid) // it may have gone by itself
	}
}

// tenantPermissions repeats what the tenant's account has, so that what is not allowed is answered
// with an error in place of silence.
func tenantPermissions(a schemas.AccountID) *server.Permissions {
	access := AccessOf(a)
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: append(access.Publish, RPCSubject, RPCApprovals)},
		Subscribe: &server.SubjectPermission{Allow: append(access.Subscribe, "_INBOX.>")},
	}
}

// tenantPrefix begins the names of the tenants' NATS accounts.
const tenantPrefix = "tenant_"

func tenantAccount(a schemas.AccountID) string { return tenantPrefix + string(a) }

// addTenants makes the tenants' accounts and opens the few ways out of them.
func (a *authenticator) addTenants(srv *server.Server) error {
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

// openTenant returns the NATS account of a tenant, and makes it when it is not there.
func (a *authenticator) openTenant(srv *server.Server, id schemas.AccountID) (*server.Account, error) {
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
	intake, call, approvals := IntakeSubject(a), RPCSubject+"."+string(a), RPCApprovals+"."+string(a)
	live, reply, inbox := prefixLive+string(a)+".>", prefixReply+string(a)+".>", prefixInbox+string(a)+".>"
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
	for from, to := range map[string]string{intake: intake, RPCSubject: call, call: call, RPCApprovals: approvals, approvals: approvals} {
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

var _ server.Authentication = (*authenticator)(nil)
