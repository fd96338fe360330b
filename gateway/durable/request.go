package durable

import (
	"bytes"
	"encoding/json"
	"iter"
	"mime"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// Headers of the protocol.
const (
	headerNext      = "Stream-Next-Offset"
	headerUpToDate  = "Stream-Up-To-Date"
	headerCursor    = "Stream-Cursor"
	headerClosed    = "Stream-Closed"
	headerSeq       = "Stream-Seq"
	headerTTL       = "Stream-Ttl"
	headerExpires   = "Stream-Expires-At"
	headerForked    = "Stream-Forked-From"
	headerForkAt    = "Stream-Fork-Offset"
	headerForkSub   = "Stream-Fork-Sub-Offset"
	headerEncoding  = "Stream-Sse-Data-Encoding"
	headerProducer  = "Producer-Id"
	headerEpoch     = "Producer-Epoch"
	headerPSeq      = "Producer-Seq"
	headerExpected  = "Producer-Expected-Seq"
	headerReceived  = "Producer-Received-Seq"
	valueTrue       = "true"
	typeBytes       = "application/octet-stream"
	typeJSON        = "application/json"
	maxName         = 256                  // bytes of a path, of a producer's id and of a Stream-Seq
	maxContentType  = 256                  // bytes
	maxTTL          = 10 * 365 * 24 * 3600 // seconds
	maxProducerSeq  = 1<<53 - 1            // the largest integer of JavaScript
	prefix          = "/v1/streams/"
	aliasPrefix     = "/v1/stream/" // the path of the protocol's own servers
	reservedPath    = "__ds/"
	maxForkSubBytes = 1 << 40
)

// Headers that browsers of other origins may send and read, separated by commas.
const (
	AcceptedHeaders = "If-None-Match, Stream-TTL, Stream-Expires-At, Stream-Closed, Stream-Seq, Stream-Forked-From, " +
		"Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, Producer-Epoch, Producer-Seq"
	ExposedHeaders = "Stream-Next-Offset, Stream-Up-To-Date, Stream-Cursor, Stream-Closed, Stream-TTL, Stream-Expires-At, " +
		"Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, Producer-Expected-Seq, Producer-Received-Seq"
)

// creation is a parsed PUT.
type creation struct {
	contentType string // empty: the default, or the source's
	ttl         *int64 // seconds
	expires     time.Time
	closed      bool
	fork        *forkRequest
}

type forkRequest struct {
	from string // path
	at   string // offset as the server returned it; empty: the source's end
	seq  uint64 // of at
	sub  uint64 // bytes or values of the message after it
}

// parseCreation parses the headers of a PUT. Code: invalid.
func parseCreation(h http.Header) (creation, error) {
	c := creation{contentType: h.Get("Content-Type"), closed: isTrue(h.Get(headerClosed))}
	if err := checkContentType(c.contentType); err != nil {
		return c, err
	}
	ttl, expires := h.Get(headerTTL), h.Get(headerExpires)
	if ttl != "" && expires != "" {
		return c, schemas.Invalidf(headerExpires, "cannot be given together with Stream-TTL")
	}
	if has(h, headerTTL) {
		n, err := decimal(ttl)
		if err != nil || n > maxTTL {
			return c, schemas.Invalidf("Stream-TTL", "must be seconds in plain digits, at most %d", maxTTL)
		}
		seconds := int64(n)
		c.ttl = &seconds
	}
	if has(h, headerExpires) {
		t, err := time.Parse(time.RFC3339, expires)
		if err != nil {
			return c, schemas.Invalidf(headerExpires, "must be a time as in RFC 3339")
		}
		c.expires = t.UTC()
	}
	fork, err := parseFork(h)
	c.fork = fork
	return c, err
}

func parseFork(h http.Header) (*forkRequest, error) {
	if !has(h, headerForked) {
		if has(h, headerForkAt) || has(h, headerForkSub) {
			return nil, schemas.Invalidf(headerForked, "is missing: name the path of the stream to fork")
		}
		return nil, nil //nolint:nilnil // no fork is asked for, which is no error
	}
	from, ok := strings.CutPrefix(h.Get(headerForked), prefix)
	if !ok {
		from, ok = strings.CutPrefix(from, aliasPrefix)
	}
	from, err := url.PathUnescape(from)
	if !ok || err != nil || checkPath(from) != nil {
		return nil, schemas.Invalidf(headerForked, "must be a path below %s", prefix)
	}
	f := &forkRequest{from: from, at: h.Get(headerForkAt)}
	if has(h, headerForkAt) {
		if f.seq, err = parsePlace(f.at); err != nil {
			return nil, schemas.Invalidf(headerForkAt, "must be an offset that the server returned")
		}
	}
	if has(h, headerForkSub) {
		if f.sub, err = decimal(h.Get(headerForkSub)); err != nil || f.sub > maxForkSubBytes {
			return nil, schemas.Invalidf(headerForkSub, "must be a number in plain digits")
		}
		if f.sub > 0 && f.at == "" {
			return nil, schemas.Invalidf(headerForkSub, "needs Stream-Fork-Offset: there is nothing behind the end")
		}
	}
	return f, nil
}

// addition is a parsed POST.
type addition struct {
	contentType string
	seq         string // Stream-Seq; empty: none
	closed      bool
	producer    *producer
}

// parseAddition parses the headers of a POST. Code: invalid.
func parseAddition(h http.Header) (addition, error) {
	a := addition{contentType: h.Get("Content-Type"), seq: h.Get(headerSeq), closed: isTrue(h.Get(headerClosed))}
	if err := checkName(headerSeq, a.seq); has(h, headerSeq) && err != nil {
		return a, err
	}
	given := 0
	for _, name := range []string{headerProducer, headerEpoch, headerPSeq} {
		if has(h, name) {
			given++
		}
	}
	switch given {
	case 0:
		return a, nil
	case 3:
	default:
		return a, schemas.Invalidf(headerProducer, "Producer-Id, Producer-Epoch and Producer-Seq belong together")
	}
	p := &producer{ID: h.Get(headerProducer)}
	if err := checkName(headerProducer, p.ID); err != nil {
		return a, err
	}
	for _, f := range []struct {
		name string
		to   *uint64
	}{{headerEpoch, &p.Epoch}, {headerPSeq, &p.Seq}} {
		n, err := digits(h.Get(f.name))
		if err != nil || n > maxProducerSeq {
			return a, schemas.Invalidf(f.name, "must be a number of plain digits, at most 2^53-1")
		}
		*f.to = n
	}
	a.producer = p
	return a, nil
}

func has(h http.Header, name string) bool { return len(h[textproto.CanonicalMIMEHeaderKey(name)]) > 0 }

func isTrue(s string) bool { return strings.EqualFold(s, valueTrue) }

// decimal parses a decimal number without a sign or leading zeros.
func decimal(s string) (uint64, error) {
	if len(s) > 1 && s[0] == '0' {
		return 0, schemas.Invalidf("number", "has leading zeros")
	}
	return digits(s)
}

// checkName checks that s is 1 to maxName printable ASCII characters: other bytes would not sort in the same way everywhere. Code:
// invalid.
func checkName(field, s string) error {
	if s == "" || len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return schemas.Invalidf(field, "must be 1 to %d printable ASCII characters", maxName)
	}
	return nil
}

