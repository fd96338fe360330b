package durable

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Options are the settings of a [Handler]. Bus must be there.
type Options struct {
	Bus *streams.Bus
	// Draining is done when live reads must end. Nil: never.
	Draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	// MaxStreams is the most streams of an account. Default 10,000. Each gateway caches the number for ten seconds.
	MaxStreams int
	// LongPoll is how long a long poll waits. Default 20 s.
	LongPoll time.Duration
	// Life is how long an event stream lasts before its reader must reconnect. Default 60 s.
	Life time.Duration
	// Heartbeat is the longest silence of an event stream. Default 10 s.
	Heartbeat time.Duration
	// Stall is how long one write to a reader, or the arrival of a body, may take. Default 10 s for
	// each write; bodies have three times as long.
	Stall time.Duration
	// Read reads a body; length is its announced length, or -1. The memory counts towards limits until the request is answered. Default
	// [io.ReadAll].
	Read func(ctx context.Context, body io.Reader, length int64) ([]byte, error)
}

const (
	defaultMaxStreams = 10_000
	defaultLongPoll   = 20 * time.Second
	defaultLife       = time.Minute
	defaultHeartbeat  = 10 * time.Second
	defaultStall      = 10 * time.Second
)

// Handler serves the streams of all accounts. It is safe for concurrent use, and has no state that is not on the log as well.
type Handler struct {
	Options

	store *store
	hub   *hub
}

// New returns a Handler. It starts no goroutines.
func New(o Options) *Handler {
	o.MaxStreams = cmp.Or(o.MaxStreams, defaultMaxStreams)
	o.LongPoll = cmp.Or(o.LongPoll, defaultLongPoll)
	o.Life = cmp.Or(o.Life, defaultLife)
	o.Heartbeat = cmp.Or(o.Heartbeat, defaultHeartbeat)
	o.Stall = cmp.Or(o.Stall, defaultStall)
	if o.Read == nil {
		o.Read = func(_ context.Context, body io.Reader, _ int64) ([]byte, error) { return io.ReadAll(body) }
	}
	if o.Draining == nil {
		o.Draining = context.Background()
	}
	return &Handler{Options: o, store: newStore(o.Bus, o.MaxStreams), hub: &hub{log: streams.OpenDurable(o.Bus)}}
}

// Serve answers one request for the stream at path of an account. If it returns an error, no response was written yet; the error is a
// [*RefusalError] if it sets a status or headers of its own. If the request's context ends first, the error is the context's cause.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	w.Header().Set("Cache-Control", "no-store")
	err := checkPath(path)
	if err == nil {
		err = h.serve(w, r, a, path)
	}
	if err != nil && r.Context().Err() != nil {
		err = context.Cause(r.Context())
	}
	if refusal, ok := errors.AsType[*RefusalError](err); ok {
		maps.Copy(w.Header(), refusal.header)
	}
	return err
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	switch r.Method {
	case http.MethodPut:
		return h.put(w, r, a, path)
	case http.MethodPost:
		return h.post(w, r, a, path)
	case http.MethodHead:
		return h.head(w, r, a, path)
	case http.MethodDelete:
		return h.delete(w, r, a, path)
	}
	return h.get(w, r, a, path)
}

// put serves PUT: it makes a stream, or confirms that it exists with the same settings.
func (h *Handler) put(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	c, err := parseCreation(r.Header)
	if err != nil {
		return err
	}
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	f, e, made, err := h.store.create(r.Context(), a, path, c, body)
	if err != nil {
		return err
	}
	if !made {
		if err := h.store.touch(r.Context(), &f); err != nil {
			return err
		}
	}
	describe(w.Header(), f, e)
	status := http.StatusOK
	if made {
		status = http.StatusCreated
		w.Header().Set("Location", location(r))
	}
	w.WriteHeader(status)
	return nil
}

