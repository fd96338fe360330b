package gateway

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

// query reads the parameters of a request strictly: an unknown or repeated one is an error, so
// that a misspelt ?wiat= does not silently mean none.
type query struct{ values url.Values }

func parseQuery(raw string, known ...string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, schemas.Invalidf("", "the query of the URL is malformed: encode it as name=value&…")
	}
	for name, v := range values {
		if len(known) == 0 {
			return query{}, schemas.Invalidf(schemas.Quotable(strings.ToValidUTF8(name, "\uFFFD")), "is not a known query parameter: this route takes none")
		}
		if !slices.Contains(known, name) {
			return query{}, schemas.Invalidf(schemas.Quotable(strings.ToValidUTF8(name, "\uFFFD")),
				"is not a known query parameter: use %s", strings.Join(known, ", "))
		}
		if len(v) > 1 {
			return query{}, schemas.Invalidf(name, "is given more than once")
		}
	}
	return query{values}, nil
}

// wait reads ?wait=: seconds or a duration, cut to most. Absent means 0.
func (q query) wait(most time.Duration) (time.Duration, error) {
	s := q.values.Get("wait")
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

// limit reads ?limit=: 1 to [MaxPage]; absent means [DefaultPage].
func (q query) limit() (int, error) {
	n, err := q.integer("limit", DefaultPage, 1, MaxPage)
	return int(n), err
}

// integer reads a number from least to most; absent means otherwise.
func (q query) integer(name string, otherwise, least, most int64) (int64, error) {
	s := q.values.Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, schemas.Invalidf(name, "%q is out of range: %d to %d", schemas.Quotable(strings.ToValidUTF8(s, "\uFFFD")), least, most)
	}
	return n, nil
}

// flag reads 1 or true, 0 or false; absent means false.
func (q query) flag(name string) (bool, error) {
	switch s := q.values.Get(name); s {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, schemas.Invalidf(name, "%q is neither 1 nor 0", schemas.Quotable(strings.ToValidUTF8(s, "\uFFFD")))
	}
}

// after reads where to resume: the header Last-Event-ID, which a browser sends by itself when it
// reconnects, wins over ?after=, which stays in its URL. Absent means the beginning.
func (q query) after(h http.Header) (schemas.Cursor, error) {
	s := h.Get("Last-Event-ID")
	if s == "" {
		s = q.values.Get("after")
	}
	return schemas.ParseCursor(strings.ToValidUTF8(s, "\uFFFD"))
}
