// Package wire is the common part of the wires of models: one HTTP request within its timeouts, the server's retry delay, and the
// preparation of a transcript for another server.
package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/sse"
	"github.com/sandjet/sandjet/schemas"
)

const (
	maxError   = 64 << 10 // bytes of an error's body that are read
	maxMessage = 1000     // bytes of an error's message
	maxHeaders = 64 << 10
)

// Client sends requests of one wire to one server.
type Client struct {
	url     string
	header  http.Header
	key     string
	http    *http.Client
	times   models.Timeouts
	refusal func(status int, body []byte) (models.Class, string)
}

// Accumulator assembles an answer from the events of a stream.
type Accumulator interface {
	// Event processes one event and yields new text. It returns true at the end of the answer. An error of type [*models.Error] was sent
	// by the server; any other error means that the stream is invalid.
	Event(e sse.Event, yield func(models.Delta) bool) (done bool, err error)
	// Answer is the whole answer. An error: it is not whole.
	Answer() (models.Answer, error)
	// Usage returns the token counts so far. begun reports whether a part of the answer has arrived.
	Usage() (usage schemas.TokenUsage, begun bool)
}

// New returns a client for path below o.URL, or below base if that is empty. header contains the key. refusal returns the class of an
// error response, and the server's message. Code: invalid.
func New(o models.Options, base, path string, header http.Header, refusal func(int, []byte) (models.Class, string)) (*Client, error) {
	u, err := url.Parse(cmp.Or(o.URL, base))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, schemas.Invalidf("url", "the address of a model's server is one such as %s", base)
	}
	for _, c := range []byte(o.Key) {
		if c <= ' ' || c >= 0x7F { // the error of the transport would show it
			return nil, schemas.Invalidf("key", "the key of a model's server has spaces, line ends or letters that no header has")
		}
	}
	c := &Client{url: strings.TrimSuffix(u.String(), "/") + path, header: header, key: o.Key, refusal: refusal, times: models.Timeouts{
		Connect:   cmp.Or(o.Timeouts.Connect, models.DefaultConnect),
		FirstByte: cmp.Or(o.Timeouts.FirstByte, models.DefaultFirstByte),
		Chunk:     cmp.Or(o.Timeouts.Chunk, models.DefaultChunk),
		Total:     cmp.Or(o.Timeouts.Total, models.DefaultTotal),
	}}
	header.Set("User-Agent", "Sandjet/1")
	header.Set("Accept", "text/event-stream")
	header.Set("Content-Type", "application/json")
	transport := o.Transport
	if transport == nil {
		transport = newTransport(c.times.Connect)
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

func newTransport(connect time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connect, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    connect,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true, // events come as they are written
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
	}
}

// Stream sends body and yields what [models.Client] documents for Stream.
func (c *Client) Stream(ctx context.Context, body []byte, acc Accumulator) iter.Seq2[models.Delta, error] {
	return func(yield func(models.Delta, error) bool) {
		left := false // yield must not be called any more
		answer, err := c.ask(ctx, body, acc, func(d models.Delta) bool {
			left = left || !yield(d, nil)
			return !left
		})
		switch {
		case left:
		case err == nil:
			yield(models.Delta{Answer: &answer}, nil)
		case ctx.Err() != nil:
			yield(models.Delta{}, ctx.Err())
		default:
			yield(models.Delta{}, c.describe(err, acc))
		}
	}
}

// describe returns the error as an [*models.Error] with the usage so far, without the key in its message.
func (c *Client) describe(err error, acc Accumulator) error {
	e, ok := errors.AsType[*models.Error](err)
	if !ok {
		e = &models.Error{Class: models.Disconnected, Message: err.Error()}
	}
	e.Usage, e.Begun = acc.Usage()
	if c.key != "" {
		e.Message = strings.ReplaceAll(e.Message, c.key, "[key]")
	}
	e.Message = clean(e.Message)
	return e
}

