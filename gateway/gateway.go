package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/gateway/accounts"
	"github.com/sandjet/sandjet/gateway/approvals"
	"github.com/sandjet/sandjet/gateway/artifacts"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/channels"
	"github.com/sandjet/sandjet/gateway/chats"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/durable"
	"github.com/sandjet/sandjet/gateway/e2b"
	"github.com/sandjet/sandjet/gateway/files"
	"github.com/sandjet/sandjet/gateway/inbound"
	"github.com/sandjet/sandjet/gateway/instances"
	"github.com/sandjet/sandjet/gateway/jobs"
	"github.com/sandjet/sandjet/gateway/live"
	"github.com/sandjet/sandjet/gateway/mcpapi"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/sandboxapi"
	"github.com/sandjet/sandjet/gateway/skills"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/gateway/webhooks"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Records is the part of the records that the gateway needs. It must answer nearly always without a round trip, since each request uses
// it.
type Records interface {
	admission.Records
	// Authenticate finds the account of a key. Codes: denied for an unknown one.
	Authenticate(ctx context.Context, key string) (schemas.AccountID, error)
}

// Options are the dependencies and settings of a [Gateway]. Bus and Records are required.
type Options struct {
	Bus     *streams.Bus
	Records Records
	Log     *slog.Logger // nil: silent
	Version string       // shown by /healthz and the OpenAPI document

	// Serving knows which providers are served: calls of others are refused. Nil: all are taken.
	Serving admission.Serving

	// MaxWait cuts ?wait=. Default [web.DefaultMaxWait].
	MaxWait time.Duration
	// Registry is where the gateway registers its metrics; /metrics serves all metrics in it. Default: a new one.
	Registry *prometheus.Registry
	// MetricsElsewhere says that the program serves the registry on another listener: /metrics is then not served. Otherwise every client
	// may read it, unless there is an administrator or open signup; then only the administrator.
	MetricsElsewhere bool
	// Providers are those whose queues /metrics measures.
	Providers []string
	// CanPause reports whether instances of a provider can be paused. Nil: all can, as far as the gateway knows.
	CanPause func(provider string) bool
	// Origins are the browser origins, such as https://app.example.com, that may use the API and
	// open WebSockets. Empty: only pages of the gateway's own host may open WebSockets, and no
	// other origin may call.
	Origins []string
	// Tools returns the response to GET /v1/tools: the definitions of tools in a dialect, for a model's API. Nil: the route answers
	// unsupported.
	Tools func(schemas.Dialect) (any, error)
	// AgentTools returns the response to GET /v1/accounts/{account}/agents/{id}/tools: the definitions of an agent's tools, in a format
	// ("" is the default) and a dialect. Nil: the route answers unsupported.
	AgentTools func(e schemas.ToolVisibility, format string, d schemas.Dialect) (any, error)
	// AgentTurns reports whether turns of an agent are carried out. Nil: none are. Codes: not_found, unsupported (its turns are a harness's).
	AgentTurns func(ctx context.Context, a schemas.AccountID, id schemas.AgentID) error
	// Endpoints stores the webhook endpoints. Nil: their routes answer unsupported, and appended events are not delivered.
	Endpoints webhooks.Records
	// Skills stores the skills. Nil: their routes answer unsupported.
	Skills skills.Records
	// Channels stores the chat channels. Nil: their routes answer unsupported.
	Channels channels.Records
	// ChannelKinds are the chats that channels may be of.
	ChannelKinds []channels.Kind
	// ChatReceiver returns the adapter that handles the requests of a kind's service. Nil: those are answered unsupported.
	ChatReceiver func(kind string) (channel.Receiver, bool)
	// ChatSetup registers an address with a chat service, and reports whether the service has an API for that. It may block for a request.
	// Nil: no service has one. Codes: invalid (the record lacks what is needed), denied (the service refuses), unavailable.
	ChatSetup func(ctx context.Context, c schemas.ChatChannel, hook *url.URL) (registered bool, err error)
	// ChatSeen is called once a message of a chat counts; it must not block. It may be nil.
	ChatSeen func(c schemas.ChatChannel, in channel.Inbound)
	// Workspace finds a workspace whose files are asked for. Nil: their routes answer unsupported. Code: not_found.
	Workspace func(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.WorkspaceFiles, error)
	// Sandboxes are the settings of /v1/sandbox.
	Sandboxes Sandboxes
	// E2B serves the client of E2B, with sandboxes that are sessions with an end of their own. It needs Keys and Sandboxes.
	E2B bool
	// Accounts stores the accounts and their collections. Nil: their routes answer unsupported.
	Accounts *accounts.Store
	// NATS issues credentials for the accounts' NATS clients. Nil: its route answers unsupported.
	NATS accounts.NATSAccess
	// NATSURL is where those clients reach the server, without credentials; empty where that is not known.
	NATSURL string
	// AdminKeyHash is the SHA-256, in hex, of the key that may make, list and change accounts. Empty: none.
	AdminKeyHash string
	// OpenSignup lets any caller make accounts, five an hour from one address. Behind a proxy that is the proxy's.
	OpenSignup bool
	// MaxAccounts is at how many accounts that ends. 0: never.
	MaxAccounts int
	// OwnAccount is made at every start, with its key. It is not deleted and gets no other key here.
	OwnAccount schemas.AccountID
	// AllowInsecureWebhooks lets endpoints be added whose URL begins with http://, for development.
	AllowInsecureWebhooks bool
	// Keys sign attach tokens. Nil: none are made or taken.
	Keys credentials.Keys
	// Limits are the limits on what clients use at the same time.
	Limits Limits
	// Grace is how long requests in flight may take after Run's context is done. Default 10 s.
	Grace time.Duration
	// DurableStreams serves durable streams under /v1/streams. Without it their routes answer not_found; stored streams remain.
	DurableStreams bool
	// DurableWait is how long a long poll of a durable stream waits. Default 20 s.
	DurableWait time.Duration
	// Heartbeat is the longest silence of an event stream. Default 10 s.
	Heartbeat time.Duration
	// Stall is how long one write to a client may block before the client is dropped. Default 10 s.
	Stall time.Duration
	// ReplayBytes is about how much memory is used for frames of conversations, in bytes. Default [replay.DefaultBudget].
	ReplayBytes int
	// Disk returns a warning for /readyz if there is little disk space for the workspaces of a worker in this process; otherwise "". Nil:
	// there is no such worker.
	Disk func() string
	// MCPWait is how long a request by the Model Context Protocol is held for the result of its call. Default [mcp.DefaultWait].
	MCPWait time.Duration
	// ReplayCompression allows WebSockets to negotiate the compression of replays.
	ReplayCompression bool
}

