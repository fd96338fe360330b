package gateway

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Limits are the limits of one gateway on what its clients use at the same time. 0 means the default, a negative number no limit.
type Limits struct {
	Sockets        int   // of an account: WebSockets, event streams, long polls, waits for results and followed logs. Default [DefaultSockets]
	Attachments    int   // of an account: conversations followed by its sockets, streams and long polls. Default [DefaultAttachments]
	AllSockets     int   // of all accounts. Default [DefaultAllSockets]
	Handshakes     int   // WebSockets that are being opened. Default [DefaultHandshakes]
	Requests       int   // of an account: requests in flight that neither wait nor stream. Default [DefaultRequests]
	AllRequests    int   // of all accounts. Default [DefaultAllRequests]
	Bodies         int64 // bytes of the bodies of an account's requests. Default [DefaultBodies]
	AllBodies      int64 // of all accounts. Default [DefaultAllBodies]
	Answers        int64 // bytes of answers and of large events that the account's clients have not read yet. Default [DefaultAnswers]
	AllAnswers     int64 // of all accounts. Default [DefaultAllAnswers]
	BytesPerSecond int64 // to all WebSockets of an account. Default: no limit
	// Connections limits the connections of [Gateway.Run]'s listener.
	Connections web.Connections
}

// Defaults of [Limits].
const (
	DefaultSockets     = 10_000
	DefaultAttachments = 100_000
	DefaultAllSockets  = 100_000
	DefaultHandshakes  = 256
	DefaultRequests    = 4096
	DefaultAllRequests = 16_384
	DefaultBodies      = 64 << 20
	DefaultAllBodies   = 256 << 20
	DefaultAnswers     = 64 << 20
	DefaultAllAnswers  = 256 << 20
)

// LeastAnswers is the smallest value of Answers and AllAnswers with which every event can be sent. The largest event is the result of a
// call with the longest output, whose characters each take six bytes in JSON, and an event stream makes two copies of it.
const LeastAnswers = 16 << 20

// places returns the limits of connections and waiting requests, with the defaults set.
func (l Limits) places() *live.Places {
	return live.NewPlaces(live.Limits{
		Sockets: cmp.Or(l.Sockets, DefaultSockets), AllSockets: cmp.Or(l.AllSockets, DefaultAllSockets),
		Attachments: cmp.Or(l.Attachments, DefaultAttachments), Handshakes: cmp.Or(l.Handshakes, DefaultHandshakes),
		BytesPerSecond: l.BytesPerSecond,
	})
}

// holds returns the limits of requests in flight, with the defaults set.
func (l Limits) holds() *web.Holds {
	return web.NewHolds(web.HoldLimits{
		Requests: cmp.Or(l.Requests, DefaultRequests), AllRequests: cmp.Or(l.AllRequests, DefaultAllRequests),
		Bodies: cmp.Or(l.Bodies, DefaultBodies), AllBodies: cmp.Or(l.AllBodies, DefaultAllBodies),
		Answers: cmp.Or(l.Answers, DefaultAnswers), AllAnswers: cmp.Or(l.AllAnswers, DefaultAllAnswers),
	})
}

// takeWait takes a slot for a request that waits or streams. A request that gets it frees its slot among the requests in flight with
// [web.Hold.Release], as soon as nothing but waiting is left. Codes: exhausted, unavailable.
func (g *Gateway) takeWait(w http.ResponseWriter, a schemas.AccountID) (*quota.Place, error) {
	place, err := g.places.Socket(a)
	if err != nil {
		web.Later(w.Header())
	}
	return place, err
}

// fileTransfer takes a slot for a streamed file. The context ends when the request's key is revoked. Codes: exhausted, unavailable.
func (g *Gateway) fileTransfer(w http.ResponseWriter, r *http.Request, a schemas.AccountID) (
	ctx context.Context, release func(), err error,
) {
	place, err := g.takeWait(w, a)
	if err != nil {
		return nil, nil, err
	}
	web.HoldOf(r.Context()).Release()
	ctx, end := g.credentials.WhileGood(r.Context(), credentials.OfKey(r, a))
	return ctx, func() { end(); place.Release() }, nil
}

// connections returns the limits of the listener. Refused connections are counted, and logged at most once a minute.
func (g *Gateway) connections() web.Connections {
	c := g.Limits.Connections
	outer := c.Refused
	const quiet = time.Minute
	var said time.Time
	c.Refused = func(perAddress bool) {
		if outer != nil {
			outer(perAddress)
		}
		limit := "all"
		if perAddress {
			limit = "address"
		}
		g.metrics.refused.WithLabelValues(limit).Inc()
		if time.Since(said) > quiet {
			said = time.Now()
			g.Log.Warn("connections are refused: the limit is reached", "limit", limit)
		}
	}
	return c
}
