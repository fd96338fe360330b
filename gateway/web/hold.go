package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Hold is the share of the gateway's limits that one request occupies: a slot among the requests in flight, memory for its body, and
// memory for its response. Only the handler's goroutine may use it, except for [Hold.Answer] and writes, which may be concurrent.
type Hold struct {
	holds   *Holds
	account schemas.AccountID // empty until it is known whose the request is
	reads   bool              // it only reads: asked again, it does nothing twice
	place   *quota.Place
	body    *quota.Place

	mu       sync.Mutex
	answer   *quota.Place
	answered int64 // bytes that answer stands for
	elsewhere,
	over bool
}

// HoldLimits are the limits for the requests of one account, and of all accounts. 0 or less means no limit. Bodies and answers are in
// bytes.
type HoldLimits struct {
	Requests, AllRequests int
	Bodies, AllBodies     int64
	Answers, AllAnswers   int64
}

// Holds counts the requests in flight of a gateway, and the memory of their bodies and responses.
type Holds struct {
	requests, bodies *quota.Ledger

	// Answers counts the bytes of responses that clients have not read yet. All writes of more than [SmallAnswer] bytes count: complete
	// responses from when they are made, other writes while they last, unless the handler counts them itself.
	Answers *quota.Ledger
}

// SmallAnswer is the size up to which a response is not counted, in bytes: about what a connection's buffer takes at once.
const SmallAnswer = 16 << 10

// NewHolds returns Holds with these limits.
func NewHolds(l HoldLimits) *Holds {
	return &Holds{
		quota.NewLedger(int64(l.Requests), int64(l.AllRequests)), quota.NewLedger(l.Bodies, l.AllBodies), quota.NewLedger(l.Answers, l.AllAnswers),
	}
}

// Requests returns how many requests are in flight that neither wait nor stream.
func (h *Holds) Requests() int64 { return h.requests.Total() }

// BodyBytes returns how much memory is reserved for the bodies of requests in flight.
func (h *Holds) BodyBytes() int64 { return h.bodies.Total() }

type holdKey struct{}

// HoldOf returns the hold of a request; nil if the request did not pass the middleware.
func HoldOf(ctx context.Context) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	return h
}

// Enter sets the account of a request, and takes a slot among the requests in flight for it. Codes: exhausted (the account has reached its
// limit), unavailable (this gateway has).
func (h *Hold) Enter(w http.ResponseWriter, a schemas.AccountID) error {
	if h == nil {
		return nil
	}
	h.account = a
	place, full := h.holds.requests.Take(a)
	h.place = place
	switch full {
	case quota.Account:
		Later(w.Header())
		return schemas.Errorf(schemas.Exhausted, "the account has as many requests in progress at this gateway as allowed: wait for their answers")
	case quota.All:
		Later(w.Header())
		return schemas.Errorf(schemas.Unavailable, "this gateway has as many requests in progress as allowed: try again later")
	case quota.Free:
	}
	return nil
}

// Administers marks a request as the administrator's: it takes no slot, and its body is counted apart from all accounts.
func (h *Hold) Administers() {
	if h != nil {
		h.account = "_admin"
	}
}

// Release frees everything. A request that is about to wait or to stream calls it before, and occupies a slot of another kind instead.
func (h *Hold) Release() {
	if h == nil {
		return
	}
	h.place.Release()
	h.body.Release()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer.Release()
	h.answer, h.answered = nil, 0
}

// end is the last [Hold.Release]: nothing can be reserved after it, even by a goroutine that outlives the handler.
func (h *Hold) end() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.Release()
}

// CountedElsewhere says that the handler itself counts its writes in [Holds.Answers].
func (h *Hold) CountedElsewhere() {
	if h != nil {
		h.mu.Lock()
		h.elsewhere = true
		h.mu.Unlock()
	}
}

