package gateway

import (
	"net/http"

	"github.com/sandjet/sandjet/schemas"
)

// stream serves the account's durable streams.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return g.durable.Serve(w, r, a, r.PathValue("path")) //nolint:wrapcheck // it is coded already
}
