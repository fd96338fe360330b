package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// getHealth responds 200 while the process lives and its embedded log, if it has one, can write. An unreachable external log does not
// count, since a restart of the gateway would not help.
func (g *Gateway) getHealth(w http.ResponseWriter, _ *http.Request) error {
	if err := g.Bus.Healthy(); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": g.Version})
	return nil
}

// logPatience is how long a request without a key waits for the log.
const logPatience = 2 * time.Second

// newReady returns the shared check whether the log accepts new work.
func newReady(bus *streams.Bus) *sharedRead[struct{}] {
	return &sharedRead[struct{}]{within: logPatience, read: func(ctx context.Context) (struct{}, error) { return struct{}{}, bus.Ready(ctx) }}
}

// getReady responds 200 if a call would be accepted now: the log answers and can write, and the gateway does not drain.
func (g *Gateway) getReady(w http.ResponseWriter, r *http.Request) error {
	if g.draining.Err() != nil {
		return schemas.Errorf(schemas.Unavailable, "this gateway is stopping")
	}
	if _, err := g.ready.get(r.Context()); err != nil {
		why := "the log does not answer"
		if public := schemas.Public(err); public.Code != schemas.Internal {
			why = public.Message
		}
		return schemas.Wrap(schemas.Unavailable, "", why, err)
	}
	answer := map[string]string{"status": "ready"}
	if w := g.Bus.ClockWarning(); w != "" {
		answer["clock"] = w
	}
	if g.Disk != nil && g.Disk() != "" {
		answer["disk"] = g.Disk()
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// getMetrics serves the metrics of the process. They name no account, but show the activity of all. If there is an administrator, only the
// administrator may read them; if they have a listener of their own, they are served only there.
func (g *Gateway) getMetrics(w http.ResponseWriter, r *http.Request) error {
	switch {
	case g.MetricsElsewhere:
		return schemas.Errorf(schemas.NotFound, "metrics are not served here: use the address of --metrics-listen")
	case g.AdminKeyHash != "" || g.OpenSignup:
		if err := g.accounts.AdministratorOnly(r); err != nil {
			return err
		}
	}
	promhttp.HandlerFor(g.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}
