package chatapi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
)

// maxAfter limits the delay that a service can request, so that no duration overflows.
const maxAfter = 30 * 24 * time.Hour

// ByStatus returns the error for a response's status, for services without a table of their own; nil for a success.
func (c *Client) ByStatus(a Answer) *channel.Error {
	e := &channel.Error{Status: a.Status, Reason: fmt.Sprintf("%s answered %s", c.name, statusLine(a.Status))}
	switch {
	case a.Status >= 200 && a.Status <= 299:
		return nil
	case a.Status == http.StatusTooManyRequests:
		e.Outcome, e.After, e.Of = channel.Limited, RetryAfter(a.Header, c.now()), channel.PerDestination
	case a.Status == http.StatusUnauthorized:
		e.Outcome, e.Credential = channel.Refused, true
	case a.Status == http.StatusRequestTimeout, a.Status == http.StatusMisdirectedRequest, a.Status == http.StatusTooEarly:
		e.Outcome = channel.NotSent
	case a.Status >= 500:
		e.Outcome = channel.Ambiguous
	default: // also redirects, which are not followed
		e.Outcome = channel.Refused
	}
	return e
}

func statusLine(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// NotUnderstood returns the error for a successful response with an invalid body: the message may have arrived.
func (c *Client) NotUnderstood(a Answer) *channel.Error {
	return &channel.Error{Outcome: channel.Ambiguous, Status: a.Status,
		Reason: fmt.Sprintf("%s answered %s, and what it said is not understood", c.name, statusLine(a.Status))}
}

// Refuse returns the error for a message that cannot be sent.
func Refuse(format string, args ...any) *channel.Error {
	return &channel.Error{Outcome: channel.Refused, Reason: fmt.Sprintf(format, args...)}
}

// unanswered returns the error for a request without a response. It contains no address, because addresses contain tokens.
func (c *Client) unanswered(o channel.Outcome, err error) *channel.Error {
	e := &channel.Error{Outcome: o}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	name, isName := errors.AsType[*net.DNSError](err)
	slow, isNet := errors.AsType[net.Error](err)
	_, isDial := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, context.Canceled):
		e.Reason, e.Cause = "the request to "+c.name+" was ended before its answer", context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason, e.Cause = c.name+" did not answer in time", context.DeadlineExceeded
	case isNet && slow.Timeout():
		e.Reason = c.name + " did not answer in time"
	case isName:
		e.Reason = fmt.Sprintf("%s cannot be reached: the name %s cannot be resolved", c.name, name.Name)
	case isCertificate(err):
		e.Reason, e.Cause = c.name+" is not who answers at its address", err
	case isDial, o == channel.NotSent:
		e.Reason, e.Cause = c.name+" cannot be reached", err
	default:
		e.Reason, e.Cause = "the connection to "+c.name+" ended before its answer", err
	}
	return e
}

func isCertificate(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return authority || host || invalid
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// cut returns the error for a response whose status arrived, but not its whole body. If the status is not a success, that is certain, but
// details in the body may be missing.
func (c *Client) cut(a Answer, err error) *channel.Error {
	e := c.ByStatus(a)
	switch {
	case e == nil:
		e = &channel.Error{Outcome: channel.Ambiguous, Status: a.Status,
			Reason: fmt.Sprintf("%s answered %s, and the connection ended within the answer", c.name, statusLine(a.Status))}
	case e.Outcome == channel.Refused && !e.Credential:
		e.Outcome = channel.NotSent
	}
	if isContext(err) {
		e.Cause = contextCause(err)
	}
	return e
}

func contextCause(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return context.DeadlineExceeded
}

// RetryAfter returns the delay in the header of that name: seconds, possibly with a fraction, or a date. Invalid values and times in the
// past are 0.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		return Seconds(seconds)
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxAfter)
}

// Seconds returns a delay that a service states in seconds, rounded up to milliseconds. Invalid numbers are 0.
func Seconds(s float64) time.Duration {
	if math.IsNaN(s) || s <= 0 {
		return 0
	}
	if s >= maxAfter.Seconds() {
		return maxAfter
	}
	return time.Duration(math.Ceil(s*1000)) * time.Millisecond
}
