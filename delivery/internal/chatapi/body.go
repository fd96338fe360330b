package chatapi

import (
	"bytes"
	"errors"
	"sync"
)

var errShut = errors.New("the request has ended")

// onceBody is the body of a request that knows whether anybody has begun to read it. A transport may go on in the background with a
// request that has failed, so who asks also ends that.
type onceBody struct {
	mu    sync.Mutex
	r     *bytes.Reader
	begun bool
	over  bool
}

func (b *onceBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errShut
	}
	b.begun = true
	return b.r.Read(p)
}

// Close is the transport's, which may call it at any time.
func (b *onceBody) Close() error { return nil }

// shut has nobody read the body from now on, and reports whether nobody has.
func (b *onceBody) shut() (unread bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return !b.begun
}
