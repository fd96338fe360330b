package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/schemas"
)

// hold is what one request has of what all share: a place among the requests in hand, and room for its body. It belongs
// to the goroutine of its handler.
type hold struct {
	counters *counters
	account  schemas.AccountID // empty until it is known whose the request is
	place    *quota.Place
	body     *quota.Place
}

type holdKey struct{}

// holdOf is the hold of a request. Without the middleware there is none.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// enter says whose a request is, and takes a place for it among those in hand. Codes: exhausted (the account has as many
// as it may), unavailable (this gateway does).
func (h *hold) enter(w http.ResponseWriter, a schemas.AccountID) error {
	if h == nil {
		return nil
	}
	h.account = a
	place, full := h.counters.requests.Take(a)
	h.place = place
	switch full {
	case quota.Account:
		later(w.Header())
		return schemas.Errorf(schemas.Exhausted, "", "the account has as many requests in hand at this gateway as allowed: wait for their answers")
	case quota.All:
		later(w.Header())
		return schemas.Errorf(schemas.Unavailable, "", "this gateway has as many requests in hand as allowed: try again later")
	case quota.Free:
	}
	return nil
}

// administers says that a request is the administrator's, who has no place to take and bodies apart from everybody's.
func (h *hold) administers() {
	if h != nil {
		h.account = "_admin"
	}
}

// release gives everything back. Who goes on to wait or to stream does so before, and holds a place of another kind.
func (h *hold) release() {
	if h != nil {
		h.place.Release()
		h.body.Release()
	}
}

// room takes room for n bytes more of the body. Codes: exhausted, unavailable.
func (h *hold) room(n int64) error {
	if h == nil {
		return nil
	}
	var full quota.Full
	if h.body == nil {
		h.body, full = h.counters.bodies.TakeMany(h.account, n)
	} else {
		full = h.body.Grow(n)
	}
	switch full {
	case quota.Account:
		return schemas.Errorf(schemas.Exhausted, "", "the bodies of the account's requests take as much of this gateway's memory as they may: send fewer at once")
	case quota.All:
		return schemas.Errorf(schemas.Unavailable, "", "the bodies of requests take as much of this gateway's memory as they may: come back later")
	case quota.Free:
	}
	return nil
}

// readHeld reads a body that is announced to be of some length, or -1. Room for all of it is taken before the first byte
// where the length is known, else as it grows. Memory follows what has come in both cases.
func readHeld(ctx context.Context, body io.Reader, length int64) ([]byte, error) {
	const first, most = 4 << 10, 1 << 20
	h, held := holdOf(ctx), int64(0)
	if length >= 0 {
		if err := h.room(length + 1); err != nil { // the end takes a byte to be seen
			return nil, err
		}
		held = length + 1
	}
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			size := max(int64(2*cap(buf)), first)
			if size = min(size, int64(cap(buf)+most)); length >= 0 {
				size = max(min(size, held), int64(len(buf)+1))
			}
			if size > held {
				if err := h.room(size - held); err != nil {
					return nil, err
				}
				held = size
			}
			buf = append(make([]byte, 0, size), buf...)
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}