// Gateway serves the HTTP API. It is an [http.Handler], and safe for concurrent use.
type Gateway struct {
	Options
	handler     http.Handler
	edge        *web.Edge
	credentials credentials.Verifier
	places      *live.Places
	live        *live.Server
	metrics     *metrics
	accounts    *accounts.Server
	durable     *durable.Handler // nil: off
	files       *files.Files
	sandbox     *sandboxapi.API
	e2b         *e2b.Facade // nil: off
	artifacts   *artifacts.Artifacts
	skills      *skills.Skills
	mcp         *mcp.Server
	webhooks    *webhooks.Webhooks
	channels    *channels.Channels
	jobs        *jobs.Jobs
	approvals   approvals.Approvals
	calls       *calls.Calls
	convs       *conversations.Conversations
	chats       *chats.Chats
	mcpAPI      *mcpapi.Endpoint
	instances   *instances.Instances
	ready       *sharedRead[struct{}]
	jobTokens   *quota.Ledger // limits concurrent lookups of jobs by their tokens

	// draining ends when the gateway begins to stop: waiting and streaming requests then end by themselves.
	draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	drain    context.CancelFunc
}

const (
	defaultGrace     = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
	defaultStall     = 10 * time.Second
)

// New returns a gateway. It starts no goroutines. [Gateway.Run] serves it, or an [http.Server] of the caller's, which should call
// [Gateway.Drain] before it shuts down.
func New(o Options) *Gateway {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	o.MaxWait = orDefault(o.MaxWait, web.DefaultMaxWait)
	o.Grace = orDefault(o.Grace, defaultGrace)
	o.Heartbeat = orDefault(o.Heartbeat, defaultHeartbeat)
	o.Stall = orDefault(o.Stall, defaultStall)
	g := &Gateway{Options: o, ready: newReady(o.Bus), jobTokens: quota.NewLedger(0, jobs.MostTokens)}
	g.draining, g.drain = context.WithCancel(context.Background())
	g.places = o.Limits.places()
	holds := o.Limits.holds()
	g.metrics = newMetrics(o.Registry, o.Bus, o.Providers, holds)
	g.credentials = credentials.Verifier{Accounts: o.Records, Keys: o.Keys, Now: o.Bus.Now}
	g.accounts = accounts.New(accounts.Options{
		Credentials: g.credentials, Log: o.Bus, Store: o.Accounts, Serving: o.Serving, AgentTools: o.AgentTools,
		NATS: o.NATS, NATSURL: o.NATSURL, AdminKeyHash: o.AdminKeyHash, OpenSignup: o.OpenSignup, MaxAccounts: o.MaxAccounts, OwnAccount: o.OwnAccount,
	})
	g.edge = &web.Edge{
		Log: o.Log, Holds: holds, Origins: o.Origins, Stall: o.Stall, Answered: g.metrics.request,
		AcceptedHeaders: durable.AcceptedHeaders + ", " + mcpapi.AcceptedHeaders,
		ExposedHeaders:  jobs.HeaderOffset + ", " + durable.ExposedHeaders + ", " + mcpapi.ExposedHeaders,
	}
	g.approvals = approvals.Approvals{Approvals: admission.Approvals{Bus: o.Bus, Log: o.Log}}
	waits := web.Waits{Max: o.MaxWait, Slot: g.takeWait}
	g.calls = calls.New(calls.Options{
		Bus: o.Bus, Records: o.Records, Log: o.Log, Approvals: g.approvals, Serving: o.Serving,
		Waits: waits, Waiting: g.metrics.waiting, Accepted: g.metrics.accepted, Draining: g.draining,
	})
	g.live = live.New(live.Options{
		Bus: o.Bus, Log: o.Log, Credentials: g.credentials, Calls: socketCalls{o.Bus, g.calls, g.approvals}, Places: g.places, Answers: holds.Answers,
		Metrics: g.metrics.live(), Draining: g.draining,
		Origins: o.Origins, Heartbeat: o.Heartbeat, Stall: o.Stall, ReplayBytes: o.ReplayBytes, Compression: o.ReplayCompression,
	})
	g.artifacts = artifacts.New(artifacts.Options{Bus: o.Bus, Stream: g.fileTransfer})
	g.skills = skills.New(skills.Options{Bus: o.Bus, Records: o.Skills, Stream: g.fileTransfer})
	g.instances = instances.New(instances.Options{
		Bus: o.Bus, Calls: instanceCalls{g.calls}, CanPause: o.CanPause, Waits: waits, Waiting: g.metrics.waiting,
		Draining: g.draining,
	})
	g.jobs = jobs.New(jobs.Options{
		Bus: o.Bus, Credentials: g.credentials, Wait: g.takeWait, Answers: holds.Answers, Tokens: g.jobTokens, Draining: g.draining, Stall: o.Stall,
	})
	g.webhooks = webhooks.New(webhooks.Options{Bus: o.Bus, Records: o.Endpoints, AllowHTTP: o.AllowInsecureWebhooks})
	g.channels = channels.New(channels.Options{Bus: o.Bus, Records: o.Channels, Kinds: o.ChannelKinds, Setup: o.ChatSetup})
	g.files = files.New(files.Options{Bus: o.Bus, Workspace: o.Workspace, Stream: g.fileTransfer})
	g.sandbox = newSandboxes(g)
	g.metrics.sessions(o.Registry, g.sandbox.ActiveSessions)
	if o.E2B && o.Keys != nil {
		g.e2b = newE2B(g)
	}
	if o.DurableStreams {
		g.durable = durable.New(durable.Options{
			Bus: o.Bus, Draining: g.draining, LongPoll: o.DurableWait, Heartbeat: o.Heartbeat, Stall: o.Stall, Read: web.ReadHeld,
		})
	}
	questions := mcp.Options{Version: o.Version, Log: o.Log, Wait: o.MCPWait, Now: o.Bus.Now}
	if o.Keys != nil {
		questions.Keys = o.Keys
	}
	g.mcp = mcp.New(questions)
	endpoint := mcpapi.Options{
		Bus: o.Bus, Calls: g.calls, Jobs: g.jobs, Approvals: g.approvals, Server: g.mcp, Tools: o.AgentTools,
		Wait: g.takeWait, Authenticated: g.authenticated, Origins: o.Origins, Stall: o.Stall,
	}
	talk := conversations.Options{Bus: o.Bus, Live: g.live, Turns: o.AgentTurns, Waits: waits}
	messages := inbound.Handler{
		Bus: o.Bus, Receiver: o.ChatReceiver, Log: o.Log, Approvals: g.approvals.Approvals, Seen: o.ChatSeen, Received: g.metrics.inbound,
	}
	if o.Accounts != nil {
		endpoint.Agents, talk.Agents = o.Accounts.Documents, o.Accounts.Documents
	}
	if o.Endpoints != nil {
		talk.Endpoints, messages.Endpoints = o.Endpoints.List, o.Endpoints.List
	}
	if o.Channels != nil {
		messages.Channels = o.Channels
	}
	g.mcpAPI = mcpapi.New(endpoint)
	g.convs = conversations.New(talk)
	g.chats = chats.New(chats.Options{Inbound: messages, Bus: o.Bus, Calls: g.calls, Jobs: g.jobs})
	g.handler = g.edge.Middleware(g.mux())
	return g
}

