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

// Credentials resolve a key to its account. Its method may be called from many goroutines and answers without a round trip, or nearly so.
type Credentials interface {
	// Authenticate finds the account of a key. Its errors are answered as they are.
	Authenticate(ctx context.Context, key string) (schemas.AccountID, error)
}

// Log is what the routes ask of the log. Its methods may be called from many goroutines.
type Log interface {
	// Room reports whether n more bytes may be recorded. Code: unavailable where the log is nearly full.
	Room(ctx context.Context, n int) error
	// Usage says what an account keeps on the log, and its quotas.
	Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error)
}

// Serving knows which providers have workers. Its method may be called from many goroutines.
type Serving interface {
	Serves(ctx context.Context, provider string) (bool, error)
}

// Options are the collaborators and settings of a [Server]. Credentials and Log must be there.
type Options struct {
	Credentials Credentials
	Log         Log
	Store       *Store  // nil: the routes answer unsupported
	Serving     Serving // nil: no caller is warned of a provider without a worker
	// AgentTools makes the definitions of what an agent has, in a format ("": the default) and a dialect. Nil: the route answers unsupported.
	AgentTools func(e schemas.ToolVisibility, format string, d schemas.Dialect) (any, error)
	NATS       NATSAccess // nil: its route answers unsupported
	NATSURL    string     // where NATS clients reach the server, without credentials; empty where that is not known
	// AdminKeyHash is the SHA-256, in hex, of the key that may make, list and change accounts. Empty: none.
	AdminKeyHash string
	OpenSignup   bool              // every caller may make accounts, five an hour from one address
	MaxAccounts  int               // at which that ends; 0: it does not
	OwnAccount   schemas.AccountID // it is not deleted and gets no other key here
}

// Server answers the requests. Its methods may be called from many goroutines.
type Server struct {
	Options
	signups *signups
}

// New makes a server. It starts nothing.
func New(o Options) *Server { return &Server{Options: o, signups: newSignups()} }

// Route is one row of what a [Server] serves.
type Route struct {
	Method, Path string // of [http.ServeMux]
	Serve        web.Handler
}

// handler serves a client whose key may reach the account.
type handler func(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error

// Routes are all of them.
func (s *Server) Routes() []Route {
	return slices.Concat(s.accountRoutes(), s.collectionRoutes(), s.manifestRoutes())
}

// AliasedRoutes are those of [Server.Routes] that are older than the paths below /v1 and served without that prefix too.
func (s *Server) AliasedRoutes() []Route {
	return slices.Concat(s.accountRoutes(), s.collectionRoutes())
}

// accountRoutes are those of accounts themselves.
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

const self = "me" // in place of an id: the account whose key it is

// store are the records of accounts, unless this gateway has none.
func (s *Server) store() (*Store, error) {
	if s.Store == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway keeps no accounts")
	}
	return s.Store, nil
}

// administers reports whether key is the administrator's.
func (s *Server) administers(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return s.AdminKeyHash != "" && key != "" &&
		subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(s.AdminKeyHash)) == 1
}

// Administers reports whether a request has the administrator's key.
func (s *Server) Administers(r *http.Request) bool { return s.administers(web.Bearer(r.Header)) }

// owned asks for a key first and finds the account that the path names: the key's own, or any for the
// administrator. An account that the key may not reach is not found, in the same words as one that does
// not exist.
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

// roomFor says whether what a request wants recorded fits into the log. What removes something, or makes a key useless, always does.
func (s *Server) roomFor(r *http.Request) error {
	switch {
	case r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch,
		strings.HasSuffix(r.Pattern, "/rotate-secret"), strings.HasSuffix(r.Pattern, "/nats-credentials"):
		return nil
	}
	return s.Log.Room(r.Context(), int(max(r.ContentLength, 0)))
}

// AdministratorOnly refuses every caller but the administrator: 401 without a valid credential, else denied.
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
