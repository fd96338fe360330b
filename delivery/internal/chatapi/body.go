package chatapi

import (
	"bytes"
	"errors"
	"sync"
)

var errShut = errors.New("the request has ended")

// onceBody is a request body that records whether it was read. A transport may continue to send a failed request in the background; shut
// prevents that.
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

// Close does nothing: the transport may call it at any time.
func (b *onceBody) Close() error { return nil }

// shut makes every further read fail, and reports whether nothing was read before.
func (b *onceBody) shut() (unread bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	return !b.begun
}
