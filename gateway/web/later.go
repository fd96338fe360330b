package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
)

// ComeBack returns how long a client should wait before it reconnects. It is random, so that the clients of a stopping gateway do not all
// connect to the next one at once.
func ComeBack() time.Duration {
	const least, spread = 500 * time.Millisecond, 4 * time.Second
	return least + wait.Upto(spread)
}

// Later sets Retry-After to a random time, so that clients that were rejected together do not return together.
func Later(h http.Header) {
	h.Set("Retry-After", strconv.Itoa(int((ComeBack()+time.Second-1)/time.Second)))
}
