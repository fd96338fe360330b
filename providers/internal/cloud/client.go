package cloud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Defaults of [Client] and [Call].
const (
	DefaultTimeout       = 60 * time.Second
	DefaultMaxBody int64 = 8 << 20 // bytes of a response
)

// Client sends requests to one service. A client with only Base set never retries. It is safe for concurrent use.
type Client struct {
	Base    *url.URL    // prefix of all paths
	Auth    http.Header // sent with every request; the values are secrets
	Header  http.Header // sent with every request
	Retries []Retry     // the first row whose route matches applies
	HTTP    *http.Client
	Timeout time.Duration // of a call including retries; 0: DefaultTimeout
	MaxBody int64         // bytes of a response; 0: DefaultMaxBody
	Log     *slog.Logger  // logs failed tries; nil: no log
}

// Retry is a row of the table that determines when a request is retried.
type Retry struct {
	Route  string // as [Call.Route]; a final * matches any rest
	On     []int  // HTTP statuses after which it is retried
	Lost   bool   // also after a broken connection: the request is idempotent
	Unsent bool   // also if the request was certainly not sent
	Tries  int    // including the first; 0: 4
}

const defaultTries = 4

// Call is one request.
type Call struct {
	Method string
	Path   string // below Client.Base, escaped
	Route  string // template of the path, such as "/sandboxes/{id}"; empty: Path
	Query  url.Values
	Auth   http.Header // the values are secrets
	Header http.Header
	Body   any    // encoded as JSON; nil: none
	Raw    []byte // replaces Body; its Content-Type is in Header
	Into   any    // JSON is decoded into it; nil: the response body is not read
	// Read receives the response body instead of Into. Its error counts as a response that broke off, unless it is an [*Error].
	Read func([]byte) error
	// Stream receives the response body instead of Into while it arrives, up to [MaxList] bytes; see [Items].
	Stream func(io.Reader) error
	Wait   time.Duration // replaces Client.Timeout
	Each   time.Duration // time limit of one try; 0: what is left of the timeout
}

func (c Call) route() string { return c.Method + " " + cmp.Or(c.Route, c.Path) }

// Answer is the response of a service without its body.
type Answer struct {
	Status int
	Header http.Header
	Size   int64 // bytes of the body, if it was read
}

// Clock returns the time of the service's clock when it answered; this host's time if the response does not say.
func (a Answer) Clock() time.Time {
	if at, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		return at
	}
	return time.Now()
}

// Age returns how long ago something was made; 0 if unknown. Both times must be of the service's clock: with a worker's wrong clock a new
// sandbox could look old enough to be an orphan.
func Age(made, now time.Time) time.Duration {
	if made.IsZero() {
		return 0
	}
	return max(now.Sub(made), 0)
}

// ParseBase parses the address of a service. What is the setting's name, for the error. Code: invalid.
func ParseBase(what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, schemas.Invalidf(what, "%q is not an address such as https://api.example.com", schemas.Quotable(text))
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// Do sends a call and reads its answer, with retries by the table. An answer that is no success is an [*Error].
func (c *Client) Do(ctx context.Context, call Call) (Answer, error) {
	return c.repeat(ctx, call, c.once)
}

// repeat calls once, and again while the table says so.
func (c *Client) repeat(ctx context.Context, call Call, once func(context.Context, Call) (Answer, error)) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(call.Wait, c.Timeout, DefaultTimeout))
	defer cancel()
	again := wait.Backoff{First: 200 * time.Millisecond, Most: 5 * time.Second}
	for n := 1; ; n++ {
		a, err := once(ctx, call)
		if err == nil {
			return a, nil
		}
		var failed *Error
		if !errors.As(err, &failed) || !Again(c.Retries, failed, n) || ctx.Err() != nil {
			return a, err
		}
		pause := max(again.After(n), failed.RetryAfter)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
			return a, err // the caller learns from the error how long to wait
		}
		if c.Log != nil {
			c.Log.Debug("request failed, retrying", "route", failed.Route, "attempt", n, "error", err)
		}
		if !wait.Sleep(ctx, pause) {
			return a, err
		}
	}
}

