package streams

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sandjet/sandjet/schemas"
)

// User may connect to an embedded server.
//
// A user without an account is a part of Sandjet and may do everything. One with an account is that
// tenant: it lives in a NATS account of its own, in which only this exists: it may publish to
// sandjet.calls.auto.<account> and ask sandjet.rpc.call, it may subscribe to
// sandjet.live.<account>.> and to inboxes. Its inboxes are its own: no other tenant can hear them.
type User struct {
	Name, Password string
	Account        schemas.AccountID
}

// inProcessUser is the name under which this process's own connections come.
const inProcessUser = "sandjet-in-process"

// authenticator is the server's door.
type authenticator struct {
	users    map[string]User
	password string // of the connections inside the process
	server   atomic.Pointer[server.Server]
}

func newAuthenticator(users []User) (*authenticator, error) {
	a := &authenticator{users: map[string]User{}, password: rand.Text()}
	for _, u := range users {
		if u.Name == "" || u.Password == "" || u.Name == inProcessUser {
			return nil, schemas.Invalidf("users", "a user needs a name and a password")
		}
		if _, twice := a.users[u.Name]; twice {
			return nil, schemas.Invalidf("users", "%q is there twice", schemas.Quotable(u.Name))
		}
		if u.Account != "" {
			if err := u.Account.Validate(); err != nil {
				return nil, err //nolint:wrapcheck // it names field and remedy
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
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 || !known {
		return false
	}
	srv := a.server.Load()
	if srv == nil {
		return false
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

// tenantPermissions repeats what the tenant's account has, so that what is not allowed is answered
// with an error in place of silence.
func tenantPermissions(a schemas.AccountID) *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			IntakeSubject(a), RPCSubject, RPCSubject + "." + string(a),
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{prefixLive + string(a) + ".>", "_INBOX.>"}},
	}
}

func tenantAccount(a schemas.AccountID) string { return "tenant_" + string(a) }

// addTenants makes the tenants' accounts and opens the few ways out of them.
func (a *authenticator) addTenants(srv *server.Server) error {
	own := srv.GlobalAccount()
	for _, u := range a.users {
		if u.Account == "" {
			continue
		}
		tenant, isNew := srv.LookupOrRegisterAccount(tenantAccount(u.Account))
		if !isNew {
			continue
		}
		if err := openWays(own, tenant, u.Account); err != nil {
			return fmt.Errorf("account %s: %w", u.Account, err)
		}
	}
	return nil
}

func openWays(own, tenant *server.Account, a schemas.AccountID) error {
	intake, rpc := IntakeSubject(a), RPCSubject+"."+string(a)
	live, inbox := prefixLive+string(a)+".>", prefixInbox+string(a)+".>"
	for _, subject := range []string{intake, rpc} {
		if err := own.AddServiceExport(subject, []*server.Account{tenant}); err != nil {
			return err //nolint:wrapcheck // the caller wraps
		}
	}
	for _, subject := range []string{live, inbox} {
		if err := own.AddStreamExport(subject, []*server.Account{tenant}); err != nil {
			return err //nolint:wrapcheck // the caller wraps
		}
	}
	// The account in the subject is put there by the server: a tenant cannot ask as another.
	for from, to := range map[string]string{intake: intake, RPCSubject: rpc, rpc: rpc} {
		if err := tenant.AddServiceImport(own, from, to); err != nil {
			return err //nolint:wrapcheck // the caller wraps
		}
	}
	if err := tenant.AddMappedStreamImport(own, live, live); err != nil {
		return err //nolint:wrapcheck // the caller wraps
	}
	return tenant.AddMappedStreamImport(own, inbox, "_INBOX.>") //nolint:wrapcheck // the caller wraps
}

var _ server.Authentication = (*authenticator)(nil)
