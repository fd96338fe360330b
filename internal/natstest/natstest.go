package natstest

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// tickOutside starts the server's one global ticker, which must not belong to any bubble.
var tickOutside = sync.OnceFunc(ats.Register) //nolint:gochecknoglobals // once per process is the point

// forgetTimers empties the pool of timers that the NATS client keeps for the process: one that was made in a
// bubble ends the process when it comes up in another or outside of any. What a pool keeps survives one
// collection.
func forgetTimers() {
	for range 2 {
		runtime.GC()
	}
}

// Settings are what is started.
type Settings struct {
	Server embedded.Options
	Log    streams.Options
}

// Option changes what is started.
type Option func(*Settings)

// Shards sets the number of shards of the events.
func Shards(n int) Option {
	return func(s *Settings) { s.Log.Shards = n }
}

// Listen makes a server of [Start] listen on a free port of 127.0.0.1, for these users.
func Listen(users ...natsauth.User) Option {
	a, err := natsauth.New(natsauth.Options{Users: users})
	if err != nil {
		panic(fmt.Sprintf("natstest: %v", err)) // a mistake in the test
	}
	return ListenFor(a)
}

// ListenFor is [Listen] for whom an authenticator lets in.
func ListenFor(a embedded.Authenticator) Option {
	return func(s *Settings) { s.Server.Port, s.Server.Auth = 0, a }
}

// Dir sets where a server of [Start] keeps its files. Without it the directory is of no interest.
func Dir(dir string) Option {
	return func(s *Settings) {
		s.Server.DataDir, s.Server.Memory, s.Log.MemoryStorage = dir, false, false
	}
}

// OnDisk has a server of [Start] keep its log in files, for tests that restart it or look at what it keeps.
func OnDisk() Option {
	return func(s *Settings) { s.Server.Memory, s.Log.MemoryStorage = false, false }
}

// Durability sets the durability of a server of [Start].
func Durability(d embedded.Durability) Option {
	return func(s *Settings) {
		s.Server.Durability, s.Server.Memory, s.Log.MemoryStorage = d, false, false
	}
}

// RecreateRecords has the log opened also where its bucket of records is lost.
func RecreateRecords() Option {
	return func(s *Settings) { s.Log.RecreateRecords = true }
}

// Hours says that a test plays hours or days, in which timers take turns and little happens at the same time. With -short, which
// goes with the race detector, it is skipped: that makes it ten times as long, and what runs at the same time is met in shorter
// tests beside it.
func Hours(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it plays hours of virtual time: left to runs without -short")
	}
}

// Run calls f in a bubble of virtual time with a log kept in memory. Nothing real may be used in it:
// no sockets, no processes. Goroutines that f starts must end before it returns, or by t.Cleanup; what hangs on
// t.Context() ends in time. The log ends after them: a server that shuts down sleeps with its locks held, and in a bubble
// no time passes while a request waits for those.
func Run(t *testing.T, f func(t *testing.T, b *streams.Bus), options ...Option) {
	t.Helper()
	tickOutside()
	dir := t.TempDir()
	testwait.Alone(t, func() {
		forgetTimers()
		synctest.Test(t, func(t *testing.T) { run(t, dir, f, options) })
	})
}

func run(t *testing.T, dir string, f func(t *testing.T, b *streams.Bus), options []Option) {
	t.Helper()
	with := settings(t, dir, options)
	with.Server.Port = -1
	s, err := streams.StartServer(t.Context(), with.Server, fair.Shares{})
	if err != nil {
		t.Fatalf("start the server: %v", err)
	}
	t.Cleanup(func() {
		synctest.Wait() // what it was asked last is done
		s.Shutdown()
	})
	with.Log.Server = s
	b, err := streams.Open(t.Context(), with.Log)
	if err != nil {
		t.Fatalf("open the log: %v", err)
	}
	t.Cleanup(func() { closeBus(t, b) })
	f(t, b)
}

// settings are those of a test.
func settings(t testing.TB, dir string, options []Option) *Settings {
	s := &Settings{
		Server: embedded.Options{DataDir: dir, Port: -1, Memory: true, Name: "natstest", Log: logOf(t)},
		Log:    streams.Options{MemoryStorage: true, Log: logOf(t)},
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Log is a log of the wall clock.
type Log struct {
	Bus    *streams.Bus
	Server *streams.Server

	t testing.TB
	o *streams.Options
}

// Start starts a server and opens a Bus on it. Both end with the test. The log is kept in memory, which takes a fifth of the time,
// unless an option puts it on the disk: [OnDisk], [Dir], [Durability].
func Start(t testing.TB, options ...Option) *Log {
	t.Helper()
	tickOutside()
	testwait.ForRealTime(t)
	forgetTimers()
	with := settings(t, t.TempDir(), options)
	l := &Log{t: t, o: &with.Log}
	s, err := streams.StartServer(t.Context(), with.Server, fair.Shares{})
	if err != nil {
		t.Fatalf("start the server: %v", err)
	}
	t.Cleanup(s.Shutdown)
	l.Server, l.o.Server = s, s
	l.Bus = l.Open()
	return l
}

// Open opens another Bus on the server, as another process would. It is closed with the test.
func (l *Log) Open() *streams.Bus {
	l.t.Helper()
	b, err := streams.Open(l.t.Context(), *l.o)
	if err != nil {
		l.t.Fatalf("open the log: %v", err)
	}
	l.t.Cleanup(func() { closeBus(l.t, b) })
	return b
}

// Restart stops the server and starts it again on its files.
func (l *Log) Restart() {
	l.t.Helper()
	if l.o.MemoryStorage {
		l.t.Fatal("the log is in memory: start it with natstest.OnDisk")
	}
	if err := l.Server.Restart(l.t.Context()); err != nil {
		l.t.Fatalf("restart the server: %v", err)
	}
}

func closeBus(t testing.TB, b *streams.Bus) {
	t.Helper()
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("close the log: %v", err)
	}
}

// logOf writes to the test's output when it is verbose.
func logOf(t testing.TB) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
