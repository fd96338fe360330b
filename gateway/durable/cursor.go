package durable

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Cursors let caches in front of gateways answer many waiting readers at once: all that ask in the
// same interval have the same one. A reader that sends the one of now, or a later one, gets one that
// is greater still, so that it never meets an answer that it had.
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
