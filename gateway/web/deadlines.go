package web

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// The time of what a client sends and takes. Nothing of a connection is waited for without an end: headers, bodies and
// pauses between requests have theirs in net/http or here, sockets and event streams theirs by pings and stalls.
const (
	bodyWithin   = time.Minute     // of a whole body, from the end of the headers on
	lingerWithin = 2 * time.Second // of the rest of a body that no handler reads, once the answer is on its way
	writePiece   = 64 << 10        // bytes that have to be taken within the stall
)

// arrival limits the time in which the body of one request arrives. After the limit the connection is not used further.
type arrival struct {
	io.ReadCloser

	rc    *http.ResponseController
	http1 bool
	whole bool // it was read to its end
	late  bool // it did not arrive in time
}

// guardBody sets the deadline of r's body; r must not be net/http's own, which it keeps. It returns the request with the
// body under guard, and nil where there is none: then a deadline would only end what waits, because net/http then reads ahead to
// see the client go.
func guardBody(rc *http.ResponseController, r *http.Request) (*http.Request, *arrival) {
	if r.Body == nil || r.ContentLength == 0 {
		return r, nil
	}
	_ = rc.SetReadDeadline(time.Now().Add(bodyWithin)) // a writer without deadlines, as in tests, is fine
	a := &arrival{ReadCloser: r.Body, rc: rc, http1: r.ProtoMajor == 1}
	r.Body = a
	return r, a
}

// Read reads the body. At its end the deadline goes, and only there.
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

// answering is called when the answer begins. If the body is not read by then it never is: the connection serves no further request.
// Net/http would otherwise wait for the rest before it answers; now it drops the rest soon. HTTP/2 resets the stream by itself.
func (a *arrival) answering(h http.Header) {
	if a == nil || a.whole || !a.http1 {
		return
	}
	h.Set("Connection", "close")
	_ = a.rc.SetReadDeadline(time.Now().Add(lingerWithin)) // as above
}

// writeInPieces writes b so that a client that takes nothing for the stall is dropped, however large b is.
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

// Push has the client take b. It fails if that is not so within the stall, or if what clients have not read yet leaves no room for b that
// long.
func Push(w http.ResponseWriter, rc *http.ResponseController, b []byte, stall time.Duration) error {
	_ = rc.SetWriteDeadline(time.Now().Add(stall)) // a writer without deadlines, as in tests, is fine
	if _, err := w.Write(b); err != nil {
		return err
	}
	err := rc.Flush()
	_ = rc.SetWriteDeadline(time.Time{}) // on HTTP/2 it would end a stream that is idle
	return err
}
