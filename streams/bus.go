package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/sometimes"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/usage"
)

// Options say where the log is and how it is kept.
type Options struct {
	// Server is an embedded server of this process. Without it, URL names one or more outside,
	// separated by commas.
	Server *Server
	URL    string

	User, Password string
	Creds          string // path of a credentials file
	NKey           string // path of a seed file
	CA, Cert, Key  string // paths of PEM files, for TLS

	// Replicas is how many copies of everything a log has that is made: 1 (default), 3 or 5. One that is
	// there keeps its number, until [SetReplicas]; one that has fewer is not opened.
	Replicas int
	Shards   int // of the events, when they are made: 1 to 64. Default 1 on Server, else 16. The log remembers
	Name     string
	// Existing opens a log that was opened before, as it is. One that was not is not found.
	Existing      bool
	MemoryStorage bool // keep streams in memory, for tests
	// RecreateRecords creates the bucket of records again if the log has lost it. Without it such a log is not opened.
	RecreateRecords bool
	// GroupCommit writes calls that are admitted at the same time together. It pays where the server
	// syncs every write; on for an embedded server of durability always.
	GroupCommit bool
	// Quotas hold accounts to what they may keep. Nil: this process limits no account, but counts.
	Quotas *Quotas
	// OpenJobs is how many background jobs of an account may be open. 0: schemas.MaxOpenJobs.
	OpenJobs int
	// LogClock stands in for what the log says of its time. Nil: the log is asked. With it the clock of a test is that
	// of a host whose clock is wrong.
	LogClock func() time.Time
	Log      *slog.Logger
}

const (
	roleLive       = "live" // of the connection for live events
	maxShards      = 64
	requestWithin  = 5 * time.Second
	asyncInFlight  = 1024
	reconnectAfter = 100 * time.Millisecond
	requiredLevel  = "4" // API level of the server: 2.15
)

// Bus is a connection to the log. It is safe for concurrent use.
//
// It holds several connections so that one kind of work does not wait behind another: publishing,
// deliveries with their acknowledgements, live events, and reads in bulk.
type Bus struct {
	options Options
	log     *slog.Logger

	publish, work, live, bulk   *nats.Conn
	js                          jetstream.JetStream // on publish
	jsWork                      jetstream.JetStream // on work
	jsBulk                      jetstream.JetStream // on bulk
	acks, acksWork              *acks               // on publish and work
	publishChanges, workChanges reconnects          // of publish and work

	topology topology
	reader   *reader
	payloads *payloads
	buckets  sync.Map // jetstream.KeyValue by name

	outlivers outlivers // among the leases
	calls     *group    // nil: each call is written by itself
	progress  *progressAcks
	clock     *logclock.Clock
	trimmings trimmings
	tail      tail
	lists     *fair.Semaphore // of [Newest]
	asks      *fair.Semaphore // of [Bus.AskFor]
	fileAsks  *fair.Semaphore // of [Bus.AskAboutFiles]
	results   results

	announced announcements
	letters   sometimes.Counted // lines of the log about dead letters

	trouble  trouble
	capacity *capacity
	faults   faults
	drops    wait.Broadcast  // notified when the connection of live events has reconnected
	slow     sync.Map        // what to do when a subscription to live events fell behind: func() by *nats.Subscription
	ctx      context.Context //nolint:containedctx // ends with the Bus: its background work hangs on it
	stop     context.CancelFunc
	parts    sync.WaitGroup
	closed   atomic.Bool
}

// Open connects to the log and creates or upgrades its streams, consumers and buckets. It may be
// called by many processes at once. Codes: unavailable when the server is not reached, unsupported
// when it is too old or has no JetStream, not_found when it must exist and does not, denied when it refuses the credential, conflict when a
// stream is there that cannot be changed into what is needed, when the log has fewer copies than asked for, or when it has lost its
// bucket of records.
func Open(ctx context.Context, o Options) (*Bus, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = "sandjet"
	}
	if o.Shards < 0 || o.Shards > maxShards {
		return nil, schemas.Invalidf("shards", "%d is out of range: 1 to %d", o.Shards, maxShards)
	}
	if o.Server == nil && o.URL == "" {
		return nil, schemas.Invalidf("nats_url", "is missing: give the URL of a server")
	}
	b := &Bus{options: o, log: o.Log.With("part", "streams"),
		lists: fair.NewSemaphore(concurrentLists, concurrentLists/2), asks: fair.NewSemaphore(concurrentAsks, concurrentAsks*3/4),
		fileAsks: fair.NewSemaphore(concurrentAsks, concurrentAsks*3/4)}
	b.results.bus = b
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.progress = newProgressAcks(b)
	b.capacity = newCapacity(b)
	b.tail = coreTail{bus: b}
	if o.GroupCommit || o.Server != nil && o.Server.Durability() == embedded.DurabilityAlways {
		b.calls = &group{bus: b}
	}
	if err := b.connect(ctx); err != nil {
		b.abandon()
		return nil, err
	}
	b.trimmings = trimmings{OpenBucket[trimMark](b, trimMarks)}
	b.clock = logclock.New(clockSource{b.bulk, b.trimmings, o.LogClock}, b.log)
	b.reader = newReader(b)
	b.payloads = newPayloads(b)
	b.topology.options, b.topology.log, b.topology.stored = o, b.log, b.clock.Stored
	b.topology.conn, b.topology.js, b.topology.bulk = b.publish, b.js, b.jsBulk
	if err := b.topology.ensure(ctx); err != nil {
		b.abandon()
		return nil, err
	}
	if err := b.topology.checkReplicas(); err != nil {
		b.abandon()
		return nil, err
	}
	if err := b.clock.Begin(ctx); err != nil {
		b.abandon()
		return nil, err
	}
	b.capacity.room.Refresh(ctx)
	if o.Server != nil {
		o.Server.bus.Store(b)
	}
	b.parts.Go(func() { b.capacity.room.Run(b.ctx) })
	b.parts.Go(func() { b.capacity.meter.Run(b.ctx) })
	b.parts.Go(func() { b.progress.run(b.ctx) })
	b.parts.Go(func() { b.revive(b.ctx) })
	b.parts.Go(func() { b.clock.Run(b.ctx) })
	return b, nil
}

