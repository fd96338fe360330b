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

// tickOutside starts the server's one global ticker, which must not be created in a bubble.
var tickOutside = sync.OnceFunc(ats.Register) //nolint:gochecknoglobals // once per process is the point

// forgetTimers empties the NATS client's pool of timers, which all tests of the process share: using a timer of one bubble in another, or
// outside of any, ends the process. The content of a sync.Pool survives one collection, so it needs two.
func forgetTimers() {
	for range 2 {
		runtime.GC()
	}
}

// Settings are the options of the server and the log.
type Settings struct {
	Server embedded.Options
	Log    streams.Options
}

// Option changes the settings.
type Option func(*Settings)

// Shards sets the number of shards of the events.
func Shards(n int) Option {
	return func(s *Settings) { s.Log.Shards = n }
}

// Listen makes a server of [Start] listen on a free port of 127.0.0.1, with these users.
func Listen(users ...natsauth.User) Option {
	a, err := natsauth.New(natsauth.Options{Users: users})
	if err != nil {
		panic(fmt.Sprintf("natstest: %v", err)) // a mistake in the test
	}
	return ListenFor(a)
}

// ListenFor is [Listen] with the users of an authenticator.
func ListenFor(a embedded.Authenticator) Option {
	return func(s *Settings) { s.Server.Port, s.Server.Auth = 0, a }
}

// Dir sets the folder of a server of [Start]. Without it the log is in memory, or in a temporary folder.
func Dir(dir string) Option {
	return func(s *Settings) {
		s.Server.DataDir, s.Server.Memory, s.Log.MemoryStorage = dir, false, false
	}
}

// OnDisk makes a server of [Start] store its log in files, for tests that restart it or inspect the files.
func OnDisk() Option {
	return func(s *Settings) { s.Server.Memory, s.Log.MemoryStorage = false, false }
}

// Durability sets the durability of a server of [Start].
func Durability(d embedded.Durability) Option {
	return func(s *Settings) {
		s.Server.Durability, s.Server.Memory, s.Log.MemoryStorage = d, false, false
	}
}

// RecreateRecords opens a log that has lost its bucket of records, with a new one.
func RecreateRecords() Option {
	return func(s *Settings) { s.Log.RecreateRecords = true }
}

// Hours marks a test that simulates hours or days, in which timers fire one after the other and little is concurrent. It is skipped with
// -short, which is used with the race detector: that takes ten times as long, and shorter tests cover the concurrency.
func Hours(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it plays hours of virtual time: left to runs without -short")
	}
}

// Run calls f in a bubble of virtual time with a log in memory. f must not use anything real, such as sockets and processes. Goroutines
// that f starts must end before it returns, or by t.Cleanup; those that depend on t.Context() do. The log is shut down after them: during
// its shutdown a server sleeps while it holds locks, and in a bubble no time passes while a goroutine waits for one of those.
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
		synctest.Wait() // the last requests have been processed
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

// settings returns the settings of a test, with its options applied.
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

// Log is a log that runs on the wall clock.
type Log struct {
	Bus    *streams.Bus
	Server *streams.Server

	t testing.TB
	o *streams.Options
}

// Start starts a server and opens a Bus on it. Both are closed at the end of the test. The log is in memory, which takes a fifth of the
// time, unless an option stores it on disk: [OnDisk], [Dir], [Durability].
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

// Open opens another Bus on the server, as another process would. It is closed at the end of the test.
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

// logOf returns a logger to the test's output if that is verbose, else one that discards.
func logOf(t testing.TB) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}
