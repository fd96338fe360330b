package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// Time limits for clients. Every wait on a connection ends: headers, bodies and pauses between requests have limits in net/http or here,
// sockets and event streams have pings and stalls.
const (
	bodyWithin   = time.Minute     // of a whole body, from the end of the headers on
	lingerWithin = 2 * time.Second // of the rest of a body that no handler reads, once the answer is on its way
	writePiece   = 64 << 10        // bytes that have to be taken within the stall
)

// arrival is a request's body with a deadline. After it, the connection is not used for further requests.
type arrival struct {
	io.ReadCloser

	rc    *http.ResponseController
	http1 bool
	whole bool // it was read to its end
	late  bool // it did not arrive in time
}

// guardBody sets the deadline for r's body, and returns the request with the guarded body. r must be a copy of net/http's request. Without
// a body it returns nil: a deadline would then only interrupt waiting handlers, since net/http reads ahead to notice when the client
// disconnects.
func guardBody(rc *http.ResponseController, r *http.Request) (*http.Request, *arrival) {
	if r.Body == nil || r.ContentLength == 0 {
		return r, nil
	}
	_ = rc.SetReadDeadline(time.Now().Add(bodyWithin)) // a writer without deadlines, as in tests, is fine
	a := &arrival{ReadCloser: r.Body, rc: rc, http1: r.ProtoMajor == 1}
	r.Body = a
	return r, a
}

// Read implements [io.Reader]. At the end of the body it removes the deadline.
func (a *arrival) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) && !a.whole {
		a.whole = true
		_ = a.rc.SetReadDeadline(time.Time{}) // as above
	}
	a.late = a.late || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// tooLate reports whether the body of r did not arrive in time.
func tooLate(r *http.Request) bool {
	a, ok := r.Body.(*arrival)
	return ok && a.late
}

// answering is called when the response begins. If the body has not been read by then, it will not be: the connection is closed after the
// response, and the rest of the body is dropped after a short deadline. Otherwise net/http would wait for the rest before it responds.
// HTTP/2 resets the stream by itself.
func (a *arrival) answering(h http.Header) {
	if a == nil || a.whole || !a.http1 {
		return
	}
	h.Set("Connection", "close")
	_ = a.rc.SetReadDeadline(time.Now().Add(lingerWithin)) // as above
}

// writeInPieces writes b so that a client that reads nothing for the stall is dropped, however large b is.
func writeInPieces(w http.ResponseWriter, rc *http.ResponseController, b []byte, stall time.Duration) (written int, err error) {
	for {
		piece := b[written:min(len(b), written+writePiece)]
		_ = rc.SetWriteDeadline(time.Now().Add(stall)) // a writer without deadlines, as in tests, is fine
		n, err := w.Write(piece)
		if written += n; err != nil || written >= len(b) {
			return written, err
		}
	}
}

// Push writes b and flushes it. It fails if the client does not read within the stall, or if there is no room among the unread responses
// for b within the stall.
func Push(w http.ResponseWriter, rc *http.ResponseController, b []byte, stall time.Duration) error {
	_ = rc.SetWriteDeadline(time.Now().Add(stall)) // a writer without deadlines, as in tests, is fine
	if _, err := w.Write(b); err != nil {
		return err
	}
	err := rc.Flush()
	_ = rc.SetWriteDeadline(time.Time{}) // on HTTP/2 it would end a stream that is idle
	return err
}