func (b *Bus) connect(ctx context.Context) (err error) {
	for _, c := range []struct {
		conn **nats.Conn
		role string
		more []nats.Option
	}{
		{&b.publish, "publish", nil},
		{&b.work, "work", nil},
		{&b.live, roleLive, []nats.Option{nats.ReconnectHandler(func(*nats.Conn) { b.drops.Notify() })}},
		{&b.bulk, "bulk", nil},
	} {
		if *c.conn, err = b.dial(ctx, c.role, c.more...); err != nil {
			return err
		}
	}
	b.publishChanges.watch(b.publish)
	b.workChanges.watch(b.work)
	for _, j := range []struct {
		js   *jetstream.JetStream
		conn *nats.Conn
	}{{&b.js, b.publish}, {&b.jsWork, b.work}, {&b.jsBulk, b.bulk}} {
		*j.js, err = jetstream.New(j.conn, jetstream.WithPublishAsyncMaxPending(asyncInFlight), jetstream.WithDefaultTimeout(requestWithin),
			jetstream.WithPublishAsyncTimeout(2*requestWithin))
		if err != nil {
			return coded("connect to the log", err)
		}
	}
	if b.acks, err = newAcks(b.publish); err != nil {
		return err
	}
	b.acksWork, err = newAcks(b.work)
	return err
}

func (b *Bus) dial(ctx context.Context, role string, more ...nats.Option) (*nats.Conn, error) {
	const op = "connect to the log"
	o := b.options
	options := []nats.Option{
		nats.Name(o.Name + "-" + role), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.Timeout(requestWithin),
		nats.CustomReconnectDelay(b.reconnectDelay),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { b.asyncError(role, s, err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil && !b.closed.Load() { // without an error it is this process that closes it, as a service does at its end
				b.log.Warn("connection to the log lost", "connection", role, "error", err)
			}
		}),
	}
	url := o.URL
	if o.Server != nil {
		url = ""
		options = append(options, o.Server.InProcess()...)
	} else {
		with, err := o.credentials()
		if err != nil {
			return nil, err
		}
		options = append(options, with...)
	}
	type dialled struct {
		conn *nats.Conn
		err  error
	}
	done := make(chan dialled, 1)
	go func() { // the client library takes no context
		conn, err := nats.Connect(url, append(options, more...)...)
		done <- dialled{conn, err}
	}()
	select {
	case d := <-done:
		switch {
		case d.err == nil:
			return d.conn, nil
		case errors.Is(d.err, nats.ErrAuthorization):
			return nil, schemas.Wrap(schemas.Denied, op, "the NATS server refuses the credential: check user, password, creds or nkey", d.err)
		}
		return nil, schemas.Wrap(schemas.Unavailable, op, "the NATS server at "+where(o)+
			" is not reached: is it running, and is TLS set as it wants?", d.err)
	case <-ctx.Done():
		go func() {
			if d := <-done; d.conn != nil {
				d.conn.Close()
			}
		}()
		return nil, schemas.Wrap(schemas.Unavailable, op, "the NATS server at "+where(o)+" was not reached in time", ctx.Err())
	}
}

// insist opens a connection of a long-lived part. The server may be gone again since the Bus was opened, and the part has to
// live through that as through any later loss: open is called again while it says unavailable, until ctx ends.
func (b *Bus) insist(ctx context.Context, role string, open func() error) error {
	again := wait.Backoff{First: reconnectAfter, Most: 2 * time.Second}
	for failed := 1; ; failed++ {
		err := open()
		if schemas.CodeOf(err) != schemas.Unavailable || ctx.Err() != nil {
			return err
		}
		b.log.Warn("connection to the log not made, retrying", "connection", role, "error", err)
		if !again.Sleep(ctx, failed) {
			return err
		}
	}
}