func checkPath(path string) error {
	if path == "" || len(path) > maxName || !utf8.ValidString(path) ||
		strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return schemas.Invalidf("path", "must be 1 to %d bytes of text below %s", maxName, prefix)
	}
	if strings.HasPrefix(path, reservedPath) {
		return schemas.Errorf(schemas.NotFound, "paths below %s%s are reserved", prefix, reservedPath)
	}
	return nil
}

func checkContentType(s string) error {
	if s == "" {
		return nil
	}
	if _, _, err := mime.ParseMediaType(s); err != nil || len(s) > maxContentType {
		return schemas.Invalidf("Content-Type", "must be a media type of at most %d bytes", maxContentType)
	}
	return nil
}

// mediaType returns the part of a content type that counts in comparisons: in lower case, without parameters.
func mediaType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	return strings.ToLower(strings.TrimSpace(s))
}

func isJSON(contentType string) bool { return mediaType(contentType) == typeJSON }

// isText reports whether content of this type can be sent in a server-sent event without base64.
func isText(contentType string) bool {
	return isJSON(contentType) || strings.HasPrefix(mediaType(contentType), "text/")
}

// flatten returns the values of a JSON append, separated by commas: the elements of an array, at most [schemas.MaxManyMembers] of them, or
// the one value. Count is 0 for an empty array. Code: invalid.
func flatten(body []byte) (values []byte, count int, err error) {
	body = bytes.TrimSpace(body)
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, 0, schemas.Invalidf("body", "is not valid JSON")
	}
	if body[0] != '[' {
		return body, 1, nil
	}
	values = make([]byte, 0, len(body))
	for v := range elements(body[1 : len(body)-1]) {
		if count++; count > schemas.MaxManyMembers {
			return nil, 0, schemas.Invalidf("body", "is an array of more than %d values: send fewer in one request", schemas.MaxManyMembers)
		}
		if count > 1 {
			values = append(values, ',')
		}
		values = append(values, v...)
	}
	return values, count, nil
}

// elements yields the comma-separated values of a valid JSON list, without the space around them. It copies nothing.
func elements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		begin, depth, text := 0, 0, false
		for i := 0; i < len(list); i++ {
			switch c := list[i]; {
			case text && c == '\\':
				i++ // whatever it is, it does not end the text
			case c == '"':
				text = !text
			case text:
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				depth--
			case c == ',' && depth == 0:
				if !yield(bytes.TrimSpace(list[begin:i])) {
					return
				}
				begin = i + 1
			}
		}
		if last := bytes.TrimSpace(list[begin:]); len(last) > 0 {
			yield(last)
		}
	}
}

// array returns values in brackets, as a JSON array.
func array(values []byte) []byte {
	out := make([]byte, 0, len(values)+2)
	out = append(out, '[')
	out = append(out, values...)
	return append(out, ']')
}
