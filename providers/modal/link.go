package modal

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/cloud"
)

const (
	allTries    = 60 * time.Second // of a request with all its tries, where its caller sets no other
	eachTry     = 20 * time.Second // of one
	longestRPC  = 16 << 20         // bytes of a message
	windowBytes = 1 << 20          // of a stream that are not read: a writer that fills it waits
	mostHint    = 24 * time.Hour   // that the service may want to be left alone
)

// link is a connection to one service that adds to each request credentials, a timeout and retries, and converts errors to a [cloud.Error]
// without secrets. The vendor's client uses it: because it finds no gRPC status in these errors it retries nothing itself.
type link struct {
	retries []cloud.Retry // the first row that fits holds
	slow    []string      // routes that take as long as their callers say
	// sign returns the headers of a request, and what of them is secret. Fresh wants new ones: the last were refused.
	sign func(ctx context.Context, route string, fresh bool) (headers, secrets []string, err error)
	log  *slog.Logger
}

// dial returns a connection to an address, which connects lazily. Plain disables TLS, for a service on this host.
func (l *link) dial(at *url.URL, plain bool) (*grpc.ClientConn, error) {
	port := at.Port()
	if port == "" {
		port = "443"
	}
	safe := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	if plain {
		safe = insecure.NewCredentials()
	}
	return grpc.NewClient(at.Hostname()+":"+port,
		grpc.WithTransportCredentials(safe), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithUserAgent("sandjet"),
		grpc.WithStaticStreamWindowSize(windowBytes), grpc.WithStaticConnWindowSize(4*windowBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(longestRPC), grpc.MaxCallSendMsgSize(longestRPC)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream), grpc.WithStatsHandler(watch{}))
}

// flight records whether a request was sent and answered.
type flight struct{ sent, answered atomic.Bool }

type flightKey struct{}

// watch records in a flight when its request is sent and answered.
type watch struct{}

func (watch) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (watch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (watch) HandleConn(context.Context, stats.ConnStats)                       {}

func (watch) HandleRPC(ctx context.Context, s stats.RPCStats) {
	f, ok := ctx.Value(flightKey{}).(*flight)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.OutHeader:
		f.sent.Store(true)
	case *stats.InTrailer: // without it the connection broke, or this side cancelled
		f.answered.Store(true)
	}
}

// unary sends a request and waits for its answer, with retries by the table.
func (l *link) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, send grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	route, each := path.Base(method), time.Duration(0)
	if !slices.Contains(l.slow, route) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, allTries)
		defer cancel()
		each = eachTry
	}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 3 * time.Second}
	fresh := false
	for n := 1; ; n++ {
		err := l.once(ctx, each, route, fresh, func(ctx context.Context) error { return send(ctx, method, req, reply, cc, opts...) })
		if err == nil {
			return nil
		}
		var e *cloud.Error
		if !errors.As(err, &e) || ctx.Err() != nil {
			return err
		}
		if e.Status == http.StatusUnauthorized && e.Route == route && !fresh && l.sign != nil {
			fresh = true // it was not carried out
			continue
		}
		if !cloud.Again(l.retries, e, n) {
			return err
		}
		pause := max(again.After(n), e.RetryAfter)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
			return err // the caller learns how long to wait
		}
		l.log.Debug("request failed, retrying", "route", route, "attempt", n, "error", err)
		if !wait.Sleep(ctx, pause) {
			return err
		}
	}
}

// once sends a request without retries.
func (l *link) once(ctx context.Context, each time.Duration, route string, fresh bool, send func(ctx context.Context) error) error {
	if each > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, each)
		defer cancel()
	}
	headers, secrets, err := l.headers(ctx, route, fresh)
	if err != nil {
		return err
	}
	f := &flight{}
	ctx = context.WithValue(metadata.AppendToOutgoingContext(ctx, headers...), flightKey{}, f)
	return codedError(route, f, send(ctx), secrets)
}

