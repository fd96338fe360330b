package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

type healthCommand struct {
	URL   string `name:"url" placeholder:"URL" group:"Target" help:"URL of a gateway, or of a worker's --metrics-listen. Default: the one that runs on the data folder."`
	Ready bool   `use:"" help:"Ask /readyz: whether it reaches the log and the log can write, not only whether the process lives."`

	dir string
}

// Help returns the detailed help, for kong.
func (*healthCommand) Help() string {
	return `Asks /healthz once, as a container's health check does. The exit code is 0 when it answers well, else 69.
With --ready it asks /readyz: use that where traffic is sent by the answer, /healthz where the process is
started again by it.

Examples:
  sandjet health --url http://127.0.0.1:8080
  sandjet health --ready --url http://127.0.0.1:8080`
}

// AfterApply is called by kong once everything is parsed.
func (c *healthCommand) AfterApply(root *cli) error {
	c.dir = clientDir(root.DataDir)
	return nil
}

// Run requests the health once and prints the answer.
func (c *healthCommand) Run(ctx context.Context, t terminal) error {
	base := c.URL
	if base == "" {
		e, err := dataDir(c.dir).running()
		if err != nil {
			return err
		}
		base = e.URL
	}
	path, word := "/healthz", "healthy"
	if c.Ready {
		path, word = "/readyz", "ready"
	}
	body, err := askHealth(ctx, base, path)
	if err != nil {
		return err
	}
	if t.json && json.Valid(body) {
		_, err = t.out.Write(append([]byte(strings.TrimSpace(string(body))), '\n'))
	} else {
		_, err = fmt.Fprintf(t.out, "%s is %s\n", base, word)
	}
	return wrapOutput(err)
}

// askHealth requests the health of a process once, without retries, so that a wrong address is an error at once. Codes: invalid (base is
// not a URL), unavailable. The error wraps errNotWell if the process answers that it is unhealthy.
func askHealth(ctx context.Context, base, path string) ([]byte, error) {
	const patience, most = 20 * time.Second, 64 << 10 // an address where nothing listens is reported at once
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	at, err := healthURL(base, path)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", at, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.Unavailable, "nothing answers at %s: is it running, and is the address right? (%v)", base, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err == nil && resp.StatusCode == http.StatusServiceUnavailable {
		return nil, fmt.Errorf("%s %w: %s", base, errNotWell, reasonIn(body))
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, schemas.Errorf(schemas.Unavailable, "%s%s answers %s: is the address right?", base, path, resp.Status)
	}
	return body, nil
}

// healthURL returns the URL of a path at a gateway. Code: invalid.
func healthURL(base, path string) (string, error) {
	at := strings.TrimRight(base, "/") + path
	if u, err := url.Parse(at); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", schemas.Invalidf("url", "%q is not a URL: write http://HOST:PORT", schemas.Quotable(base))
	}
	return at, nil
}

var errNotWell = schemas.Errorf(schemas.Unavailable, "is not well")

// reasonIn returns the reason that the body of an unhealthy answer gives.
func reasonIn(body []byte) string {
	var told struct {
		Error *schemas.Error `json:"error"`
	}
	if json.Unmarshal(body, &told) == nil && told.Error != nil {
		return printable(told.Error.Message)
	}
	return printable(strings.TrimSpace(string(body)))
}
