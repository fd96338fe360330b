package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of what a reader may ask for.
const (
	// DefaultMaxWait is the longest that ?wait= holds a request; a longer one is cut to it.
	DefaultMaxWait = 60 * time.Second
	// DefaultPage and MaxPage bound the events of one JSON page.
	DefaultPage = 200
	MaxPage     = 1000
)

// Query reads the parameters of a request strictly: an unknown or repeated one is an error, so that a misspelt ?wiat= is not ignored.
type Query struct{ Values url.Values }

// ParseQuery parses the query of a URL, which may have only the known parameters, each once. Code: invalid.
func ParseQuery(raw string, known ...string) (Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return Query{}, schemas.Invalidf("", "the query of the URL is malformed: encode it as name=value&…")
	}
	for name, v := range values {
		if len(known) == 0 {
			return Query{}, schemas.Invalidf(schemas.Quotable(strings.ToValidUTF8(name, "\uFFFD")),
				"is not a known query parameter: this route takes none")
		}
		if !slices.Contains(known, name) {
			return Query{}, schemas.Invalidf(schemas.Quotable(strings.ToValidUTF8(name, "\uFFFD")),
				"is not a known query parameter: use %s", strings.Join(known, ", "))
		}
		if len(v) > 1 {
			return Query{}, schemas.Invalidf(name, "is given more than once")
		}
	}
	return Query{values}, nil
}

// Wait returns ?wait=: seconds or a duration, at most most. Absent means 0. Code: invalid.
func (q Query) Wait(most time.Duration) (time.Duration, error) {
	s := q.Values.Get("wait")
	if s == "" {
		return 0, nil
	}
	var d schemas.Duration
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		if !(n >= 0) { // NaN too
			return 0, schemas.Invalidf("wait", "%q is not a duration: write seconds (30) or a text such as 30s", schemas.Quotable(s))
		}
		return time.Duration(min(n, most.Seconds()) * float64(time.Second)), nil
	}
	if err := d.UnmarshalText([]byte(strings.ToValidUTF8(s, "\uFFFD"))); err != nil {
		return 0, schemas.Invalidf("wait", "%q is not a duration: write seconds (30) or a text such as 30s",
			schemas.Quotable(strings.ToValidUTF8(s, "\uFFFD")))
	}
	return min(time.Duration(d), most), nil
}

// Limit returns ?limit=: 1 to [MaxPage]; absent means [DefaultPage]. Code: invalid.
func (q Query) Limit() (int, error) {
	n, err := q.Integer("limit", DefaultPage, 1, MaxPage)
	return int(n), err
}

// Integer returns a number from least to most; absent means otherwise. Code: invalid.
func (q Query) Integer(name string, otherwise, least, most int64) (int64, error) {
	s := q.Values.Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, schemas.Invalidf(name, "%q is out of range: %d to %d", schemas.Quotable(strings.ToValidUTF8(s, "\uFFFD")), least, most)
	}
	return n, nil
}

// Flag returns true for 1 or true, and false for 0 or false; absent means false. Code: invalid.
func (q Query) Flag(name string) (bool, error) {
	switch s := q.Values.Get(name); s {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, schemas.Invalidf(name, "%q is neither 1 nor 0", schemas.Quotable(strings.ToValidUTF8(s, "\uFFFD")))
	}
}

// Text returns a parameter as valid UTF-8; absent means "".
func (q Query) Text(name string) string { return strings.ToValidUTF8(q.Values.Get(name), "\uFFFD") }

// Dialect returns the dialect of tools that a query names; empty if it names none. Code: invalid.
func (q Query) Dialect() (schemas.Dialect, error) {
	d := schemas.Dialect(q.Values.Get("dialect"))
	switch d {
	case "", schemas.DialectClaude, schemas.DialectDeepAgents:
		return d, nil
	}
	return "", schemas.Invalidf("dialect", "%q is unknown: use claude or deepagents", schemas.Quotable(q.Text("dialect")))
}

// After returns the cursor to resume after. The header Last-Event-ID, which browsers send when they reconnect, takes precedence over
// ?after=, which stays in their URL. Absent means the beginning. Code: invalid.
func (q Query) After(h http.Header) (schemas.Cursor, error) {
	s := h.Get("Last-Event-ID")
	if s == "" {
		s = q.Values.Get("after")
	}
	return schemas.ParseCursor(strings.ToValidUTF8(s, "\uFFFD"))
}
