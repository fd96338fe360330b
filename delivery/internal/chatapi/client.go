package chatapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Limits of a request.
const (
	DefaultTimeout = 30 * time.Second
	MaxAnswer      = 1 << 20 // bytes

	maxHeaders  = 64 << 10 // bytes of the response's headers
	idleTimeout = 20 * time.Second
	perHost     = 16 // idle connections
)

// Client sends requests to one service. It is safe for concurrent use.
type Client struct {
	name    string
	base    *url.URL
	given   bool // the base is not the service's own address
	http    *http.Client
	timeout time.Duration
	now     func() time.Time
}

// New returns the client of a service with the display name name and the address base, unless o sets another address. Code: invalid.
func New(name, base string, o channel.Options) (*Client, error) {
	text := cmp.Or(o.Base, base)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, schemas.Invalidf("base", "the address of %s is not one such as %s", name, base)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	c := &Client{name: name, base: u, given: o.Base != "" && o.Base != base, timeout: cmp.Or(o.Timeout, DefaultTimeout), now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	transport := o.Transport
	if transport == nil {
		transport = newTransport()
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// newTransport returns a transport that closes idle connections before the services do: if a request is sent on a connection that is just
// being closed, it is unknown whether it arrived.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true, // a response that is small compressed could be large
		MaxIdleConnsPerHost:    perHost,
		MaxIdleConns:           8 * perHost,
		IdleConnTimeout:        idleTimeout,
	}
}

// Now returns the current time.
func (c *Client) Now() time.Time { return c.now() }

// Name returns the service's name for people.
func (c *Client) Name() string { return c.name }

// Call is one request.
type Call struct {
	Method string
	Path   string // below the base, escaped, optionally with a query; may contain secrets
	Query  url.Values
	Header http.Header
	// JSON is encoded as the body. If it is nil, the body is Body with the content type Type.
	JSON any
	Body []byte
	Type string
	// Secrets are the texts that are replaced in errors.
	Secrets []string
	// Judge maps a response whose body was read to an error, by the service's own rules. If Judge or its result is nil, [Client.ByStatus]
	// decides.
	Judge func(Answer) *channel.Error
	// Into is the value into which the body of a successful response is decoded. Nil: the body is not decoded.
	Into any
}

// Answer is a service's response.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a call, without retries. The error is a [*channel.Error].
func (c *Client) Do(ctx context.Context, call Call) (Answer, error) {
	a, failed := c.do(ctx, call)
	if failed == nil {
		return a, nil
	}
	failed.Reason = Redact(failed.Reason, call.Secrets)
	if failed.Cause != nil && !isContext(failed.Cause) {
		failed.Cause = errors.New(Redact(failed.Cause.Error(), call.Secrets))
	}
	return a, failed
}

func (c *Client) do(ctx context.Context, call Call) (Answer, *channel.Error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, body, err := c.request(traced, call)
	if err != nil {
		return Answer{}, &channel.Error{Outcome: channel.Refused, Reason: "the request cannot be made: " + err.Error()}
	}
	res, err := c.http.Do(req)
	if err != nil {
		// No service carries out a request without its body, and after shut the body can no longer be read.
		outcome := channel.Ambiguous
		if body != nil && body.shut() || body == nil && !connected.Load() {
			outcome = channel.NotSent
		}
		return Answer{}, c.unanswered(outcome, err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	a := Answer{Status: res.StatusCode, Header: res.Header}
	a.Body, err = io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	if err == nil && len(a.Body) > MaxAnswer {
		err = fmt.Errorf("the answer is longer than %d bytes", MaxAnswer)
	}
	if err != nil {
		return a, c.cut(a, err)
	}
	if call.Judge != nil {
		if failed := call.Judge(a); failed != nil {
			failed.Status = a.Status
			return a, failed
		}
	}
	if failed := c.ByStatus(a); failed != nil {
		return a, failed
	}
	if call.Into != nil {
		if err := json.Unmarshal(a.Body, call.Into); err != nil {
			return a, c.NotUnderstood(a)
		}
	}
	return a, nil
}

// request returns the HTTP request of a call, and its body; nil if it has none.
func (c *Client) request(ctx context.Context, call Call) (*http.Request, *onceBody, error) {
	target, err := url.Parse(c.base.EscapedPath() + call.Path)
	if err != nil {
		return nil, nil, errors.New("its path is not one") // the parser's error contains the path
	}
	u := *c.base
	u.Path, u.RawPath, u.RawQuery = target.Path, target.RawPath, target.RawQuery
	if call.Query != nil {
		u.RawQuery = call.Query.Encode()
	}
	data, kind := call.Body, call.Type
	if call.JSON != nil {
		if data, err = Encode(call.JSON); err != nil {
			return nil, nil, err
		}
		kind = "application/json"
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, u.String(), http.NoBody)
	if err != nil {
		return nil, nil, errors.New("its address is not one")
	}
	req.Header.Set("User-Agent", "Sandjet/1")
	req.Header.Set("Accept", "application/json")
	maps.Copy(req.Header, call.Header)
	if len(data) == 0 {
		return req, nil, nil
	}
	// Without GetBody the transport cannot send the request again, even if it considers that safe.
	body := &onceBody{r: bytes.NewReader(data)}
	req.Body, req.GetBody, req.ContentLength = body, nil, int64(len(data))
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	return req, body, nil
}

// Encode returns v as JSON, without escapes for HTML.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the body: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
