package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// shortestSecret is the minimal length of a secret that is replaced: a shorter one would be found in any text.
const shortestSecret = 8

// longestMessage is the maximal length of a service's message in an error, in bytes.
const longestMessage = 300

// Error is the error of a request that was refused or got no response. Its text contains no secret.
type Error struct {
	Route      string
	Status     int           // of the response; 0: there was none, or it broke off
	Kind       string        // the service's own error code, such as not_found; empty: none
	Message    string        // the service's message, for people
	RetryAfter time.Duration // the requested delay before a retry; 0: none
	Sent       bool          // the request may have arrived; false: it certainly did not
	Err        error         // why there is no response
}

func (e *Error) Error() string {
	if e.Status == 0 && e.Kind == "" {
		return e.Route + ": " + e.Message
	}
	return fmt.Sprintf("%s: %d %s%s", e.Route, e.Status, e.Kind, prefixed(": ", e.Message))
}

func prefixed(with, text string) string {
	if text == "" {
		return ""
	}
	return with + text
}

func (e *Error) Unwrap() error { return e.Err }

// StatusOf returns the HTTP status that err reports; 0 if there is none.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// KindOf returns the service's own error code in err; empty if there is none.
func KindOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// Wait returns how long the service asks to wait before a retry; 0 if err does not say.
func Wait(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// codes maps the status of a response to the code of an operation that has not begun.
var codes = map[int]schemas.Code{ //nolint:gochecknoglobals // a table that nothing changes
	http.StatusMovedPermanently:      schemas.Unsupported, // the address is a setting of the operator, as below
	http.StatusFound:                 schemas.Unsupported,
	http.StatusSeeOther:              schemas.Unsupported,
	http.StatusTemporaryRedirect:     schemas.Unsupported,
	http.StatusPermanentRedirect:     schemas.Unsupported,
	http.StatusBadRequest:            schemas.Unsupported, // caused by the operator's settings: the callers' values were checked before
	http.StatusUnprocessableEntity:   schemas.Unsupported,
	http.StatusUnauthorized:          schemas.Denied,
	http.StatusForbidden:             schemas.Denied,
	http.StatusNotFound:              schemas.NotFound,
	http.StatusGone:                  schemas.NotFound,
	http.StatusConflict:              schemas.Conflict,
	http.StatusTooManyRequests:       schemas.Exhausted,
	http.StatusInsufficientStorage:   schemas.Exhausted,
	http.StatusPaymentRequired:       schemas.Exhausted,
	http.StatusRequestEntityTooLarge: schemas.Unsupported,
}

// Explain maps an error of this package to one with a code, for an operation that has not begun. Service is the service's name for people.
// Errors of the context stay as they are.
func Explain(op, service string, err error) error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &e):
		return err
	case !errors.As(err, &e):
		return err
	}
	code, known := codes[e.Status]
	if !known {
		code = schemas.Unavailable
	}
	message := service + " does not do it: " + e.Message
	switch {
	case code == schemas.Denied:
		message = service + " refuses the credentials of this worker: \"sandjet doctor\" explains"
	case code == schemas.Exhausted && e.RetryAfter > 0:
		message = fmt.Sprintf("%s wants to be asked again in %s: %s", service, e.RetryAfter, e.Message)
	case e.Status == 0:
		message = service + " does not answer"
	}
	return &schemas.Error{Code: code, Op: op, Message: message, Err: err, RetryAfter: e.RetryAfter}
}

// broken returns the error for a request without a complete answer.
func (c *Client) broken(call Call, sent bool, err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok { // its text contains the whole address
		err = at.Err
	}
	return Lost(call.route(), c.clean(call, err.Error()), sent, err)
}

// quiet wraps an error for errors.Is and errors.As without showing its text, which may contain a secret.
type quiet struct{ err error }

func (q quiet) Error() string        { return "the connection failed" }
func (q quiet) Is(target error) bool { return errors.Is(q.err, target) }

// refused returns the error for an answer that is no success.
func (c *Client) refused(call Call, res *http.Response, text []byte) error {
	e := &Error{Route: call.route(), Status: res.StatusCode, Sent: true, RetryAfter: retryAfter(res.Header, time.Now())}
	var said struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
		Kind    string          `json:"error_code"`
		Error   json.RawMessage `json:"error"`
	}
	if to, err := res.Location(); err == nil && res.StatusCode < 400 {
		e.Message = c.clean(call, fmt.Sprintf("it redirects to %s://%s, which is not followed, for the request has credentials: "+
			"set the address of the service to the one that answers itself", to.Scheme, to.Host))
		return e
	}
	err := json.Unmarshal(text, &said)
	if said.Message == "" && len(said.Error) > 0 { // some services nest all fields in "error", where others have a text
		_ = json.Unmarshal(said.Error, &said)
	}
	if err == nil && said.Message != "" {
		e.Message, e.Kind = said.Message, said.Kind
		if word := ""; e.Kind == "" && json.Unmarshal(said.Code, &word) == nil {
			e.Kind = word // some have a number here, which repeats the status
		}
	} else {
		e.Message = string(text)
	}
	e.Message, e.Kind = c.clean(call, e.Message), c.clean(call, e.Kind)
	return e
}

// retryAfter returns the delay that the header Retry-After asks for (seconds or a date), at most a day; 0 without it.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 24 * time.Hour
	text := h.Get("Retry-After")
	if s, err := strconv.Atoi(text); err == nil {
		return time.Duration(min(max(s, 0), int(most.Seconds()))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}

// Clean returns the beginning of a text on one line, without the secrets of the client's requests. It is for texts from elsewhere than an
// HTTP answer.
func (c *Client) Clean(text string) string { return c.clean(Call{}, text) }

// clean returns the beginning of a text on one line, without the secrets of the client and the call.
func (c *Client) clean(call Call, text string) string {
	var secrets []string
	for _, header := range []http.Header{c.Auth, call.Auth} {
		for _, values := range header {
			for _, value := range values {
				secrets = append(append(secrets, strings.Fields(value)...), value) // a scheme such as Bearer, and the secret
			}
		}
	}
	return Clean(text, secrets...)
}

// Clean returns the beginning of a service's message on one line, without secrets. Secrets shorter than eight bytes are ignored.
func Clean(text string, secrets ...string) string {
	for _, secret := range secrets {
		if len(secret) >= shortestSecret {
			text = strings.ReplaceAll(text, secret, redacted)
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), longestMessage)], "")
}

// Lost returns the error for a request that got no answer. Sent says that the request may have arrived.
func Lost(route, message string, sent bool, err error) *Error {
	return &Error{Route: route, Sent: sent, Message: message, Err: quiet{err}}
}
