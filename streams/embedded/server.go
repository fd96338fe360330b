// Package embedded is a NATS server with JetStream in this process: started on a folder, limited to the room on its disk, supervised, and
// restarted when it could not write. It knows nothing of what the log holds.
package embedded

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/host"
	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/usage"
)

// Durability says when messages that the embedded server has accepted are synced to disk. A killed process loses nothing in any mode; what
// an OS crash or a power cut can lose differs.
type Durability string

// The durabilities.
const (
	DurabilityAlways Durability = "always" // every accepted write is synced before it is acknowledged
	DurabilityFast   Durability = "1s"     // synced each second: up to a second is lost. The default
	DurabilityOS     Durability = "os"     // synced every two minutes: up to that is lost
)

// Options describe an embedded server.
type Options struct {
	DataDir    string // made when absent. Used by one server at a time
	Host       string // of the listener. Default 127.0.0.1
	Port       int    // -1: no listener, 0: any free port
	Durability Durability
	MaxStore   int64 // bytes on the disk. 0: three quarters of what is free at the start
	Name       string
	// Auth decides which clients may connect from outside of this process. Nil: none. An authenticator serves one server.
	Auth Authenticator
	// Intake begins to take what clients publish, over a connection that is made with each start, before the server is said to have started.
	// Run continues until its context ends; then the connection is flushed and closed. Nil: nothing is taken.
	Intake func(conn *nats.Conn) (run func(context.Context), err error)
	// Duplicates is how long a stream that says nothing of it remembers the ids of messages. 0: as the server has it.
	Duplicates time.Duration
	// Connections is how many connections there may be, those of this process included. 0: an eighth of its descriptors, from 256 to 65,536.
	Connections int
	Memory      bool // keep everything in memory, for tests; DataDir may be empty then
	Log         *slog.Logger
}

// Logger is where the server logs.
func (o Options) Logger() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log.With("part", "server")
}

// MaxPayload is the embedded server's limit of one message, in bytes; what is larger takes the way through
// the object store.
const MaxPayload = 1 << 20

const (
	flushWithin    = time.Second
	readyWithin    = 30 * time.Second // a large store takes a while to be read
	reconnectAfter = 100 * time.Millisecond
	authWithin     = 10 * time.Second // until a client has said who it is: on a busy machine the usual 2 s turn good ones away
)

// Server is a NATS server with JetStream inside this process. It is safe for concurrent use.
type Server struct {
	options Options
	own     *ownConnections
	dir     *storeDir
	log     *slog.Logger

	mu            sync.Mutex // of starting and stopping
	port          int        // the port in use; kept over a restart
	running       atomic.Pointer[server.Server]
	closes        func()        // ends what hangs on the running server
	lookEvery     time.Duration // of Run. 0: a second
	illness       atomic.Pointer[error]
	reserveFailed time.Time // when it was last logged that the reserve could not be made or released; only Run reads it
}

// Start starts a server and returns when it serves. Codes: conflict when DataDir is in use by
// another process, invalid when an option is wrong, exhausted when the disk is full, unavailable
// when it does not start.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Connections <= 0 {
		o.Connections = mostConnections(host.OpenFiles())
	}
	switch o.Durability {
	case "":
		o.Durability = DurabilityFast
	case DurabilityAlways, DurabilityFast, DurabilityOS:
	default:
		return nil, schemas.Invalidf("durability", "%q is unknown: use always, 1s or os", schemas.Quotable(string(o.Durability)))
	}
	dir, err := openStoreDir(o.DataDir, o.Memory)
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, own: &ownConnections{password: rand.Text(), others: o.Auth}, dir: dir,
		log: o.Logger(), port: o.Port}
	if err := s.start(ctx); err != nil {
		dir.close()
		return nil, err
	}
	return s, nil
}

