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
	Sockets        int   // of an account: WebSockets, event streams, long polls and followed logs. Default [DefaultSockets]
	Attachments    int   // of an account: conversations followed by its sockets, streams and long polls. Default [DefaultAttachments]
	AllSockets     int   // of all accounts. Default [DefaultAllSockets]
	Handshakes     int   // WebSockets that are being opened. Default [DefaultHandshakes]
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
)

// counters count what [Limits] bound.
type counters struct {
	sockets, attachments, handshakes *quota.Ledger
	pace                             *quota.Pace
}

func newCounters(l Limits) *counters {
	return &counters{
		sockets:     quota.NewLedger(cmp.Or(l.Sockets, DefaultSockets), cmp.Or(l.AllSockets, DefaultAllSockets)),
		attachments: quota.NewLedger(cmp.Or(l.Attachments, DefaultAttachments), 0),
		handshakes:  quota.NewLedger(0, cmp.Or(l.Handshakes, DefaultHandshakes)),
		pace:        quota.NewPace(l.BytesPerSecond),
	}
}

// takeSocket takes a place for a socket or an event stream. Codes: exhausted (the account has as many as it
// may), unavailable (this gateway does).
func (g *Gateway) takeSocket(a schemas.AccountID) (*quota.Place, error) {
	place, full := g.counters.sockets.Take(a)
	switch full {
	case quota.Account:
		return nil, schemas.Errorf(schemas.Exhausted, "", "the account has as many sockets, event streams, long polls and followed logs at this gateway as it may: close some, or follow several conversations by one socket")
	case quota.All:
		return nil, schemas.Errorf(schemas.Unavailable, "", "this gateway has as many sockets, event streams, long polls and followed logs as it may: come back later")
	case quota.Free:
	}
	return place, nil
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
		return nil, schemas.Errorf(schemas.Unavailable, "", "too many sockets are being opened at this moment: come back later")
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
