package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/durable"
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Records is what the gateway asks of the records. It must answer without a round trip, or nearly
// so: it is asked for each request.
type Records interface {
	admission.Records
	// Authenticate finds the account of a key. Codes: denied for an unknown one.
	Authenticate(ctx context.Context, key string) (schemas.AccountID, error)
}

// Endpoints keeps the webhook endpoints of all accounts. Its methods may be called from many goroutines.
// Code not_found: there is none of that id, or it is another account's.
type Endpoints interface {
	// Endpoints lists those of an account by id. It must answer without a round trip, or nearly so.
	Endpoints(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error)
	Endpoint(ctx context.Context, a schemas.AccountID, id schemas.EndpointID) (schemas.Endpoint, error)
	// PutEndpoint adds one. Code: exhausted when the account has as many as it may.
	PutEndpoint(ctx context.Context, e schemas.Endpoint) error
	// UpdateEndpoint changes one by change, which may be called several times; its error is returned.
	UpdateEndpoint(ctx context.Context, a schemas.AccountID, id schemas.EndpointID, change func(*schemas.Endpoint) error) (schemas.Endpoint, error)
	DeleteEndpoint(ctx context.Context, a schemas.AccountID, id schemas.EndpointID) error
}

// Options are the parts and settings of a [Gateway]. Bus and Records must be there.
type Options struct {
	Bus     *streams.Bus
	Records Records
	Log     *slog.Logger // nil: silent
	Version string       // shown by /healthz and the OpenAPI document

	// Serving knows which providers are served: calls of others are refused. Nil: all are taken.
	Serving admission.Serving

	// MaxWait cuts ?wait=. Default [DefaultMaxWait].
	MaxWait time.Duration
	// Registry takes the gateway's metrics and is shown at /metrics with whatever else was
	// registered with it. Default: one of its own.
	Registry *prometheus.Registry
	// MetricsElsewhere says that whoever runs the gateway shows the registry elsewhere: /metrics is then not there. Otherwise
	// anybody sees it unless there is an administrator or open signup; then the administrator does.
	MetricsElsewhere bool
	// Providers are those whose queues /metrics measures.
	Providers []string
	// Origins are the browser origins, such as https://app.example.com, that may use the API and
	// open WebSockets. Empty: only pages of the gateway's own host may open WebSockets, and no
	// other origin may call.
	Origins []string
	// Tools is what GET /v1/tools answers: the definitions to show to a model in a dialect. Nil:
	// the route answers unsupported.
	Tools func(schemas.Dialect) (any, error)
	// AgentTools is what GET /accounts/{account}/agents/{id}/tools answers: the definitions of what an agent
	// has, in a format ("": the default) and a dialect. Nil: the route answers unsupported.
	AgentTools func(e schemas.Exposure, format string, d schemas.Dialect) (any, error)
	// Endpoints keeps the webhook endpoints. Nil: their routes answer unsupported, and appended
	// events are delivered to nobody.
	Endpoints Endpoints
	// Accounts keeps the accounts and their collections. Nil: their routes answer unsupported.
	Accounts Accounts
	// NATS issues credentials for the accounts' NATS clients. Nil: its route answers unsupported.
	NATS NATSAccess
	// NATSURL is where those clients reach the server, without credentials; empty where that is not known.
	NATSURL string
	// AdminKeyHash is the SHA-256, in hex, of the key that may make, list and change accounts. Empty: none.
	AdminKeyHash string
	// OpenSignup lets anybody make accounts, five an hour from one address. Behind a proxy that is the
	// proxy's.
	OpenSignup bool
	// OwnAccount is made at every start, with its key. It is not deleted and gets no other key here.
	OwnAccount schemas.AccountID
	// AllowInsecureWebhooks lets endpoints be added whose URL begins with http://, for development.
	AllowInsecureWebhooks bool
	// Keys sign attach tokens. Nil: none are made or taken.
	Keys Keys
	// Limits bound what clients hold at the same time.
	Limits Limits
	// Grace bounds the end of [Gateway.Run]: how long requests in hand may take. Default 10 s.
	Grace time.Duration
	// DurableStreams serves durable streams under /v1/stream. Without it their routes answer not_found; what is stored stays stored.
	DurableStreams bool
	// DurableWait is how long a reader of a durable stream is kept waiting by a long poll. Default 20 s.
	DurableWait time.Duration
	// Heartbeat is the longest silence of an event stream. Default 10 s.
	Heartbeat time.Duration
	// Stall is how long one write to a client may stand still before the client is dropped.
	// Default 10 s.
	Stall time.Duration
	// ReplayBytes is how much of the conversations is kept in memory for readers, about. Default
	// [replay.DefaultBudget].
	ReplayBytes int
	// Disk says that there is little room for workspaces beside this gateway, empty while there is enough: /readyz shows
	// it. Nil: no worker is beside it.
	Disk func() string
	// ReplayCompression lets WebSockets agree on compression of what is replayed.
	ReplayCompression bool
}

