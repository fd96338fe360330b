package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// getHealth says that the process lives. It looks at nothing else: a log that is away is no reason
// to restart the gateway.
func (g *Gateway) getHealth(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": g.Version})
	return nil
}

// getReady says whether a call would be taken now: the log answers and the gateway does not drain.
func (g *Gateway) getReady(w http.ResponseWriter, r *http.Request) error {
	const patience = 2 * time.Second
	if g.draining.Err() != nil {
		return schemas.Errorf(schemas.Unavailable, "", "this gateway is stopping")
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := g.Bus.Ready(ctx); err != nil {
		return schemas.Wrap(schemas.Unavailable, "", "the log does not answer", err)
	}
	answer := map[string]string{"status": "ready"}
	if w := g.Bus.ClockWarning(); w != "" {
		answer["clock"] = w
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}
