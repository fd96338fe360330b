package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
)

// ComeBack is how long a client is asked to wait before it reconnects, spread so that the clients
// of a gateway that stops do not all arrive at the next one together.
func ComeBack() time.Duration {
	const least, spread = 500 * time.Millisecond, 4 * time.Second
	return least + wait.Upto(spread)
}

// Later says when a client should come back, spread so that those who are refused together do not all come
// back together.
func Later(h http.Header) {
	h.Set("Retry-After", strconv.Itoa(int((ComeBack()+time.Second-1)/time.Second)))
}
