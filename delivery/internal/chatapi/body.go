package chatapi

import (
	"bytes"
	"errors"
	"sync"
)

var errShut = errors.New("the request has ended")

// onceBody is the body of a request that knows whether it has begun to be read. A transport may continue in the background with a request
// that has failed, so the caller also ends that.
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

// shut makes every further read fail, and reports whether nothing was read before.
func (b *onceBody) shut() (unread bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return !b.begun
}