// start brings up a server on the store directory.
func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	const op = "start the embedded server"
	if err := s.checkPort(ctx); err != nil {
		return err
	}
	o := s.serverOptions()
	srv, err := server.NewServer(o)
	if err != nil {
		return schemas.Wrap(schemas.Invalid, op, "it refuses its options", err)
	}
	log := &serverLog{log: s.log}
	srv.SetLoggerV2(log, false, false, false)
	s.own.server.Store(srv)
	if s.options.Auth != nil {
		s.options.Auth.Attach(srv)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		srv.Start() // reads the whole store before it returns
	}()
	select {
	case <-started:
	case <-ctx.Done():
		go func() { <-started; srv.Shutdown() }()
		return schemas.Wrap(schemas.Unavailable, op, "it was stopped before it was ready", ctx.Err())
	}
	if !srv.ReadyForConnections(readyWithin) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		reason := log.fatal()
		if reason == "" {
			reason = "it was not ready within " + readyWithin.String()
		}
		return schemas.OpErrorf(schemas.Unavailable, op, "%s", reason)
	}
	if n := log.outdated(); n > 0 {
		s.log.Info("log was not closed cleanly, indexes rebuilt", "indexes", n)
	}
	if s.options.Auth != nil {
		if err := s.options.Auth.Open(); err != nil {
			srv.Shutdown()
			srv.WaitForShutdown()
			return schemas.Wrap(schemas.Invalid, op, "it refuses a user", err)
		}
	}
	if a, ok := srv.Addr().(*net.TCPAddr); ok && s.options.Port >= 0 {
		s.port = a.Port
	}
	s.running.Store(srv)
	if err := s.limitStore(srv); err != nil {
		s.running.Store(nil)
		srv.Shutdown()
		srv.WaitForShutdown()
		return err
	}
	if err := s.open(srv); err != nil {
		s.running.Store(nil)
		srv.Shutdown()
		srv.WaitForShutdown()
		return err
	}
	return nil
}

// open starts to accept publications of clients and to check connections.
func (s *Server) open(srv *server.Server) error {
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	closes := func() {}
	if s.options.Intake != nil {
		conn, err := s.connect()
		if err != nil {
			cancel()
			return err
		}
		run, err := s.options.Intake(conn)
		if err != nil {
			cancel()
			conn.Close()
			return err
		}
		parts.Go(func() { run(ctx) })
		closes = func() {
			flush(conn) // the answers of the last publications
			conn.Close()
		}
	}
	if s.options.Port >= 0 {
		parts.Go(func() { boundNewcomers(ctx, srv, s.options.Connections) })
	}
	if s.options.Auth != nil {
		parts.Go(func() { s.options.Auth.Run(ctx) })
	}
	s.closes = func() {
		cancel()
		parts.Wait()
		closes()
	}
	return nil
}

// connect opens the connection that stores publications.
func (s *Server) connect() (*nats.Conn, error) {
	conn, err := nats.Connect("", append(s.InProcess(), nats.Name("sandjet-intake"),
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.Timeout(readyWithin),
		nats.CustomReconnectDelay(func(int) time.Duration { return reconnectAfter }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			s.log.Warn("intake of publications reports an error", "error", err)
		}))...)
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "start the embedded server", "it takes no connection", err)
	}
	return conn, nil
}

// flush waits briefly until what was written has reached the server. The client library's own timeouts would share timers between
// connections.
func flush(conn *nats.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	_ = conn.FlushWithContext(ctx) // the server is there or gone
}

func (s *Server) serverOptions() *server.Options {
	o := &server.Options{
		ServerName: s.options.Name, Host: s.options.Host, Port: s.port, DontListen: s.options.Port < 0,
		JetStream: true, StoreDir: s.dir.path, JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: s.options.MaxStore,
		SyncAlways: s.options.Durability == DurabilityAlways, SyncInterval: time.Second,
		NoSigs: true, DisableJetStreamBanner: true, MaxPayload: MaxPayload, PingInterval: 10 * time.Second,
		AuthTimeout: authWithin.Seconds(), MaxConn: s.options.Connections,
		JetStreamLimits:            server.JSLimitOpts{DefaultMaxConsumers: -1, Duplicates: s.options.Duplicates},
		CustomClientAuthentication: s.own,
	}
	if s.options.Durability == DurabilityOS {
		o.SyncInterval = 2 * time.Minute
	}
	if o.ServerName == "" {
		o.ServerName = "sandjet-" + strings.ToLower(rand.Text()[:10])
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	if o.DontListen {
		o.Port = 0
	}
	if !s.options.Memory {
		o.JetStreamMaxStore = anyStore
	}
	return o
}

// anyStore is no limit: the one that counts is set on the account, see limitStore.
const anyStore = 1 << 60

// limitStore limits the bytes of the log. The limit is set on the account rather than by the server's options, since the stored size is
// known only once the server has read it, and since clients of other processes can then read it. If the operator has set none it follows
// the free disk space, so it is called repeatedly.
func (s *Server) limitStore(srv *server.Server) error {
	if s.options.Memory {
		return nil
	}
	store := srv.GlobalAccount().JetStreamUsage()
	used := int64(store.Store)
	most, lifted := storeLimit(s.options.MaxStore, used, s.dir.room())
	if have := store.Limits.MaxStore; have > 0 && max(have, most)-min(have, most) <= have/50 { // not for every byte
		return nil
	}
	if lifted && s.options.MaxStore > 0 {
		s.log.Warn("log above its size limit, refusing new work until it has shrunk",
			"max_store", s.options.MaxStore, "kept", used)
	}
	err := srv.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: most, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}})
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "start the embedded server", "it refuses the limit of its store", err)
	}
	return nil
}

