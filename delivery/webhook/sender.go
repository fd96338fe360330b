package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/schemas"
)

// Endpoints finds and marks the endpoints of accounts.
type Endpoints interface {
	// Get returns an endpoint, from memory. Codes: not_found, unavailable.
	Get(ctx context.Context, account schemas.AccountID, id schemas.EndpointID) (schemas.Endpoint, error)
	// Disable ends the deliveries to an endpoint until a person enables it again.
	Disable(ctx context.Context, account schemas.AccountID, id schemas.EndpointID, reason string) error
	// Failing notes since when deliveries fail, or that they do not any more. It writes nothing when that is
	// known already.
	Failing(ctx context.Context, account schemas.AccountID, id schemas.EndpointID, failing bool, now time.Time) error
}

// Defaults and limits of a [Sender].
const (
	DefaultTimeout = 15 * time.Second // of a try, from the first look at its name to the end of the answer
	DisableAfter   = 5 * 24 * time.Hour

	dialWithin    = 5 * time.Second
	readAtMost    = 64 << 10 // bytes of an answer
	keepAtMost    = 4 << 10  // bytes of an answer that are kept
	errorAtMost   = 512      // bytes
	headersAtMost = 64 << 10
	userAgent     = "Sandjet-Webhook/1"
)

// Sender posts deliveries to the endpoints of accounts. It implements [delivery.Sender] and is safe for concurrent use; its fields must
// not change after the first Send.
type Sender struct {
	Endpoints Endpoints
	Policy    Policy
	// Timeout bounds a try. 0: DefaultTimeout.
	Timeout time.Duration
	// Log may be nil.
	Log *slog.Logger

	once   sync.Once
	client *http.Client
	lanes  *lanes
	logs   sometimes.Counted // about records that cannot be read

	// Now is the time that requests are signed with. Nil: this process's clock, which receivers must agree with.
	Now func() time.Time

	// Of tests; nil: the system's.
	resolver  *net.Resolver
	tls       *tls.Config
	transport http.RoundTripper
}

var _ delivery.Sender = (*Sender)(nil)

// begin initialises the Sender, at its first use.
func (s *Sender) begin() {
	s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	s.lanes = newLanes()
	s.client = &http.Client{
		Transport:     s.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if s.transport == nil {
		s.client.Transport = s.newTransport()
	}
}

func (s *Sender) newTransport() *http.Transport {
	config := s.tls
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &http.Transport{
		Proxy:                  nil, // one would be dialled in place of the address that is checked
		DialContext:            dialer(s.Policy, s.resolver).DialContext,
		ForceAttemptHTTP2:      true, // a dialer of one's own turns it off otherwise
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    s.Timeout,
		ResponseHeaderTimeout:  s.Timeout,
		MaxResponseHeaderBytes: headersAtMost,
		DisableCompression:     true, // what is small on the way stays small here
		MaxIdleConnsPerHost:    commonLane,
		MaxIdleConns:           256,
		IdleConnTimeout:        time.Minute,
	}
}

// Close closes idle connections.
func (s *Sender) Close() {
	s.once.Do(s.begin)
	s.client.CloseIdleConnections()
}

// logUnread logs that the record of an endpoint cannot be read now. It logs one line per minute and endpoint, however many deliveries wait
// for it, with the number of lines left out; these are logged at debug level.
func (s *Sender) logUnread(ctx context.Context, d schemas.Delivery, err error) {
	level, attrs := slog.LevelWarn, []any{"endpoint", d.Endpoint, "error", err}
	switch leftOut, due := s.logs.Due(string(d.Account) + " " + string(d.Endpoint)); {
	case !due:
		level = slog.LevelDebug
	case leftOut > 0:
		attrs = append(attrs, "left_out", leftOut)
	}
	s.Log.Log(ctx, level, "endpoint record not readable yet", attrs...)
}

// Send makes one try.
func (s *Sender) Send(ctx context.Context, d schemas.Delivery) (schemas.DeliveryTry, delivery.Verdict) {
	s.once.Do(s.begin)
	none := schemas.DeliveryTry{}
	e, err := s.Endpoints.Get(ctx, d.Account, d.Endpoint)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return none, delivery.Verdict{Kind: delivery.Dropped, Reason: "its endpoint was removed"}
	case err != nil:
		s.logUnread(ctx, d, err)
		return none, delivery.Verdict{Kind: delivery.Busy}
	case e.Disabled:
		return none, delivery.Verdict{Kind: delivery.Stopped, Reason: "its endpoint is disabled: " + e.Reason}
	}
	lane, verdict := s.lanes.enter(ctx, laneKey{d.Account, d.Endpoint}, receiverOf(e.URL), cmp.Or(e.Concurrency, commonLane))
	if lane == nil {
		return none, verdict
	}
	try, verdict, o := s.post(ctx, e, d)
	pause := time.Duration(0)
	if try.Status == http.StatusTooManyRequests || try.Status == http.StatusServiceUnavailable {
		pause = verdict.After
	}
	s.lanes.leave(lane, o, time.Duration(try.Duration), pause)
	if o == unknown {
		return try, verdict
	}
	return try, s.mark(context.WithoutCancel(ctx), e, try, verdict)
}