// where names the server without what may be secret in its URL.
func where(o Options) string {
	if o.Server != nil {
		return "this process"
	}
	var hosts []string
	for u := range strings.SplitSeq(o.URL, ",") {
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			u = u[at+1:]
		}
		hosts = append(hosts, strings.TrimSpace(u))
	}
	return strings.Join(hosts, ",")
}

func (o Options) credentials() ([]nats.Option, error) {
	var with []nats.Option
	if o.User != "" {
		with = append(with, nats.UserInfo(o.User, o.Password))
	}
	if o.Creds != "" {
		with = append(with, nats.UserCredentials(o.Creds))
	}
	if o.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, schemas.Wrap(schemas.Invalid, "connect to the log", "the nkey seed file cannot be read: "+o.NKey, err)
		}
		with = append(with, nkey)
	}
	if o.CA != "" {
		with = append(with, nats.RootCAs(o.CA))
	}
	if (o.Cert == "") != (o.Key == "") {
		return nil, schemas.Invalidf("nats_cert", "a certificate and its key belong together: give both or none")
	}
	if o.Cert != "" {
		if _, err := tls.LoadX509KeyPair(o.Cert, o.Key); err != nil {
			return nil, schemas.Wrap(schemas.Invalid, "connect to the log", "the certificate or its key cannot be read: "+o.Cert, err)
		}
		with = append(with, nats.ClientCert(o.Cert, o.Key))
	}
	return with, nil
}

func (b *Bus) asyncError(role string, s *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.fellBehind(role, s)
	}
	subject := ""
	if s != nil {
		subject = s.Subject
	}
	if !b.closed.Load() {
		b.log.Warn("NATS client error", "connection", role, "subject", subject, "error", err)
	}
}

// fellBehind notifies the readers of a subscription to live events that some of them were dropped, so that it reads the log. Other readers
// are not affected, nor other connections, whose subscriptions find out by themselves.
func (b *Bus) fellBehind(role string, s *nats.Subscription) {
	if behind, ok := b.slow.Load(s); ok {
		if f, ok := behind.(func()); ok {
			f()
			return
		}
	}
	if role == roleLive { // it fell behind before it was known by whom
		b.drops.Notify()
	}
}

// Close lets what is being published or acknowledged reach the log, and closes the connections.
// Consumers, followers and services must have ended. It waits until ctx ends at most.
func (b *Bus) Close(ctx context.Context) error {
	if b.closed.Swap(true) {
		return nil
	}
	var errs []error
	select {
	case <-b.js.PublishAsyncComplete():
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("close the log: events are still unconfirmed: %w", ctx.Err()))
	}
	if b.publish.IsConnected() {
		b.capacity.meter.Flush(ctx)
	}
	for _, c := range []*nats.Conn{b.work, b.publish, b.live, b.bulk} {
		if c.IsConnected() {
			if err := c.FlushWithContext(deadlined(ctx)); err != nil && ctx.Err() == nil {
				b.log.Debug("connection not flushed at its end", "error", err)
			}
		}
	}
	b.abandon()
	return errors.Join(errs...)
}

// abandon ends everything at once.
func (b *Bus) abandon() {
	b.closed.Store(true)
	if s := b.options.Server; s != nil {
		s.bus.CompareAndSwap(b, nil)
	}
	b.stop()
	for _, c := range []*nats.Conn{b.work, b.publish, b.live, b.bulk} {
		if c != nil {
			c.Close()
		}
	}
	for _, a := range []*acks{b.acks, b.acksWork} {
		if a != nil {
			a.close()
		}
	}
	b.parts.Wait()
}

// Generation changes whenever the connection by which messages come and are acknowledged, or that by which results are published, was lost
// or has reconnected. While it is the same, the server has not taken this process for gone.
func (b *Bus) Generation() uint64 { return b.workChanges.count() + b.publishChanges.count() }

// Ready returns an error while the log cannot be reached, cannot write, or is too full for new work. Code: unavailable.
func (b *Bus) Ready(ctx context.Context) error {
	const op = "reach the log"
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	info, err := b.js.AccountInfo(ctx)
	if err != nil {
		return coded(op, err)
	}
	v := viewOf(info, b.Replicas())
	if err := v.Check(usage.Requested, min(v.Limit/100, embedded.MaxPayload)); err != nil { // one large message, or a hundredth
		return err
	}
	if err := b.trouble.now(time.Now()); err != nil {
		return coded(op, err)
	}
	if s := b.options.Server; s != nil {
		return s.Healthy()
	}
	return nil
}

// Healthy returns an error while the embedded server of this process cannot write. An unreachable server elsewhere is no error: this
// process can do nothing about it. It makes no request.
func (b *Bus) Healthy() error {
	if s := b.options.Server; s != nil {
		return s.CanWrite()
	}
	return nil
}

// Shards is the number of shards of the events, as the log has it.
func (b *Bus) Shards() int { return int(b.topology.shards.Load()) }

// deadlined gives a context without a deadline one, as the client library wants.
func deadlined(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// faults are what tests do to a Bus.
type faults struct {
	dropLive      func(*nats.Msg) bool // a live message that gets lost
	noDeadLetters bool                 // dead letters cannot be written
	deaf          func() bool          // whether changes of buckets get lost on their way
}