// followDisk updates the limit if it depends on the free space.
func (s *Server) followDisk() {
	srv := s.running.Load()
	if srv == nil || s.options.MaxStore > 0 {
		return
	}
	if err := s.limitStore(srv); err != nil {
		s.log.Warn("size limit of the log not adjusted to the disk", "error", err)
	}
}

// followReserve creates the reserve file of the log, or releases it when the disk gets full.
func (s *Server) followReserve() {
	if s.options.Memory || s.dir.temp {
		return
	}
	again := time.Since(s.reserveFailed) >= reserveTry
	switch did, err := s.dir.reserve(again); {
	case err != nil && !again: // to give it back is tried at each look: the disk is full
	case err != nil:
		s.reserveFailed = time.Now()
		s.log.Warn("reserve of the log not made or given back, a full disk stops the log", "file", s.dir.reserveFile(), "error", err)
	case did == reserveGive:
		s.log.Warn("disk nearly full, reserve of the log given back to it: free some space", "bytes", reserveSize, "free", s.dir.room())
	case did == reserveMake:
		s.log.Debug("reserve of the log made", "file", s.dir.reserveFile(), "bytes", reserveSize)
	}
}

// storeLimit returns the most bytes that the log may have: asked, or three quarters of free and used space together. It is never so small
// that records and removals could not be written to an existing log; lifted reports that. It is pure.
func storeLimit(asked, used, free int64) (most int64, lifted bool) {
	if most = asked; most <= 0 {
		most = free/4*3 + used/4*3
	}
	if most < used/usage.AcceptedUpTo*100 {
		return used / ((usage.RequestedUpTo + usage.AcceptedUpTo) / 2) * 100, true // between the two: new calls are refused, accepted ones continue
	}
	return most, false
}

// checkPort reports early, in plain words, an address that would make the server end its process.
func (s *Server) checkPort(ctx context.Context) error {
	if s.options.Port < 0 || s.port <= 0 {
		return nil
	}
	address := net.JoinHostPort(s.options.Host, fmt.Sprint(s.port))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return schemas.Wrap(schemas.Conflict, "start the embedded server",
			"cannot listen on "+address+" for NATS: choose another port, or 0 for any", err)
	}
	return l.Close()
}

// URL is where NATS clients reach the server, without credentials: nats://host:port, or "" when it
// does not listen.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Port < 0 || s.running.Load() == nil {
		return ""
	}
	return "nats://" + net.JoinHostPort(s.options.Host, fmt.Sprint(s.port))
}

// InProcess returns the options by which the client library connects to the server from this process, also again after a [Server.Restart].
func (s *Server) InProcess() []nats.Option {
	return []nats.Option{nats.InProcessServer(s), nats.UserInfo(InProcessUser, s.own.password)}
}

// Durability is that of the server.
func (s *Server) Durability() Durability { return s.options.Durability }

// InProcessConn opens a connection to the present server; a client that dials it
// survives a [Server.Restart].
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.running.Load()
	if srv == nil {
		return nil, schemas.OpErrorf(schemas.Unavailable, "connect", "the embedded server is stopped")
	}
	conn, err := srv.InProcessConn()
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "connect", "the embedded server takes no connection", err)
	}
	return &inProcess{Conn: conn}, nil
}

