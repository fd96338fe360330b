package durable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// get serves GET: it returns what is stored, and with ?live= also waits for new data.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, a schemas.AccountID, path string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return schemas.Invalidf("query", "is not encoded as a URL wants it")
	}
	from, given, err := parseOffset(q)
	if err != nil {
		return err
	}
	live := q.Get("live")
	switch live {
	case "", "long-poll", "sse":
	default:
		return schemas.Invalidf("live", "%q is unknown: use long-poll or sse", schemas.Quotable(strings.ToValidUTF8(live, "\uFFFD")))
	}
	if live != "" && !given {
		return schemas.Invalidf("offset", "is missing: -1 is the beginning")
	}
	f, err := h.store.live(r.Context(), a, path)
	if err != nil {
		return err
	}
	if err := h.store.touch(r.Context(), &f); err != nil {
		return err
	}
	var e end
	if from.now {
		if e, err = h.store.end(r.Context(), f); err != nil {
			return err
		}
		from.after = e.seq
	}
	switch {
	case live == "sse":
		return h.events(w, r, f, from.after, q.Get("cursor"))
	case live != "":
		return h.poll(w, r, f, from.after, q.Get("cursor"))
	case from.now: // a place that is another one a moment later: not to be kept
		p := page{next: e.seq, upToDate: true, closed: e.state.Closed}
		setHeaders(w.Header(), f, p)
		return write(w, http.StatusOK, p.body(f.ContentType))
	}
	return h.catchUp(w, r, f, from.after)
}

// catchUp answers with the messages after a sequence, or 304 if the client has them cached.
func (h *Handler) catchUp(w http.ResponseWriter, r *http.Request, f found, after uint64) error {
	p, err := h.store.read(r.Context(), f, after)
	if err != nil {
		return err
	}
	setHeaders(w.Header(), f, p)
	tag := fmt.Sprintf(`"%s:%d:%d:%t:%t"`, f.ID, after, p.next, p.upToDate, p.closed)
	w.Header().Set("Etag", tag)
	w.Header().Set("Cache-Control", "private, no-cache") // it may be kept, and has to be asked for again
	if match(r.Header.Get("If-None-Match"), tag) {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return write(w, http.StatusOK, p.body(f.ContentType))
}

// match reports whether an If-None-Match header matches tag.
func match(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// poll serves a long poll: it answers once there are messages after a sequence, or after h.LongPoll without any.
func (h *Handler) poll(w http.ResponseWriter, r *http.Request, f found, after uint64, cursor string) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.LongPoll)
	defer cancel()
	defer context.AfterFunc(h.Draining, cancel)()
	p, err := h.await(ctx, f, after)
	if r.Context().Err() == nil && ctx.Err() != nil && err != nil {
		p, err = page{next: after, upToDate: true}, nil
	}
	if err != nil {
		return err
	}
	setHeaders(w.Header(), f, p)
	w.Header().Set(headerCursor, nextCursor(cursor, time.Now()))
	if len(p.messages) == 0 {
		w.Header().Del("Content-Type")
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return write(w, http.StatusOK, p.body(f.ContentType))
}

// await blocks until there are messages after a sequence or the stream is closed, and returns the page. If ctx is done first, it returns
// ctx's error.
func (h *Handler) await(ctx context.Context, f found, after uint64) (page, error) {
	t, err := h.hub.join(ctx, f)
	if err != nil {
		return page{}, err
	}
	defer h.hub.leave(f, t)
	for {
		wake := t.next()
		p, err := t.read(ctx, h.store, f, after)
		if err != nil || len(p.messages) > 0 || p.closed {
			return p, err
		}
		if !p.upToDate { // a page of nothing: there were only messages without data
			after = p.next
			continue
		}
		select {
		case <-wake:
			if err := h.still(ctx, f); err != nil {
				return page{}, err
			}
		case <-ctx.Done():
			return page{}, ctx.Err()
		}
	}
}

// still checks that the stream of a live reader still exists. Code: not_found.
func (h *Handler) still(ctx context.Context, f found) error {
	now, err := h.store.live(ctx, f.Account, f.Path)
	if err == nil && now.ID != f.ID {
		err = schemas.Errorf(schemas.NotFound, "the stream was deleted")
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// setHeaders sets the response headers of a page.
func setHeaders(h http.Header, f found, p page) {
	h.Set("Content-Type", f.ContentType)
	h.Set(headerNext, formatOffset(p.next))
	if p.upToDate {
		h.Set(headerUpToDate, valueTrue)
	}
	if p.closed {
		h.Set(headerClosed, valueTrue)
	}
}

func write(w http.ResponseWriter, status int, body []byte) error {
	w.WriteHeader(status)
	_, _ = w.Write(body) // no client is left to answer
	return nil
}