func (l *link) headers(ctx context.Context, route string, fresh bool) (headers, secrets []string, err error) {
	if l.sign == nil {
		return nil, nil, nil
	}
	return l.sign(ctx, route, fresh)
}

// stream begins a stream, without retries: its reader knows at which position to resume.
func (l *link) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, begin grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	route := path.Base(method)
	headers, secrets, err := l.headers(ctx, route, false)
	if err != nil {
		return nil, err
	}
	f := &flight{}
	s, err := begin(context.WithValue(metadata.AppendToOutgoingContext(ctx, headers...), flightKey{}, f), desc, cc, method, opts...)
	if err != nil {
		return nil, codedError(route, f, err, secrets)
	}
	return &codedStream{s, route, f, secrets}, nil
}

// codedStream is a stream whose errors are converted by codedError.
type codedStream struct {
	grpc.ClientStream
	route   string
	flight  *flight
	secrets []string
}

func (s *codedStream) SendMsg(m any) error { return s.codedError(s.ClientStream.SendMsg(m)) }
func (s *codedStream) RecvMsg(m any) error { return s.codedError(s.ClientStream.RecvMsg(m)) }

func (s *codedStream) codedError(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return codedError(s.route, s.flight, err, s.secrets)
}

// codedError converts an error of a request to a [cloud.Error], unless it is one.
func codedError(route string, f *flight, err error, secrets []string) error {
	var e *cloud.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	said := status.Convert(err)
	message := cloud.Clean(said.Message(), secrets...)
	if !f.answered.Load() {
		cause := err
		if said.Code() == codes.Canceled {
			cause = context.Canceled
		} else if said.Code() == codes.DeadlineExceeded {
			cause = context.DeadlineExceeded
		}
		return cloud.Lost(route, message, f.sent.Load(), cause)
	}
	e = &cloud.Error{Route: route, Status: statusOf(said.Code()), Kind: said.Code().String(), Message: message, Sent: true}
	for _, detail := range said.Details() {
		if policy, ok := detail.(*pb.RPCRetryPolicy); ok {
			e.RetryAfter = hint(policy.GetRetryAfterSecs())
		}
	}
	return e
}

// hint returns the delay that the service asks for before a retry; seconds may be invalid.
func hint(seconds float32) time.Duration {
	if !(seconds > 0) { // not a number
		return 0
	}
	return time.Duration(min(float64(seconds), mostHint.Seconds()) * float64(time.Second))
}

// statuses are those of HTTP that mean the same, so that what is said of services is said in one place.
var statuses = map[codes.Code]int{ //nolint:gochecknoglobals // a table that nothing changes
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.Aborted:            http.StatusConflict,
	codes.FailedPrecondition: http.StatusPreconditionFailed,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
}

func statusOf(c codes.Code) int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// token caches the short-lived token that the control plane issues for the credentials. It is safe for concurrent use.
type token struct {
	fetch func(ctx context.Context) (string, error)

	mu   sync.Mutex
	text string
	got  time.Time
}

// tokenLife is after how long a new one is asked for. Its own expiry is not read: the clocks may differ, and a token that is refused is
// replaced.
const tokenLife = 10 * time.Minute

// get returns the token. It requests a new one if there is none or, with fresh, if the last was refused.
func (t *token) get(ctx context.Context, fresh bool) (string, error) {
	t.mu.Lock()
	text, got := t.text, t.got
	t.mu.Unlock()
	if text != "" && !fresh && time.Since(got) < tokenLife {
		return text, nil
	}
	anew, err := t.fetch(ctx)
	if err != nil {
		var e *cloud.Error
		if text != "" && !fresh && errors.As(err, &e) && e.Status != http.StatusUnauthorized && e.Status != http.StatusForbidden {
			return text, nil // the service is busy, and the last may do
		}
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text, t.got = anew, time.Now()
	return anew, nil
}
