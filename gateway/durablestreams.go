package gateway

import (
	"net/http"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// stream serves the account's durable streams. A live read ends when its key is revoked.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if g.durable == nil {
		return schemas.Errorf(schemas.NotFound,
			"durable streams are off at this gateway: its operator starts it with --durable-streams to serve them")
	}
	if r.Method == http.MethodGet && r.URL.Query().Has("live") { // who waits holds what an event stream does
		place, err := g.takeWait(w, a)
		if err != nil {
			return err
		}
		defer place.Release()
		web.HoldOf(r.Context()).Release()
	}
	if r.Method == http.MethodGet {
		ctx, end := g.credentials.WhileGood(r.Context(), credentials.OfKey(r, a))
		defer end()
		r = r.WithContext(ctx)
	}
	return g.durable.Serve(w, r, a, r.PathValue("path"))
}
