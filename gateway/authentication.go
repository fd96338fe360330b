package gateway

import (
	"net/http"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// accountHandler is a handler that is called after the client was authenticated.
type accountHandler = func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error

// authenticated wraps a handler with the authentication by an API key.
func (g *Gateway) authenticated(h accountHandler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		a, err := g.credentials.Authenticate(r.Context(), web.Bearer(r.Header))
		if err != nil {
			return err
		}
		if err := web.HoldOf(r.Context()).Enter(w, a); err != nil {
			return err
		}
		return h(w, r, a)
	}
}

// held wraps a handler with the authentication by an API key or an attach token. The handler must check what the token allows.
func (g *Gateway) held(h func(http.ResponseWriter, *http.Request, credentials.Principal) error) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !web.AllowedOrigin(r, g.Origins) {
			return schemas.Errorf(schemas.Denied, "origin not allowed: the operator can allow it with --origins")
		}
		who, err := g.credentials.Principal(r.Context(), web.Bearer(r.Header))
		if err != nil {
			return err
		}
		if err := web.HoldOf(r.Context()).Enter(w, who.Account); err != nil {
			return err
		}
		return h(w, r, who)
	}
}