// post sends a delivery and reads the answer.
func (s *Sender) post(ctx context.Context, e schemas.Endpoint, d schemas.Delivery) (schemas.DeliveryTry, delivery.Verdict, outcome) {
	began, now := time.Now(), s.Now().UTC()
	try := schemas.DeliveryTry{Time: now}
	fail := func(err error) (schemas.DeliveryTry, delivery.Verdict, outcome) {
		try.Error, try.Duration = explain(err, s.Timeout), schemas.Duration(time.Since(began))
		if ctx.Err() != nil {
			return try, delivery.Verdict{Kind: delivery.Failed}, unknown
		}
		return try, delivery.Verdict{Kind: delivery.Failed}, unanswered
	}
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	r, err := s.request(within, e, d, now)
	if err != nil {
		return fail(err)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it was read as far as it matters
	try.Status = answer.StatusCode
	// The status is the answer. A body that does not come does not make it another.
	body, _ := io.ReadAll(io.LimitReader(answer.Body, keepAtMost))
	io.Copy(io.Discard, io.LimitReader(answer.Body, readAtMost-keepAtMost)) //nolint:errcheck // so that the connection can be used again
	try.Response = strings.ToValidUTF8(string(body), "�")
	try.Duration = schemas.Duration(time.Since(began))
	verdict := judge(answer.StatusCode, answer.Header, s.Now())
	if verdict.Kind == delivery.Failed {
		return try, verdict, refused
	}
	return try, verdict, accepted
}

// request returns the HTTP request of a try, signed with the time now.
func (s *Sender) request(ctx context.Context, e schemas.Endpoint, d schemas.Delivery, now time.Time) (*http.Request, error) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, schemas.Invalidf("url", "is not one")
	case u.Scheme == "http" && !s.Policy.AllowHTTP:
		return nil, schemas.Errorf(schemas.Denied, "the endpoint's URL is not https")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, schemas.Errorf(schemas.Denied, "the endpoint's URL is neither https nor http")
	}
	u.User, u.Fragment = nil, ""
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(d.Body))
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "", "the endpoint's URL cannot be used", err)
	}
	if r.Header, err = Sign(d.ID, d.Body, now, e.Secrets); err != nil {
		return nil, err
	}
	if e.Legacy {
		keys := inForce(e.Secrets, now) // there is one, or Sign had failed
		// The header has room for one signature. While a rotation's overlap lasts the tries take turns, so that a receiver gets
		// the delivery by its second try whichever key it knows.
		r.Header.Set(HeaderLegacy, signLegacy(keys[d.Attempt%len(keys)], d.Body))
	}
	r.Header.Set("Content-Type", cmp.Or(e.ContentType, schemas.WebhookJSON))
	r.Header.Set("User-Agent", userAgent)
	return r, nil
}

// mark updates the endpoint's record by the result of a try.
func (s *Sender) mark(ctx context.Context, e schemas.Endpoint, try schemas.DeliveryTry, v delivery.Verdict) delivery.Verdict {
	disable := func(reason string) error {
		s.Log.Warn("webhook endpoint disabled", "account", e.Account, "endpoint", e.ID, "reason", reason)
		return s.Endpoints.Disable(ctx, e.Account, e.ID, reason)
	}
	var err error
	switch {
	case try.Status == http.StatusGone:
		if err = disable("it answered 410 Gone at " + try.Time.Format(time.RFC3339)); err != nil {
			v = delivery.Verdict{Kind: delivery.Failed} // the next try disables it
		}
	case v.Kind == delivery.Delivered && !e.FailingSince.IsZero():
		err = s.Endpoints.Failing(ctx, e.Account, e.ID, false, try.Time)
	case v.Kind == delivery.Failed && e.FailingSince.IsZero():
		err = s.Endpoints.Failing(ctx, e.Account, e.ID, true, try.Time)
	case v.Kind == delivery.Failed && try.Time.Sub(e.FailingSince) >= DisableAfter:
		err = disable("every delivery has failed since " + e.FailingSince.UTC().Format(time.RFC3339))
	}
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		s.Log.Warn("endpoint record not written", "account", e.Account, "endpoint", e.ID, "error", err)
	}
	return v
}

// judge returns the verdict for a response. It has no side effects.
func judge(status int, h http.Header, now time.Time) delivery.Verdict {
	switch {
	case status >= http.StatusOK && status < http.StatusMultipleChoices:
		return delivery.Verdict{Kind: delivery.Delivered}
	case status == http.StatusGone:
		return delivery.Verdict{Kind: delivery.Dropped, Reason: "the endpoint answered 410 Gone"}
	case strings.EqualFold(strings.TrimSpace(h.Get(HeaderDelivery)), "abort-message"):
		return delivery.Verdict{Kind: delivery.Dropped, Reason: "the receiver does not want it: status " +
			strconv.Itoa(status) + " with abort-message"}
	}
	return delivery.Verdict{Kind: delivery.Failed, After: retryAfter(h.Get("Retry-After"), now)}
}

// retryAfter returns the delay in the header of that name: seconds or a date. Invalid values and times in the past are 0.
func retryAfter(s string, now time.Time) time.Duration {
	const most = 365 * 24 * time.Hour // so that nothing overflows
	s = strings.TrimSpace(s)
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Duration(min(max(seconds, 0), int64(most/time.Second))) * time.Second
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), most)
}

// explain describes for the account why there is no response, without the URL, whose query may contain a secret.
func explain(err error, within time.Duration) string {
	if ours, ok := errors.AsType[*schemas.Error](err); ok {
		return ours.Message
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	text := err.Error()
	name, isName := errors.AsType[*net.DNSError](err)
	slow, isNet := errors.AsType[net.Error](err)
	switch {
	case isName && name.IsNotFound: // its own words show our resolver
		text = "there is no host " + name.Name
	case isName:
		text = "the name " + name.Name + " cannot be resolved now"
	case errors.Is(err, context.DeadlineExceeded), isNet && slow.Timeout():
		text = "there was no answer in time, which is " + within.String() + " at most"
	}
	if len(text) > errorAtMost {
		text = text[:errorAtMost]
	}
	return strings.ToValidUTF8(text, "�")
}