// Gateway is the HTTP edge. It is an [http.Handler]; its methods may be called from many
// goroutines.
type Gateway struct {
	Options
	handler  http.Handler
	metrics  *metrics
	upgrades *sockets
	hub      *replay.Hub // made by live
	lively   sync.Once
	signups  *signups
	counters *counters
	durable  *durable.Handler // nil: off

	// draining ends when the gateway is told to stop: what waits or streams then ends by itself.
	draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	drain    context.CancelFunc
	sockets  sync.WaitGroup // hijacked: net/http does not wait for them
}

const (
	defaultGrace     = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
	defaultStall     = 10 * time.Second
)

// New makes a gateway. It starts nothing: [Gateway.Run] serves it, or any http.Server, which then
// should call [Gateway.Drain] before it shuts down.
func New(o Options) *Gateway {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	o.MaxWait = orDefault(o.MaxWait, DefaultMaxWait)
	o.Grace = orDefault(o.Grace, defaultGrace)
	o.Heartbeat = orDefault(o.Heartbeat, defaultHeartbeat)
	o.Stall = orDefault(o.Stall, defaultStall)
	g := &Gateway{Options: o}
	g.draining, g.drain = context.WithCancel(context.Background())
	g.upgrades = newSockets(o)
	g.signups = newSignups()
	g.counters = newCounters(o.Limits)
	g.metrics = newMetrics(o.Registry, o.Bus, o.Providers, g.counters)
	if o.DurableStreams {
		g.durable = durable.New(durable.Options{
			Bus: o.Bus, Draining: g.draining, LongPoll: o.DurableWait, Heartbeat: o.Heartbeat, Stall: o.Stall, Read: readHeld,
		})
	}
	g.handler = g.middleware(g.mux())
	return g
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// Drain tells every request that waits or streams to end: waits answer with what is known, event
// streams end, sockets get bye and are closed. /readyz answers 503 from then on. It returns at
// once; what is still asked is still answered.
func (g *Gateway) Drain() { g.drain() }

// Run serves HTTP/1.1, and HTTP/2 for clients and proxies that begin with it, on l until ctx ends, then drains for at most Grace and returns nil. It closes l. The
// gateway cannot be run again.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	const (
		headerTimeout = 10 * time.Second
		idleTimeout   = 2 * time.Minute
		headerBytes   = 64 << 10
	)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)            // WebSockets are upgraded from it
	protocols.SetUnencryptedHTTP2(true) // TLS is a proxy's here, which may speak it behind too
	l = LimitConnections(l, g.connections())
	srv := &http.Server{
		Protocols: protocols, HTTP2: http2Limits(), ConnContext: withResets,
		Handler: endResetters(g), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(g.Log.Handler(), slog.LevelDebug), // broken handshakes and such: the clients' affair
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		g.Drain()
		g.sockets.Wait()
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	g.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		g.Log.Warn("requests were cut off: they outlived the grace", "grace", g.Grace)
		err = srv.Close()
	}
	if serr := <-failed; err == nil && !errors.Is(serr, http.ErrServerClosed) {
		err = serr
	}
	g.sockets.Wait()
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", l.Addr(), err)
	}
	return nil
}

// comeBack is how long a client is asked to wait before it reconnects, spread so that the clients
// of a gateway that stops do not all arrive at the next one together.
func comeBack() time.Duration {
	const least, spread = 500 * time.Millisecond, 4 * time.Second
	return least + wait.Upto(spread)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