// ServeHTTP implements [http.Handler].
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// Drain ends every request that waits or streams: waits respond with the present state, event streams end, and sockets get a bye and are
// closed. From then on /readyz responds 503. Drain does not block; further requests are still answered.
func (g *Gateway) Drain() {
	g.drain()
	g.mcp.Drain()
}

// Run serves HTTP/1.1, and HTTP/2 without TLS for clients and proxies that begin with it, on l until ctx is done. Then it drains for at
// most Grace and returns nil. It closes l. A gateway cannot be run twice.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	const (
		headerTimeout = 10 * time.Second
		idleTimeout   = 2 * time.Minute
		headerBytes   = 64 << 10
	)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)            // WebSockets are upgraded from it
	protocols.SetUnencryptedHTTP2(true) // TLS is a proxy's here, which may speak it behind too
	l = web.LimitConnections(l, g.connections())
	srv := &http.Server{
		Protocols: protocols, HTTP2: web.HTTP2Limits(), ConnContext: web.WithResets,
		Handler: web.EndResetters(g), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(g.Log.Handler(), slog.LevelDebug), // broken handshakes and such: the clients' affair
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		g.Drain()
		g.live.Wait()
		g.mcp.Close()
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	g.Drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.Grace)
	defer cancel()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		g.Log.Warn("requests cut off at the end of the grace period", "grace", g.Grace)
		err = srv.Close()
	}
	if serr := <-failed; err == nil && !errors.Is(serr, http.ErrServerClosed) {
		err = serr
	}
	g.live.Wait()
	g.mcp.Close()
	if err != nil {
		return fmt.Errorf("stop serving %s: %w", l.Addr(), err)
	}
	return nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
