package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxAfter is the longest time that a server is left alone for at its word.
const maxAfter = 24 * time.Hour

// after returns how long the server asks to wait before another request: from retry-after-ms, or from Retry-After in seconds or as a date;
// 0 if it does not say.
func after(h http.Header, now time.Time) time.Duration {
	if d, ok := number(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return d
	}
	text := h.Get("Retry-After")
	if d, ok := number(text, time.Second); ok {
		return d
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, min(at.Sub(now), maxAfter))
	}
	return 0
}

func number(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	return time.Duration(max(0, min(n*float64(unit), float64(maxAfter)))), true
}
