package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// transport sends requests to a gateway. It has the client's settings, with defaults, from when a part of the client was taken.
type transport struct {
	http      *http.Client
	pauses    time.Duration // the first pause before another try
	patience  time.Duration
	warned    func(text string) // or nil
	base, key string
}

func (c *Client) transport() transport {
	t := transport{http: c.HTTP, pauses: c.Pause, patience: c.Patience, warned: c.Warned, base: c.base, key: c.key}
	if t.http == nil {
		t.http = &http.Client{}
	}
	if t.pauses <= 0 {
		t.pauses = firstPause
	}
	if t.patience <= 0 {
		t.patience = firstPatience
	}
	return t
}

// forever is the patience of requests that are retried until their context ends.
const forever = time.Duration(math.MaxInt64)

// ask sends in, as JSON unless it is nil, and retries temporary failures until the client's patience ends. It decodes the answer into out
// unless that is nil. The request must be idempotent.
func (t transport) ask(ctx context.Context, method, path string, in, out any) error {
	return t.exchange(ctx, t.patience, method, path, in, out)
}

// keepAsking is ask that retries until ctx ends.
func (t transport) keepAsking(ctx context.Context, method, path string, in, out any) error {
	return t.exchange(ctx, forever, method, path, in, out)
}

// postOnce posts without retries: after a temporary failure, it is unknown whether the request was carried out.
func (t transport) postOnce(ctx context.Context, path string, in, out any) error {
	return t.exchange(ctx, 0, http.MethodPost, path, in, out)
}

func (t transport) exchange(ctx context.Context, patience time.Duration, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return schemas.Wrap(schemas.Invalid, "encode", "the request cannot be written as JSON", err)
		}
	}
	_, b, err := t.answer(ctx, patience, method, path, body, nil)
	if err != nil || out == nil {
		return err
	}
	return decodeAnswer(method+" "+path, b, out)
}

// sendBytes sends a body with a content type, and retries temporary failures until the client's patience ends. The request must be
// idempotent.
func (t transport) sendBytes(ctx context.Context, method, path, kind string, body []byte, out any) error {
	_, b, err := t.answer(ctx, t.patience, method, path, body, http.Header{"Content-Type": {kind}})
	if err != nil {
		return err
	}
	return decodeAnswer(method+" "+path, b, out)
}

func decodeAnswer(of string, b []byte, out any) error {
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", of, err)
	}
	return nil
}

// answer sends a request, and retries temporary failures until one succeeds or patience has passed; 0 means no retries. It returns the
// status and body of the successful response.
func (t transport) answer(ctx context.Context, patience time.Duration, method, path string, body []byte, header http.Header) (
	int, []byte, error,
) {
	began := time.Now()
	for try := 0; ; try++ {
		status, b, passing, err := t.once(ctx, method, path, body, header)
		if err == nil || !passing || time.Since(began) >= patience {
			return status, b, err
		}
		if perr := t.pause(ctx, try); perr != nil {
			return 0, nil, fmt.Errorf("%w (last failure: %w)", perr, err)
		}
	}
}

// once sends a request once; again reports that a failure is temporary.
func (t transport) once(ctx context.Context, method, path string, body []byte, header http.Header) (
	status int, _ []byte, again bool, _ error,
) {
	resp, err := t.do(ctx, method, path, body, header)
	if err != nil {
		return 0, nil, ctx.Err() == nil && schemas.CodeOf(err) == schemas.Unavailable, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := readAnswer(resp.Body)
	if err != nil {
		return 0, nil, ctx.Err() == nil && !errors.Is(err, errAnswer), err
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		err := problem(resp.StatusCode, b)
		return resp.StatusCode, nil, passing(resp.StatusCode) && !concernsRequest(err), err
	}
	return resp.StatusCode, b, false, nil
}

// errAnswer is an answer of more than [mostAnswer] bytes.
var errAnswer error = schemas.Errorf(schemas.Exhausted,
	"the answer has more than 16 MiB, which this client does not take: ask for less at once, by a limit or by single records")

// readAnswer reads a whole body. A body larger than [mostAnswer] is an error, since a part of it would not be JSON.
func readAnswer(body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, mostAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(b) > mostAnswer:
		return nil, errAnswer
	}
	return b, nil
}

// do sends one request. An error means that no response was received.
func (t transport) do(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	all := http.Header{}
	if body != nil {
		all.Set("Content-Type", "application/json")
	}
	maps.Copy(all, header)
	return t.send(ctx, method, path, bytes.NewReader(body), all)
}

// send is [transport.do] with a body that can be read only once.
func (t transport) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, body)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "request", "the gateway's URL is malformed", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+t.key)
	resp, err := t.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, ctx.Err())
		}
		return nil, schemas.Wrap(schemas.Unavailable, method+" "+path, "the gateway cannot be reached", err)
	}
	if text := resp.Header.Get("Sandjet-Warning"); text != "" && t.warned != nil {
		t.warned(text)
	}
	return resp, nil
}

// pause sleeps before the next try, for a random time whose maximum doubles with each try. It returns an error if ctx ends first.
func (t transport) pause(ctx context.Context, try int) error {
	most := t.pauses
	for range min(try, 16) {
		most = min(2*most, longestPause)
	}
	timer := time.NewTimer(rand.N(most) + time.Millisecond) // spreading needs no secrecy
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gave up: %w", ctx.Err())
	}
}

// concernsRequest reports whether an error of the code unavailable is about a field of the request, such as a sandbox whose provider no
// worker serves: retrying does not help then.
func concernsRequest(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Code == schemas.Unavailable && e.Field != ""
}

// problem returns the error in the body of an error response.
func problem(status int, body []byte) error {
	var p struct {
		Error  *schemas.Error   `json:"error"`
		Errors []*schemas.Error `json:"errors"`
	}
	if json.Unmarshal(body, &p) == nil && p.Error != nil && p.Error.Code != "" {
		p.Error.Errors = p.Errors
		return p.Error
	}
	code := schemas.Internal
	switch {
	case passing(status):
		code = schemas.Unavailable
	case status == http.StatusNotFound:
		code = schemas.NotFound
	case status < http.StatusInternalServerError:
		code = schemas.Invalid
	}
	return schemas.Errorf(code, "the server answered %d without saying why: is the URL a gateway's?", status)
}

func passing(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