// location returns the URL of the stream, as far as it can be known behind a proxy.
func location(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return scheme + "://" + r.Host + r.URL.EscapedPath()
}

// post serves POST: it appends to a stream, closes it, or both.
func (h *Handler) post(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	add, err := parseAddition(r.Header)
	if err != nil {
		return err
	}
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	f, err := h.store.live(r.Context(), a, path)
	if err != nil {
		return err
	}
	data, err := add.check(f.ContentType, body)
	if err != nil {
		return err
	}
	done, err := h.store.append(r.Context(), f, add, data)
	if done.seq > 0 {
		w.Header().Set(headerNext, formatOffset(done.seq))
	}
	if err != nil {
		return err
	}
	if err := h.store.touch(r.Context(), &f); err != nil {
		return err
	}
	status := http.StatusNoContent
	if done.reached != nil {
		w.Header().Set(headerEpoch, strconv.FormatUint(done.reached.Epoch, 10))
		w.Header().Set(headerPSeq, strconv.FormatUint(done.reached.Seq, 10))
		if !done.duplicate && len(data) > 0 {
			status = http.StatusOK
		}
	}
	if done.state.Closed {
		w.Header().Set(headerClosed, valueTrue)
	}
	w.WriteHeader(status)
	return nil
}

// check checks that a body may be appended to a stream of this content type, and returns the data to store. The body may be empty only if
// the stream is to be closed.
func (a addition) check(contentType string, body []byte) ([]byte, error) {
	switch {
	case len(body) == 0 && a.closed:
		return nil, nil
	case len(body) == 0:
		return nil, schemas.Invalidf("body", "is empty")
	case a.contentType == "":
		return nil, schemas.Invalidf("Content-Type", "is missing: the stream's is %s", schemas.Quotable(contentType))
	case mediaType(a.contentType) != mediaType(contentType):
		return nil, refuse(http.StatusConflict, schemas.Conflict, "the stream's content type is %s", schemas.Quotable(contentType))
	case !isJSON(contentType):
		return body, nil
	}
	data, count, err := flatten(body)
	if err == nil && count == 0 {
		err = schemas.Invalidf("body", "is an empty array")
	}
	return data, err
}

// head serves HEAD. It does not count as a use: the stream's expiry is not extended.
func (h *Handler) head(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	f, err := h.store.live(r.Context(), a, path)
	if err != nil {
		return err
	}
	e, err := h.store.end(r.Context(), f)
	if err != nil {
		return err
	}
	describe(w.Header(), f, e)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (h *Handler) delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	f, err := h.store.live(r.Context(), a, path)
	if err != nil {
		return err
	}
	if err := h.store.remove(r.Context(), f); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// describe sets the headers with a stream's content type, end and expiry.
func describe(h http.Header, f found, e end) {
	h.Set("Content-Type", f.ContentType)
	h.Set(headerNext, formatOffset(e.seq))
	if f.TTL != nil {
		h.Set(headerTTL, strconv.FormatInt(*f.TTL, 10))
	}
	if !f.Expires.IsZero() {
		h.Set(headerExpires, f.Expires.Format(time.RFC3339Nano))
	}
	if e.state.Closed {
		h.Set(headerClosed, valueTrue)
	}
}

// body reads a request's body. Code invalid, with the status 413: it is too large.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	const arrival = 3
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(arrival * h.Stall)) // a writer without deadlines, as in tests, is fine
	most := h.store.log.MaxData()
	if r.ContentLength > int64(most) {
		return nil, tooLarge(most)
	}
	b, err := h.Read(r.Context(), http.MaxBytesReader(w, r.Body, int64(most)), r.ContentLength)
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{}) // as above
	} else if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // what is left is not read, and the deadline stays until then
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(most)
	}
	if _, ok := errors.AsType[*schemas.Error](err); ok { // there is no room for it
		return nil, err
	}
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "", "the body did not arrive whole", err)
	}
	return b, nil
}
