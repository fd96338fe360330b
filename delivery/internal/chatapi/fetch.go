package chatapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
)

const (
	maxHops   = 3                // maximal number of redirects of a file
	readStall = 30 * time.Second // maximal time until the next bytes of a file arrive
)

// Hosts are the hosts that serve a service's files. A name that begins with a dot matches all its sub-domains.
type Hosts []string

func (h Hosts) has(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(h, func(s string) bool {
		return host == s || strings.HasPrefix(s, ".") && strings.HasSuffix(host, s) && len(host) > len(s)
	})
}

// Fetch describes a file to fetch. It is requested from the service's own hosts only, because the author of a message chooses its URL.
type Fetch struct {
	// URL is the address of the file: below the client's base, or on one of Hosts with https. If the operator has set another base, the
	// path of URL is requested from that base instead.
	URL string
	// Hosts are the hosts to which requests may be sent. Those in Trusted, and the base, receive Header.
	Hosts, Trusted Hosts
	Header         http.Header
	// Secrets are the texts that are replaced in errors.
	Secrets []string
	// Judge maps a response, whose body is empty here, to an error by the service's own rules. If Judge or its result is nil, the status
	// decides.
	Judge func(Answer) *channel.Error
}

// Path returns the URL of a path below the base.
func (c *Client) Path(escaped string) string { return c.base.String() + escaped }

// own reports whether the operator has set another address than the service's own.
func (c *Client) own() bool { return c.given }

// Fetch opens a file. The error is a [*channel.Error].
func (c *Client) Fetch(ctx context.Context, f Fetch) (channel.Content, error) {
	got, failed := c.fetch(ctx, f)
	if failed != nil {
		failed.Reason = Redact(failed.Reason, f.Secrets)
		failed.Cause = contextOnly(failed.Cause)
		return channel.Content{}, failed
	}
	return got, nil
}

// contextOnly returns the context's error in err, nil if there is none: other errors may contain the address.
func contextOnly(err error) error {
	if err != nil && isContext(err) {
		return contextCause(err)
	}
	return nil
}

func (c *Client) fetch(ctx context.Context, f Fetch) (channel.Content, *channel.Error) {
	at, failed := c.place(f, f.URL)
	if failed != nil {
		return channel.Content{}, failed
	}
	ctx, cancel := context.WithCancel(ctx)
	for range maxHops + 1 {
		res, failed := c.get(ctx, cancel, f, at)
		if failed != nil {
			cancel()
			return channel.Content{}, failed
		}
		if res.StatusCode == http.StatusOK {
			return channel.Content{
				ReadCloser: &content{c: c, ctx: ctx, cancel: cancel, body: res.Body, left: res.ContentLength},
				Size:       res.ContentLength, Type: res.Header.Get("Content-Type"),
			}, nil
		}
		_ = res.Body.Close() // its body is not the file
		next := res.Header.Get("Location")
		if res.StatusCode < 300 || res.StatusCode > 399 || next == "" {
			cancel()
			return channel.Content{}, c.withheld(f, res)
		}
		to, err := at.Parse(next)
		if err != nil {
			cancel()
			return channel.Content{}, Refuse("%s sends elsewhere for the file, to what is no address", c.name)
		}
		if at, failed = c.place(f, to.String()); failed != nil {
			cancel()
			failed.Reason = c.name + " sends elsewhere for the file: " + failed.Reason
			return channel.Content{}, failed
		}
	}
	cancel()
	return channel.Content{}, Refuse("%s sends from one address to the other for the file", c.name)
}

// Again converts the error of an idempotent request: an unknown outcome becomes not sent.
func Again(err error) error {
	if e, ok := errors.AsType[*channel.Error](err); ok && e.Outcome == channel.Ambiguous {
		again := *e
		again.Outcome = channel.NotSent
		return &again
	}
	return err
}

// place returns the URL from which to request a file, or an error if that is not allowed.
func (c *Client) place(f Fetch, text string) (*url.URL, *channel.Error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" {
		return nil, Refuse("the address of the file is none")
	}
	u.Fragment, u.RawFragment = "", ""
	if u.Scheme == c.base.Scheme && strings.EqualFold(u.Host, c.base.Host) {
		return u, nil
	}
	if u.Scheme != "https" || u.Port() != "" && u.Port() != "443" || !f.Hosts.has(u.Hostname()) {
		return nil, Refuse("the file is not at an address of %s", c.name)
	}
	if c.own() {
		// JoinPath would decode the escapes.
		escaped := c.base.EscapedPath() + path.Clean("/"+u.EscapedPath())
		there, err := url.Parse(escaped)
		if err != nil {
			return nil, Refuse("the address of the file is none")
		}
		own := *c.base
		own.Path, own.RawPath, own.RawQuery = there.Path, there.RawPath, u.RawQuery
		return &own, nil
	}
	return u, nil
}

// get requests a file. It waits until the response begins, with the time limit of other requests.
func (c *Client) get(ctx context.Context, cancel context.CancelFunc, f Fetch, at *url.URL) (*http.Response, *channel.Error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, Refuse("the address of the file is none")
	}
	req.Header.Set("User-Agent", "Sandjet/1")
	if strings.EqualFold(at.Host, c.base.Host) || f.Trusted.has(at.Hostname()) {
		maps.Copy(req.Header, f.Header)
	}
	late := time.AfterFunc(c.timeout, cancel)
	res, err := c.http.Do(req)
	if !late.Stop() && err != nil {
		return nil, &channel.Error{Outcome: channel.NotSent, Reason: c.name + " did not answer in time"}
	}
	if err != nil {
		return nil, c.unanswered(channel.NotSent, err)
	}
	return res, nil
}

// withheld returns the error for a response that is no file.
func (c *Client) withheld(f Fetch, res *http.Response) *channel.Error {
	a := Answer{Status: res.StatusCode, Header: res.Header}
	if f.Judge != nil {
		if failed := f.Judge(a); failed != nil {
			return failed
		}
	}
	e := c.ByStatus(a)
	if e == nil { // such as 204
		return Refuse("%s answered %s in place of the file", c.name, statusLine(a.Status))
	}
	if e.Outcome == channel.Ambiguous { // retrying a download does no harm
		e.Outcome = channel.NotSent
	}
	switch a.Status {
	case http.StatusNotFound, http.StatusGone:
		e.Reason = c.name + " has the file no more"
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Reason = c.name + " does not give the file to this channel's credential"
	}
	return e
}

// content is the body of a file. A premature end is an error.
type content struct {
	c      *Client
	ctx    context.Context //nolint:containedctx // io.Reader has no context parameter
	cancel context.CancelFunc
	body   io.ReadCloser
	left   int64 // bytes still expected; negative: unknown
	read   int64
}

// Read reads the next bytes. Errors other than io.EOF are a [*channel.Error].
func (r *content) Read(p []byte) (int, error) {
	late := time.AfterFunc(readStall, r.cancel)
	n, err := r.body.Read(p)
	inTime := late.Stop()
	r.read += int64(n)
	switch {
	case err == nil, err == io.EOF && (r.left < 0 || r.read == r.left):
		return n, err
	case !inTime:
		return n, &channel.Error{Outcome: channel.NotSent, Reason: fmt.Sprintf("nothing of the file came from %s for %s", r.c.name, readStall)}
	}
	return n, &channel.Error{Outcome: channel.NotSent, Reason: "the connection to " + r.c.name + " ended within the file",
		Cause: contextOnly(err)}
}

// Close ends the request.
func (r *content) Close() error {
	r.cancel()
	return r.body.Close()
}
