package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/callwait"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/topology"
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
	requestWithin = direct.RequestTime
	requiredLevel = "4" // API level of the server: 2.15
)

// Bus is a connection to the log. It is safe for concurrent use.
type Bus struct {
	connections

	topology *topology.Topology
	copied   atomic.Bool // some stream has replicas, which may answer a read and be behind
	reader   *direct.Reader
	payloads *payloads.Store
	buckets  sync.Map // jetstream.KeyValue by name

	outlivers outlivers // among the leases
	group     *group    // nil: each call is written by itself
	calls     *callstore.Store
	states    *callstate.Reader
	progress  *progressAcks
	clock     *logclock.Clock
	trimmings trimmings
	tail      tail
	lists     *fair.Semaphore // of [Newest] and of lists of calls
	asks      *fair.Semaphore // of [Bus.AskFor]
	fileAsks  *fair.Semaphore // of [Bus.AskAboutFiles]
	waits     *callwait.Waits

	announced announcements
	letterLog letterLog

	trouble            trouble
	writer, workWriter *writer // on publish and work
	capacity           *capacity
	faults             faults
	ctx                context.Context //nolint:containedctx // ends with the Bus: its background work hangs on it
	stop               context.CancelFunc
	parts              sync.WaitGroup
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
	if o.Shards < 0 || o.Shards > topology.MaxShards {
		return nil, schemas.Invalidf("shards", "%d is out of range: 1 to %d", o.Shards, topology.MaxShards)
	}
	if o.Server == nil && o.URL == "" {
		return nil, schemas.Invalidf("nats_url", "is missing: give the URL of a server")
	}
	b := &Bus{connections: connections{options: o, log: o.Log.With("part", "streams")},
		lists: fair.NewSemaphore(concurrentLists, concurrentLists/2), asks: fair.NewSemaphore(concurrentAsks, concurrentAsks*3/4),
		fileAsks: fair.NewSemaphore(concurrentAsks, concurrentAsks*3/4)}
	b.letterLog.logger = b.log
	b.ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.progress = newProgressAcks(b)
	b.capacity = newCapacity(b)
	b.tail = coreTail{bus: b}
	if o.GroupCommit || o.Server != nil && o.Server.Durability() == embedded.DurabilityAlways {
		b.group = &group{bus: b}
	}
	if err := b.dialAll(ctx); err != nil {
		b.abandon()
		return nil, err
	}
	b.writer, b.workWriter = &writer{b.acks, &b.trouble, b.capacity}, &writer{b.acksWork, &b.trouble, b.capacity}
	b.trimmings = trimmings{OpenBucket[trimMark](b, trimMarks)}
	b.clock = logclock.New(clockSource{b.bulk, b.trimmings, o.LogClock}, b.log)
	b.reader = direct.New(direct.Options{
		Conn: b.bulk, JS: b.jsBulk, Copied: &b.copied, Log: b.log, Context: b.ctx, Checks: &b.parts,
	})
	b.topology = topology.New(topology.Options{
		Tables: tables(), Conn: b.publish, JS: b.js, Bulk: b.jsBulk, Log: b.log, Shards: o.Shards, Replicas: o.Replicas,
		Embedded: o.Server != nil, Existing: o.Existing, MemoryStorage: o.MemoryStorage, RecreateRecords: o.RecreateRecords,
		Stored: b.clock.Stored, Info: b.reader.Info, Copied: &b.copied,
	})
	b.payloads = payloads.New(payloads.Options{
		Reader: b.reader, Topology: b.topology, Copied: &b.copied, Limit: int(b.publish.MaxPayload()) - payloads.Headroom, Now: b.Now,
		Bucket: payloadBucket, Former: formerOwner, Foreign: streamIntake, Wrote: b.capacity.wrote,
		Account: func(subject string) schemas.AccountID {
			account, _ := usageOf(subject)
			return account
		},
	})
	b.calls = callstore.New(callstore.Options{
		Stream: streamCalls, Reader: b.reader, JS: b.jsBulk, Lists: b.lists, Now: b.Now,
		Payload: func(ctx context.Context, m direct.Message) ([]byte, error) {
			return b.payloads.Whole(ctx, streamCalls, m.Headers, m.Data, m.Time)
		},
		HasDeadLetter: func(ctx context.Context, seq uint64) (bool, error) {
			return b.reader.Has(ctx, streamDead, direct.Request{Last: subjects.Dead + streamCalls + ".*." + strconv.FormatUint(seq, 10)})
		},
	})
	event := func(ctx context.Context, m direct.Message) (schemas.Event, error) {
		e, err := Events.entry(ctx, b, "", m)
		return e.Value, err
	}
	b.states = callstate.New(callstate.Options{
		Calls: b.calls, Reader: b.reader, Clock: b.clock, Log: b.log, EventsOf: b.topology.EventsOf,
		Recognises: b.Recognises, Trimmed: b.trimmings.through, Event: event,
	})
	b.waits = callwait.New(callwait.Options{
		States: b.states, Calls: b.calls, Reader: b.reader, Clock: b.clock, Log: b.log, Event: event, Recognises: b.Recognises,
		Follow: b.tail.open, Context: b.ctx, Go: b.parts.Go,
	})
	if err := b.topology.Ensure(ctx); err != nil {
		b.abandon()
		return nil, err
	}
	if err := b.topology.CheckReplicas(); err != nil {
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

// Calls returns what reads the calls on the log.
func (b *Bus) Calls() *callstore.Store { return b.calls }

// States returns what reads how far calls are.
func (b *Bus) States() *callstate.Reader { return b.states }

// AwaitCall returns a call's state once it has its result: see [callwait.Waits.Await].
func (b *Bus) AwaitCall(ctx context.Context, c schemas.Call) (*callstate.State, error) {
	return b.waits.Await(ctx, c)
}

// Close flushes what is being published or acknowledged and closes the connections. Consumers, followers and services must have ended. It
// waits until ctx ends at most.
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
	b.flush(ctx)
	b.abandon()
	return errors.Join(errs...)
}

// abandon closes everything without waiting for confirmations.
func (b *Bus) abandon() {
	b.closed.Store(true)
	if s := b.options.Server; s != nil {
		s.bus.CompareAndSwap(b, nil)
	}
	b.stop()
	b.closeAll()
	b.parts.Wait()
}

// Generation returns a number that changes whenever the connection for deliveries and acknowledgements, or that for results, was lost or
// restored. While it stays the same, the server has not considered this process gone.
func (b *Bus) Generation() uint64 { return b.workChanges.Count() + b.publishChanges.Count() }

// Ready returns an error while the log cannot be reached, cannot write, or is too full for new work. Code: unavailable.
func (b *Bus) Ready(ctx context.Context) error {
	const op = "reach the log"
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	info, err := b.js.AccountInfo(ctx)
	if err != nil {
		return natserr.Coded(op, err)
	}
	v := viewOf(info, b.Replicas())
	if err := v.Check(usage.Requested, min(v.Limit/100, embedded.MaxPayload)); err != nil { // one large message, or a hundredth
		return err
	}
	if err := b.trouble.now(time.Now()); err != nil {
		return natserr.Coded(op, err)
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
func (b *Bus) Shards() int { return b.topology.ShardCount() }

// faults are what tests do to a Bus.
type faults struct {
	dropLive      func(*nats.Msg) bool // a live message that gets lost
	noDeadLetters bool                 // dead letters cannot be written
	deaf          func() bool          // whether changes of buckets get lost on their way
}
