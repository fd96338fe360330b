package live

import (
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/schemas"
)

// Limits are the limits of one server on what clients use at the same time. 0 or less means no limit.
type Limits struct {
	Sockets        int   // of an account: WebSockets, event streams, long polls, waits for results and followed logs
	AllSockets     int   // of all accounts
	Attachments    int   // of an account: conversations followed by its sockets, streams and long polls
	Handshakes     int   // WebSockets that are being opened
	BytesPerSecond int64 // to all WebSockets of an account
}

// Places counts the slots that [Limits] bounds. It is safe for concurrent use.
type Places struct {
	sockets, attachments, handshakes *quota.Ledger

	pace *quota.Pace
}

// NewPlaces returns Places with all slots free.
func NewPlaces(l Limits) *Places {
	return &Places{
		sockets:     quota.NewLedger(int64(l.Sockets), int64(l.AllSockets)),
		attachments: quota.NewLedger(int64(l.Attachments), 0),
		handshakes:  quota.NewLedger(0, int64(l.Handshakes)),
		pace:        quota.NewPace(l.BytesPerSecond),
	}
}

// Socket takes a slot for a socket, an event stream or a waiting request. Codes: exhausted (the account has reached its limit),
// unavailable (this gateway has).
func (p *Places) Socket(a schemas.AccountID) (*quota.Place, error) {
	place, full := p.sockets.Take(a)
	switch full {
	case quota.Account:
		return nil, schemas.Errorf(schemas.Exhausted,
			"the account has as many sockets, event streams, long polls, waits for results and followed logs at this gateway as it may: close "+
				"some, or follow several conversations by one socket")
	case quota.All:
		return nil, schemas.Errorf(schemas.Unavailable,
			"this gateway has as many sockets, event streams, long polls, waits for results and followed logs as allowed: try again later")
	case quota.Free:
	}
	return place, nil
}

// Attachment takes a slot for a conversation that is followed. Code: exhausted.
func (p *Places) Attachment(a schemas.AccountID) (*quota.Place, error) {
	place, full := p.attachments.Take(a)
	if full != quota.Free {
		return nil, schemas.Errorf(schemas.Exhausted, "the account follows as many conversations at this gateway as it may: detach from some")
	}
	return place, nil
}

// handshake takes a slot for a WebSocket that is being opened. Code: unavailable.
func (p *Places) handshake() (*quota.Place, error) {
	place, full := p.handshakes.Take("")
	if full != quota.Free {
		return nil, schemas.Errorf(schemas.Unavailable, "too many sockets are being opened: try again later")
	}
	return place, nil
}

// stream takes a socket slot and an attachment slot for a conversation that is followed without a socket, until release is called. Codes:
// exhausted, unavailable.
func (p *Places) stream(a schemas.AccountID) (release func(), err error) {
	socket, err := p.Socket(a)
	if err != nil {
		return nil, err
	}
	place, err := p.Attachment(a)
	if err != nil {
		socket.Release()
		return nil, err
	}
	return func() { place.Release(); socket.Release() }, nil
}
