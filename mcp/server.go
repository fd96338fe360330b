package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// Defaults of [Options].
const (
	DefaultWait      = 25 * time.Second // below the time-outs of the clients that are known
	DefaultStdioWait = 45 * time.Second // there a client's time-out is a minute at least
	DefaultGrace     = 10 * time.Second
)

// extensionTasks is the extension by which a client takes a task instead of an answer.
const extensionTasks = "io.modelcontextprotocol/tasks"

// Options are the settings of a [Server].
type Options struct {
	Version string
	Log     *slog.Logger // nil: silent
	// Wait is how long a request is held for the result of its call. Default [DefaultWait].
	Wait time.Duration
	// Grace is how long after a client of the newer protocol has closed its stream a marked call may be asked for again before it is
	// cancelled. Default [DefaultGrace]; less than 0: none.
	Grace time.Duration
	// Keys sign the state that clients keep between a question and its answer. All processes that serve the same clients need the same.
	// Nil: keys of this server alone.
	Keys Keys
	// Now is the time by which that ends. Nil: this host's.
	Now func() time.Time
}

// Keys sign and verify; a signature is valid only for its purpose. It must be safe for concurrent use.
type Keys interface {
	// Sign returns the id of the current key, of at most 255 bytes, and its MAC.
	Sign(purpose string, message []byte) (key string, signature []byte, err error)
	Verify(key, purpose string, message, signature []byte) bool
}

// Server handles the protocol for clients. It is safe for concurrent use.
type Server struct {
	Options

	closing context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
	end     context.CancelFunc
	running sync.WaitGroup // goroutines that cancel abandoned calls

	mu       sync.Mutex
	attached map[schemas.CallID]*attachment // by the calls that requests wait for
	inFlight map[flight]context.CancelCauseFunc
}

// New returns a server. The caller must call [Server.Close].
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	o.Grace = max(cmp.Or(o.Grace, DefaultGrace), 0)
	if o.Keys == nil {
		o.Keys = newOwnKeys(rand.Text())
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{Options: o, attached: map[schemas.CallID]*attachment{}, inFlight: map[flight]context.CancelCauseFunc{}}
	s.closing, s.end = context.WithCancel(context.Background())
	return s
}

// Drain makes every waiting request answer with the present state. It does not block.
func (s *Server) Drain() { s.end() }

// Close calls [Server.Drain], and then waits for the server's goroutines.
func (s *Server) Close() {
	s.Drain()
	s.running.Wait()
}

// session is the server's state for one connection, or for one request over HTTP.
type session struct {
	*Server

	scope Scope
	stdio bool
	// request ends when the client cancels its request by another one. Nil: it does not.
	request context.Context //nolint:containedctx // a session over HTTP is one request
}

// instructions describe the tools as a whole to a model.
const instructions = "The tools run in a sandbox with a workspace of its own, not on the user's machine: files that they write are " +
	"there, and stay from one call to the next. A call that takes longer than a request may wait goes on; async_status with the " +
	"statusId of the answer has its result."

// protocol returns an SDK server for one session. Its tools are registered by [session.list].
func (c *session) protocol() *sdk.Server {
	capabilities := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}}
	capabilities.AddExtension(extensionTasks, nil)
	srv := sdk.NewServer(&sdk.Implementation{Name: "sandjet", Title: "Sandjet", Version: c.Version}, &sdk.ServerOptions{
		Instructions: instructions, Logger: slog.New(warnings{c.Log.Handler()}), Capabilities: capabilities, SetCacheable: cacheable,
	})
	srv.AddReceivingMiddleware(c.around(srv))
	c.addResources(srv)
	c.addTasks(srv)
	return srv
}

// cacheable marks results as private; lists of tools and of resource templates may be cached for a minute.
func cacheable(_ context.Context, req sdk.Request, to *sdk.Cacheable) {
	to.CacheScope = "private"
	switch req.GetParams().(type) {
	case *sdk.ListToolsParams, *sdk.ListResourceTemplatesParams:
		to.TTLMs = int(time.Minute / time.Millisecond)
	}
}

// around returns the middleware for all requests. It updates the tools before they are listed or called, serves the list of artifacts,
// returns a task instead of an answer, and cancels a call whose client wants no answer any more.
func (c *session) around(srv *sdk.Server) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		var listing sync.Mutex
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			switch method {
			case "tools/list", "tools/call":
				listing.Lock()
				err := c.list(ctx, srv)
				listing.Unlock()
				if err != nil {
					return nil, protocolError(err)
				}
			case "tasks/get", "tasks/update", "tasks/cancel":
				if err := checkTaskRequest(req); err != nil {
					return nil, err
				}
			case "resources/list":
				p, _ := req.GetParams().(*sdk.ListResourcesParams)
				return c.listResources(ctx, p)
			case "prompts/list", "prompts/get":
				if ofRevision(req) >= stateless { // the SDK answers what this server does not declare
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server has no prompts"}
				}
			}
			if method != "tools/call" {
				return next(ctx, method, req)
			}
			ctx, use := withUse(ctx)
			if c.request != nil {
				var cancel context.CancelCauseFunc
				ctx, cancel = context.WithCancelCause(ctx)
				defer cancel(nil)
				defer context.AfterFunc(c.request, func() { cancel(context.Cause(c.request)) })()
			}
			res, err := next(ctx, method, req)
			if use.call != "" && c.unwanted(ctx) {
				c.abandon(use.call, use.marked && !c.stdio && !c.requested(ctx))
				return nil, context.Cause(ctx)
			}
			if err == nil && use.task != nil {
				return use.task, nil
			}
			return res, err
		}
	}
}

// ofRevision returns the protocol revision of a request; empty if it is unknown.
func ofRevision(req sdk.Request) string {
	if r, ok := req.(interface{ ProtocolVersion() string }); ok {
		return r.ProtocolVersion()
	}
	return ""
}

// list registers the tools that the account's agent has now with srv.
func (c *session) list(ctx context.Context, srv *sdk.Server) error {
	tools, err := c.scope.Caller.Tools(ctx, c.scope.Agent)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == string(schemas.ToolAsyncStatus) }) {
		tools = append(tools, statusOfCalls())
	}
	var gone []string
	for _, name := range schemas.Tools() {
		if !slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == string(name) }) {
			gone = append(gone, string(name))
		}
	}
	srv.RemoveTools(gone...)
	for _, t := range tools {
		srv.AddTool(&sdk.Tool{
			Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, OutputSchema: outputSchema(),
			Annotations: &sdk.ToolAnnotations{
				ReadOnlyHint: t.Annotations.ReadOnly, DestructiveHint: &t.Annotations.Destructive,
				IdempotentHint: t.Annotations.Idempotent, OpenWorldHint: &t.Annotations.OpenWorld,
			},
		}, c.call)
	}
	return nil
}

// use is the state of one tools/call, shared by the handlers.
type use struct {
	call   schemas.CallID
	marked bool        // its client may ask for the same call again
	task   *taskResult // answered instead of the result
}

type useKey struct{}

func withUse(ctx context.Context) (context.Context, *use) {
	u := new(use)
	return context.WithValue(ctx, useKey{}, u), u
}

func useOf(ctx context.Context) *use {
	u, ok := ctx.Value(useKey{}).(*use)
	if !ok {
		return new(use)
	}
	return u
}

// warnings is a handler for the SDK's log that passes only warnings and errors: the SDK also logs the beginning and end of each session.
type warnings struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}