// Again reports whether try n of a route, which failed with e, is followed by another one. The first row that matches the route decides.
func Again(table []Retry, e *Error, n int) bool {
	i := slices.IndexFunc(table, func(r Retry) bool { return r.fits(e.Route) })
	if i < 0 {
		return false
	}
	r := table[i]
	switch {
	case n >= cmp.Or(r.Tries, defaultTries):
		return false
	case e.Status != 0:
		return slices.Contains(r.On, e.Status)
	default:
		return r.Lost || r.Unsent && !e.Sent
	}
}

func (r Retry) fits(route string) bool {
	if begin, ok := strings.CutSuffix(r.Route, "*"); ok {
		return strings.HasPrefix(route, begin)
	}
	return r.Route == route
}

// once sends a call without retries and reads its answer.
func (c *Client) once(ctx context.Context, call Call) (Answer, error) {
	if call.Each > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, call.Each)
		defer cancel()
	}
	body := call.Raw
	if call.Body != nil {
		var err error
		if body, err = json.Marshal(call.Body); err != nil {
			return Answer{}, fmt.Errorf("encode a request: %w", err)
		}
	}
	res, sent, err := c.send(ctx, call, body, "application/json")
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	a := Answer{Status: res.StatusCode, Header: res.Header}
	if call.Stream != nil && res.StatusCode >= 200 && res.StatusCode <= 299 {
		return a, c.stream(call, res.Body)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, c.maxBody()+1))
	a.Size = int64(len(text))
	switch {
	case err != nil:
		return a, c.broken(call, sent, err)
	case int64(len(text)) > c.maxBody():
		return a, c.broken(call, sent, fmt.Errorf("the answer is longer than %d bytes", c.maxBody()))
	case res.StatusCode < 200 || res.StatusCode > 299:
		return a, c.refused(call, res, text)
	case call.Read != nil:
		err := call.Read(text)
		if _, ours := errors.AsType[*Error](err); err == nil || ours {
			return a, err
		}
		return a, c.broken(call, sent, err)
	case call.Into == nil:
		return a, nil
	}
	if err := json.Unmarshal(text, call.Into); err != nil {
		return a, c.broken(call, sent, fmt.Errorf("the answer is not understood: %w", err))
	}
	return a, nil
}

// target returns the URL of a call.
func (c *Client) target(call Call) (*url.URL, error) {
	u := *c.Base
	u.RawQuery = call.Query.Encode()
	t, err := url.Parse(u.Path + call.Path)
	if err != nil {
		return nil, fmt.Errorf("path of a request: %w", err)
	}
	u.Path, u.RawPath = t.Path, t.RawPath
	return &u, nil
}

// headers returns the request headers of a call.
func (c *Client) headers(call Call) http.Header {
	all := http.Header{}
	for _, header := range []http.Header{c.Header, c.Auth, call.Header, call.Auth} {
		maps.Copy(all, header)
	}
	return all
}

// openStream sends a request, without retries, whose answer is read as it comes: its start must come within idle. The caller closes the response
// body, and calls cancel, which ends the stream.
func (c *Client) openStream(ctx context.Context, call Call, body []byte, kind string, idle time.Duration) (
	res *http.Response, cancel context.CancelFunc, err error,
) {
	ctx, cancel = context.WithCancel(ctx)
	clock := time.AfterFunc(idle, cancel)
	defer clock.Stop() // after an answer that is an error, which may come slowly
	res, sent, err := c.send(ctx, call, body, kind)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, cancel, nil
	}
	defer cancel()
	defer res.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(res.Body, longestMessage*4))
	if err != nil {
		return nil, nil, c.broken(call, sent, err)
	}
	return nil, nil, c.refused(call, res, text)
}

// send sends a request without retries. Sent is false if it certainly did not reach the service. The caller closes the response body.
func (c *Client) send(ctx context.Context, call Call, body []byte, kind string) (res *http.Response, sent bool, err error) {
	u, err := c.target(call)
	if err != nil {
		return nil, false, err
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, call.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, false, fmt.Errorf("make a request: %w", err)
	}
	req.Header = c.headers(call)
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", kind)
	}
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a redirect would send secrets to another host
	if res, err = client.Do(req); err != nil {
		return nil, connected.Load(), c.broken(call, connected.Load(), err)
	}
	return res, true, nil
}

func (c *Client) maxBody() int64 { return cmp.Or(c.MaxBody, DefaultMaxBody) }
