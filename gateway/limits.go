package gateway

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/schemas"
)

// Limits are what one gateway lets its clients hold at the same time. 0 stands for the default, less for no
// limit.
type Limits struct {
	Sockets        int   // of an account: WebSockets, event streams, long polls, waits for results and followed logs. Default [DefaultSockets]
	Attachments    int   // of an account: conversations followed by its sockets, streams and long polls. Default [DefaultAttachments]
	AllSockets     int   // of all accounts. Default [DefaultAllSockets]
	Handshakes     int   // WebSockets that are being opened. Default [DefaultHandshakes]
	Requests       int   // of an account: requests in hand that neither wait nor stream. Default [DefaultRequests]
	AllRequests    int   // of all accounts. Default [DefaultAllRequests]
	Bodies         int64 // bytes of the bodies of an account's requests. Default [DefaultBodies]
	AllBodies      int64 // of all accounts. Default [DefaultAllBodies]
	BytesPerSecond int64 // to all WebSockets of an account. Default: no limit
	// Connections are those of [Gateway.Run]'s listener, whatever they carry.
	Connections Connections
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
)

// counters count what [Limits] bound.
type counters struct {
	sockets, attachments, handshakes, requests, bodies *quota.Ledger

	pace *quota.Pace
}

func newCounters(l Limits) *counters {
	return &counters{
		sockets:     ledger(cmp.Or(l.Sockets, DefaultSockets), cmp.Or(l.AllSockets, DefaultAllSockets)),
		attachments: ledger(cmp.Or(l.Attachments, DefaultAttachments), 0),
		handshakes:  ledger(0, cmp.Or(l.Handshakes, DefaultHandshakes)),
		requests:    ledger(cmp.Or(l.Requests, DefaultRequests), cmp.Or(l.AllRequests, DefaultAllRequests)),
		bodies:      quota.NewLedger(cmp.Or(l.Bodies, DefaultBodies), cmp.Or(l.AllBodies, DefaultAllBodies)),
		pace:        quota.NewPace(l.BytesPerSecond),
	}
}

func ledger(each, all int) *quota.Ledger { return quota.NewLedger(int64(each), int64(all)) }

// takeSocket takes a place for a socket, an event stream or whoever waits. Codes: exhausted (the account has as many as it
// may), unavailable (this gateway does).
func (g *Gateway) takeSocket(a schemas.AccountID) (*quota.Place, error) {
	place, full := g.counters.sockets.Take(a)
	switch full {
	case quota.Account:
		return nil, schemas.Errorf(schemas.Exhausted, "", "the account has as many sockets, event streams, long polls, waits for results and followed logs at this gateway as it may: close some, or follow several conversations by one socket")
	case quota.All:
		return nil, schemas.Errorf(schemas.Unavailable, "", "this gateway has as many sockets, event streams, long polls, waits for results and followed logs as allowed: try again later")
	case quota.Free:
	}
	return place, nil
}

// takeWait takes a place for a request that waits or streams. Who gets it gives back the place among the requests in hand
// with [hold.release], as soon as nothing but waiting is left. Codes: exhausted, unavailable.
func (g *Gateway) takeWait(w http.ResponseWriter, a schemas.AccountID) (*quota.Place, error) {
	place, err := g.takeSocket(a)
	if err != nil {
		later(w.Header())
	}
	return place, err
}

// takeAttachment takes a place for a conversation that is followed. Code: exhausted.
func (g *Gateway) takeAttachment(a schemas.AccountID) (*quota.Place, error) {
	place, full := g.counters.attachments.Take(a)
	if full != quota.Free {
		return nil, schemas.Errorf(schemas.Exhausted, "", "the account follows as many conversations at this gateway as it may: detach from some")
	}
	return place, nil
}

// takeStream takes the places of a conversation that is followed without a socket, until release is called. Codes:
// exhausted, unavailable.
func (g *Gateway) takeStream(a schemas.AccountID) (release func(), err error) {
	socket, err := g.takeSocket(a)
	if err != nil {
		return nil, err
	}
	place, err := g.takeAttachment(a)
	if err != nil {
		socket.Release()
		return nil, err
	}
	return func() { place.Release(); socket.Release() }, nil
}

// takeHandshake takes a place for a WebSocket that is being opened. Code: unavailable.
func (g *Gateway) takeHandshake() (*quota.Place, error) {
	place, full := g.counters.handshakes.Take("")
	if full != quota.Free {
		return nil, schemas.Errorf(schemas.Unavailable, "", "too many sockets are being opened: try again later")
	}
	return place, nil
}

// later tells a client when to come back, spread so that those who are refused together do not all come
// back together.
func later(h http.Header) {
	h.Set("Retry-After", strconv.Itoa(int((comeBack()+time.Second-1)/time.Second)))
}

// connections are the limits of the listener. Who is refused is counted, and told to the log once a minute at most.
func (g *Gateway) connections() Connections {
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
			g.Log.Warn("connections are refused: there are as many as there may be", "limit", limit)
		}
	}
	return c
}
