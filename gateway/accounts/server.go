package accounts

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Credentials returns the account of a key. It must be safe for concurrent use and answer nearly always without a round trip.
type Credentials interface {
	// Authenticate finds the account of a key. Its errors are answered as they are.
	Authenticate(ctx context.Context, key string) (schemas.AccountID, error)
}

// Log is the part of the log that the routes need. It must be safe for concurrent use.
type Log interface {
	// Room reports whether n more bytes may be recorded. Code: unavailable where the log is nearly full.
	Room(ctx context.Context, n int) error
	// Usage returns how much an account stores on the log, and its quotas.
	Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error)
}

// Serving reports which providers have workers. It must be safe for concurrent use.
type Serving interface {
	Serves(ctx context.Context, provider string) (bool, error)
}

// Options are the dependencies and settings of a [Server]. Credentials and Log are required.
type Options struct {
	Credentials Credentials
	Log         Log
	Store       *Store  // nil: the routes answer unsupported
	Serving     Serving // nil: no caller is warned of a provider without a worker
	// AgentTools returns the definitions of an agent's tools, in a format ("" is the default) and a dialect. Nil: the route answers
	// unsupported.
	AgentTools func(e schemas.ToolVisibility, format string, d schemas.Dialect) (any, error)
	NATS       NATSAccess // nil: its route answers unsupported
	NATSURL    string     // where NATS clients reach the server, without credentials; empty where that is not known
	// AdminKeyHash is the SHA-256, in hex, of the key that may make, list and change accounts. Empty: none.
	AdminKeyHash string
	OpenSignup   bool              // every caller may make accounts, five an hour from one address
	MaxAccounts  int               // at which that ends; 0: it does not
	OwnAccount   schemas.AccountID // it is not deleted and gets no other key here
}

// Server handles the requests. It is safe for concurrent use.
type Server struct {
	Options
	signups *signups
}

// New returns a server. It starts no goroutines.
func New(o Options) *Server { return &Server{Options: o, signups: newSignups()} }

// Route is one route of a [Server].
type Route struct {
	Method, Path string // of [http.ServeMux]
	Serve        web.Handler
}

// handler is a handler that is called after authentication, with the account that the path names.
type handler func(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error

// Routes returns all routes.
func (s *Server) Routes() []Route {
	return slices.Concat(s.accountRoutes(), s.collectionRoutes(), s.manifestRoutes())
}

// AliasedRoutes returns those of [Server.Routes] that existed before the prefix /v1 and are served without it too.
func (s *Server) AliasedRoutes() []Route {
	return slices.Concat(s.accountRoutes(), s.collectionRoutes())
}

// accountRoutes returns the routes of the accounts themselves.
func (s *Server) accountRoutes() []Route {
	return []Route{
		{http.MethodGet, "/v1/accounts", s.getAccounts}, // the key is the administrator's
		{http.MethodPost, "/v1/accounts", s.postAccount},
		{http.MethodGet, "/v1/accounts/{account}", s.owned(s.getAccount)},
		{http.MethodPatch, "/v1/accounts/{account}", s.owned(s.patchAccount)},
		{http.MethodDelete, "/v1/accounts/{account}", s.owned(s.deleteAccount)},
		{http.MethodGet, "/v1/accounts/{account}/usage", s.owned(s.getUsage)},
		{http.MethodPost, "/v1/accounts/{account}/rotate-secret", s.owned(s.postRotateSecret)},
		{http.MethodPost, "/v1/accounts/{account}/nats-credentials", s.owned(s.postNATSCredential)},
		{http.MethodGet, "/v1/accounts/{account}/agents/{id}/tools", s.owned(s.getAgentTools)},
	}
}

const self = "me" // names the account of the key, instead of an id

// store returns the records of accounts. Code unsupported: this gateway has none.
func (s *Server) store() (*Store, error) {
	if s.Store == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway keeps no accounts")
	}
	return s.Store, nil
}

// administers reports whether key is the administrator's. It compares in constant time.
func (s *Server) administers(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return s.AdminKeyHash != "" && key != "" &&
		subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(s.AdminKeyHash)) == 1
}

// Administers reports whether a request has the administrator's key.
func (s *Server) Administers(r *http.Request) bool { return s.administers(web.Bearer(r.Header)) }

// owned wraps a handler with authentication: the path must name the key's own account, or any account if the key is the administrator's.
// For another account the answer is not_found, with the same message as for one that does not exist.
func (s *Server) owned(h handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key := web.Bearer(r.Header)
		asked := schemas.AccountID(strings.ToValidUTF8(r.PathValue("account"), "\uFFFD"))
		admin := s.administers(key)
		own := schemas.AccountID("")
		if !admin || asked == self {
			var err error
			if own, err = s.Credentials.Authenticate(r.Context(), key); err != nil {
				return err
			}
		}
		store, err := s.store()
		if err != nil {
			return err
		}
		if err := s.roomFor(r); err != nil {
			return err
		}
		if admin {
			web.HoldOf(r.Context()).Administers()
		} else if err := web.HoldOf(r.Context()).Enter(w, own); err != nil {
			return err
		}
		switch {
		case asked == self || asked == own:
			return h(w, r, store, own)
		case !admin:
			return schemas.Errorf(schemas.NotFound, "there is no account %q", schemas.Quotable(string(asked)))
		}
		if _, err := store.Accounts.Get(r.Context(), asked); err != nil {
			return err
		}
		return h(w, r, store, asked)
	}
}

// roomFor checks that the log has room for the data of a request. Requests that delete something or make a key invalid always pass.
func (s *Server) roomFor(r *http.Request) error {
	switch {
	case r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch,
		strings.HasSuffix(r.Pattern, "/rotate-secret"), strings.HasSuffix(r.Pattern, "/nats-credentials"):
		return nil
	}
	return s.Log.Room(r.Context(), int(max(r.ContentLength, 0)))
}

// AdministratorOnly rejects every caller but the administrator: with 401 if there is no valid credential, otherwise with denied.
func (s *Server) AdministratorOnly(r *http.Request) error {
	key := web.Bearer(r.Header)
	if s.administers(key) {
		return nil
	}
	if _, err := s.Credentials.Authenticate(r.Context(), key); err != nil {
		return err
	}
	return schemas.Errorf(schemas.Denied, "admin key required: this key is an account's")
}