// roomToAnswer is [Hold.Answer] for a response that is complete already.
func (h *Hold) roomToAnswer(n int) error {
	if h == nil || n <= SmallAnswer {
		return nil
	}
	done := ""
	if !h.reads {
		done = "the request was carried out, but its answer was not sent: "
	}
	return h.take(int64(n), done)
}

// Answer reserves memory for a response of n bytes until the request ends, instead of what was reserved before; for a response that is
// larger than the account's limit, the whole limit. It is safe for concurrent use. Codes: exhausted, unavailable.
func (h *Hold) Answer(n int64) error {
	if h == nil || n <= SmallAnswer {
		return nil
	}
	return h.take(h.holds.Answers.Fit(n), "")
}

func (h *Hold) take(n int64, done string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case n <= h.answered:
		return nil
	case h.over:
		return schemas.Errorf(schemas.Unavailable, "the request has ended: send it again")
	}
	// The larger room takes the place of the former in one step, so that no other request comes between the two.
	var full quota.Full
	if h.answer == nil {
		h.answer, full = h.holds.Answers.TakeMany(h.account, n)
	} else {
		full = h.answer.Grow(n - h.answered)
	}
	switch full {
	case quota.Account:
		return schemas.Errorf(schemas.Exhausted,
			"%sthe answers that the account's clients have not read yet take as much of this gateway's memory as they may: read them, or ask for "+
				"less at once", done)
	case quota.All:
		return schemas.Errorf(schemas.Unavailable,
			"%sthe answers that clients have not read yet take as much of this gateway's memory as they may: come back later", done)
	case quota.Free:
	}
	h.answered = n
	return nil
}

// write reserves memory for n bytes that are about to be written, and waits for it for at most within. Memory that the request has
// reserved for its response counts. The caller must call done after the write. Codes: exhausted, unavailable, and ctx's error.
func (h *Hold) write(ctx context.Context, n int, within time.Duration) (done func(), err error) {
	if h == nil || n <= SmallAnswer {
		return func() {}, nil
	}
	most := h.holds.Answers.Fit(int64(n))
	h.mu.Lock()
	counted := h.elsewhere || most <= h.answered
	h.mu.Unlock()
	if counted {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for try := 1; ; try++ {
		place, full := h.holds.Answers.TakeMany(h.account, most)
		switch {
		case full == quota.Free:
			return place.Release, nil
		case betweenTakes.Sleep(ctx, try):
		case full == quota.Account:
			return nil, schemas.Errorf(schemas.Exhausted, "the account's clients do not read their answers, of which this gateway's "+
				"memory has as many as it may: read them, then ask again")
		default:
			return nil, schemas.Errorf(schemas.Unavailable, "clients do not read their answers, of which this gateway's memory has as "+
				"many as it may: come back later")
		}
	}
}

// betweenTakes is the pause between two attempts to reserve memory for a write.
var betweenTakes = wait.Backoff{First: 10 * time.Millisecond, Most: 250 * time.Millisecond} //nolint:gochecknoglobals // settings, never changed

// room reserves memory for n more bytes of the body. Codes: exhausted, unavailable.
func (h *Hold) room(n int64) error {
	if h == nil {
		return nil
	}
	var full quota.Full
	if h.body == nil {
		h.body, full = h.holds.bodies.TakeMany(h.account, n)
	} else {
		full = h.body.Grow(n)
	}
	switch full {
	case quota.Account:
		return schemas.Errorf(schemas.Exhausted,
			"the bodies of the account's requests take as much of this gateway's memory as they may: send fewer at once")
	case quota.All:
		return schemas.Errorf(schemas.Unavailable, "the bodies of requests take as much of this gateway's memory as they may: come back later")
	case quota.Free:
	}
	return nil
}

// ReadHeld reads a body; length is its announced length, or -1. If the length is known, memory for all of it is reserved before the first
// byte is read, otherwise as it grows. In both cases memory is allocated only as bytes arrive.
func ReadHeld(ctx context.Context, body io.Reader, length int64) ([]byte, error) {
	const first, most = 4 << 10, 1 << 20
	h, held := HoldOf(ctx), int64(0)
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