// CanWrite returns an error while the server cannot write, though it runs or is just being restarted. Code: unavailable.
func (s *Server) CanWrite() error {
	if err := s.broken(); err != nil {
		return schemas.Wrap(schemas.Unavailable, "health", "the log cannot write: "+WhyNoWrite(err.Error()), err)
	}
	return nil
}

// Healthy returns an error when the server cannot do its work, such as after a failed write.
func (s *Server) Healthy() error {
	srv := s.running.Load()
	if srv == nil {
		return schemas.OpErrorf(schemas.Unavailable, "health", "the embedded server is stopped")
	}
	if err := s.CanWrite(); err != nil {
		return err
	}
	if h := srv.Healthz(nil); h.StatusCode != http.StatusOK {
		return schemas.OpErrorf(schemas.Unavailable, "health", "the embedded server is not well: %s", h.Error)
	}
	return nil
}

// Restart stops the server as Shutdown does and starts it again with the same store and port. All clients reconnect.
func (s *Server) Restart(ctx context.Context) error {
	s.stop()
	return s.start(ctx)
}

// Shutdown stops the server and blocks until it has stopped. Calling it again does nothing.
func (s *Server) Shutdown() {
	s.stop()
	s.dir.close()
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running.Load() == nil {
		return
	}
	s.closes()
	srv := s.running.Swap(nil)
	srv.Shutdown()
	srv.WaitForShutdown()
}

// serverLog passes the server's lines to our log. Fatal lines, for which the server would end the process, are kept as the reason why it
// did not start.
type serverLog struct {
	log     *slog.Logger
	refused sometimes.Counted

	mu      sync.Mutex
	last    string
	rebuilt int
}

// outdated returns the number of rebuilt indexes, which the server logs one by one: after a kill there are many, and nothing is wrong.
func (l *serverLog) outdated() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rebuilt
}

func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("NATS server message", "line", fmt.Sprintf(format, v...))
}
func (l *serverLog) Warnf(format string, v ...any) {
	// As filestore.go of the server words it: "TTL state is outdated; attempting to recover using linear scan".
	if strings.Contains(format, "state is outdated") || strings.Contains(format, "state outdated") {
		l.mu.Lock()
		l.rebuilt++
		l.mu.Unlock()
		l.log.Debug("NATS server message", "line", fmt.Sprintf(format, v...))
		return
	}
	l.log.Warn("NATS server message", "line", fmt.Sprintf(format, v...))
}

// Errorf logs what concerns the server itself as an error. Refusals to clients are not errors, since any tenant could fill the log with
// them. Of each kind one line a minute is logged, with the number of those left out.
func (l *serverLog) Errorf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	for _, fault := range []string{
		"Publish Violation", "Subscription Violation", "authentication error", "maximum payload exceeded", "maximum subscriptions exceeded",
		"maximum connections exceeded", "maximum account active connections exceeded", "Maximum Payload Violation", "Maximum Control Line",
		"Client parser ERROR", "TLS handshake error",
	} {
		if strings.Contains(strings.ToLower(line), strings.ToLower(fault)) {
			l.refuse(fault, line)
			return
		}
	}
	l.log.Error("NATS server message", "line", line)
}

func (l *serverLog) refuse(fault, line string) {
	level, attrs := slog.LevelInfo, []any{"reason", line}
	switch leftOut, due := l.refused.Due(fault); {
	case !due:
		level = slog.LevelDebug
	case leftOut > 0:
		attrs = append(attrs, "left_out", leftOut)
	}
	l.log.Log(context.Background(), level, "client refused", attrs...)
}

func (l *serverLog) Debugf(format string, v ...any) {
	l.log.Debug("NATS server message", "line", fmt.Sprintf(format, v...))
}
func (l *serverLog) Tracef(string, ...any) {}

func (l *serverLog) Fatalf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.log.Error("NATS server message", "line", line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		l.last = line
	}
}

var _ server.Logger = (*serverLog)(nil)

// tempDir is the directory of a server in memory, which writes a few files nevertheless.
func tempDir() (string, error) { return os.MkdirTemp("", "sandjet-memory-") }