// clean returns text as one line of bounded length.
func clean(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return r <= ' ' || r == 0x7F }), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return text
}

func (c *Client) ask(ctx context.Context, body []byte, acc Accumulator, yield func(models.Delta) bool) (models.Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := func(d time.Duration, what string) *time.Timer {
		return time.AfterFunc(d, func() { cancel(fmt.Errorf("%s within %s", what, d)) })
	}
	total := late(c.times.Total, "the answer was not whole")
	defer total.Stop()
	first := late(c.times.FirstByte, "nothing of an answer came")
	defer first.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return models.Answer{}, &models.Error{Class: models.BadRequest, Message: "its address is not one"}
	}
	req.Header = c.header.Clone()
	req.GetBody = nil // or the transport may send it a second time, which is paid for twice
	res, err := c.http.Do(req)
	if err != nil {
		return models.Answer{}, because(ctx, err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	r := &timedReader{ctx: ctx, r: res.Body, first: first, times: c.times, late: late}
	defer r.stop()
	if res.StatusCode != http.StatusOK {
		return models.Answer{}, c.refused(res, r)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "text/event-stream" {
		return models.Answer{}, &models.Error{Class: models.BadRequest, Status: res.StatusCode,
			Message: fmt.Sprintf("the server answers with %q instead of an event stream: is this the address of its API?", clean(kind))}
	}
	events := sse.NewReader(r)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return acc.Answer()
		}
		if err != nil {
			return models.Answer{}, because(ctx, err)
		}
		done, err := acc.Event(e, yield)
		if failed, ok := errors.AsType[*models.Error](err); ok {
			failed.Status = cmp.Or(failed.Status, res.StatusCode)
			failed.After = cmp.Or(failed.After, after(res.Header, time.Now()))
		}
		switch {
		case err != nil:
			return models.Answer{}, err
		case done:
			return acc.Answer()
		}
	}
}

// ErrLeft is what an accumulator returns when yield reports that the caller has stopped reading.
var ErrLeft = errors.New("the answer is not wanted any more")

// because returns the reason why ctx ended, if it has; otherwise err without the URL, which may name hosts inside a network.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// refused returns the error for a response other than 200.
func (c *Client) refused(res *http.Response, r io.Reader) error {
	e := &models.Error{Status: res.StatusCode, After: after(res.Header, time.Now())}
	if res.StatusCode < http.StatusBadRequest {
		e.Class, e.Message = models.BadRequest, "the server answers with a redirection, which is not followed: it would be given the key"
		return e
	}
	body, err := io.ReadAll(io.LimitReader(r, maxError)) // what has come of it counts, also where it broke
	e.Class, e.Message = c.refusal(res.StatusCode, body)
	if e.Message == "" && len(body) > 0 {
		e.Message = string(body)
	}
	if e.Message == "" && err != nil {
		e.Message = "its reason was not received"
	}
	if e.Message == "" {
		e.Message = http.StatusText(res.StatusCode)
	}
	return e
}

// timedReader reads the body of an answer within its timeouts. The one between pieces runs only during a Read.
type timedReader struct {
	ctx   context.Context //nolint:containedctx // it reads on behalf of one request
	r     io.Reader
	first *time.Timer
	chunk *time.Timer
	times models.Timeouts
	late  func(time.Duration, string) *time.Timer
}

func (r *timedReader) Read(p []byte) (int, error) {
	switch {
	case r.first != nil:
	case r.chunk == nil:
		r.chunk = r.late(r.times.Chunk, "nothing more of the answer came")
	default:
		r.chunk.Reset(r.times.Chunk)
	}
	n, err := r.r.Read(p)
	if n > 0 && r.first != nil {
		r.first.Stop()
		r.first = nil
	}
	if r.chunk != nil {
		r.chunk.Stop()
	}
	return n, err
}

func (r *timedReader) stop() {
	if r.chunk != nil {
		r.chunk.Stop()
	}
}
