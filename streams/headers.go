package streams

import (
	"maps"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// Headers of messages. Names are compared without regard to case.
type Headers map[string][]string

// Get returns the first value of the header, "" if there is none.
func (h Headers) Get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// headerTrace is the W3C trace context of a message.
const headerTrace = "traceparent"

func copyHeaders(h nats.Header) Headers { return Headers(maps.Clone(h)) }

// validTrace reports whether s looks like a W3C trace context: version, trace, parent, flags.
func validTrace(s string) bool {
	const full = 55
	if len(s) < full || len(s) > 128 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	for i, r := range s {
		hex := r >= '0' && r <= '9' || r >= 'a' && r <= 'f'
		if i < full && i != 2 && i != 35 && i != 52 && !hex {
			return false
		}
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

// traceOf returns the trace that a value belongs to.
func traceOf(v any) string {
	var t string
	switch v := v.(type) {
	case schemas.Call:
		t = v.TraceParent
	case schemas.Event:
		t = v.TraceParent
	case Raw:
		t = v.Header.Get(headerTrace)
	}
	if !validTrace(t) {
		return ""
	}
	return t
}
