package durable

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Cursors let caches in front of gateways answer many waiting readers at once: all requests in the same interval get the same cursor. A
// reader that sends the present cursor, or a later one, gets a greater one, so that it never gets a cached response twice.
const (
	cursorEvery  = 20 * time.Second
	cursorSpread = 180           // intervals: an hour
	cursorBegin  = 1_728_432_000 // seconds: 2024-10-09, as everywhere in the protocol
)

func nextCursor(sent string, now time.Time) string {
	at := uint64(max(0, now.Sub(time.Unix(cursorBegin, 0))/cursorEvery))
	if had, err := digits(sent); err == nil && had >= at && had < 1<<62 {
		at = had + 1 + rand.Uint64N(cursorSpread)
	}
	return strconv.FormatUint(at, 10)
}
