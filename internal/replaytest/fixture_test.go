package replaytest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	alice    schemas.AccountID = "acct_alice"
	aliceKey                   = "sk_alice"
	patience                   = 100 * time.Second // of everything that must happen at all
)

// TestMain fails if goroutines are left after the tests. On a busy machine those of the last test may take a while to end.
func TestMain(m *testing.M) {
	ticker := goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1") // one per process, see natstest
	code := m.Run()
	for began := time.Now(); code == 0; {
		err := goleak.Find(ticker)
		if err == nil {
			break
		}
		if time.Since(began) > patience {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// book is the records of a gateway in tests: one account with one key, for which no call is valid.
type book struct{}

var _ gateway.Records = book{}

func (book) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	if key != aliceKey {
		return "", schemas.Errorf(schemas.Denied, "no")
	}
	return alice, nil
}

func (book) Resolve(context.Context, schemas.AccountID, schemas.Request) (schemas.Call, error) {
	return schemas.Call{}, schemas.Errorf(schemas.Unsupported, "there are no tools here")
}

// pick returns the first number in the long form of the tests, and the second in the short one.
func pick(usual, short int) int {
	if !longtest.Asked() {
		return short
	}
	return usual
}

// system is a NATS server with gateways, which clients reach through a fault proxy.
type system struct {
	t     *testing.T
	log   *natstest.Log
	bus   *streams.Bus // of who publishes
	proxy *faultproxy.Proxy
	url   string // of the proxy

	mu   sync.Mutex
	ever map[schemas.ConversationID][]streamcheck.Seen // all that was stored, in the order of the log
}

// open starts a NATS server and a fault proxy without faults. It starts no gateway: a test does, with single or serve.
func open(t *testing.T, options ...natstest.Option) *system {
	t.Helper()
	options = append([]natstest.Option{natstest.Durability("os"), natstest.Shards(2)}, options...)
	s := &system{t: t, log: natstest.Start(t, options...), ever: map[schemas.ConversationID][]streamcheck.Seen{}}
	s.bus = s.log.Bus
	var err error
	if s.proxy, err = faultproxy.Listen(t.Context(), "", 1, faultproxy.Faults{}); err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + s.proxy.Addr()
	background(t, s.proxy.Run)
	return s
}

// background calls run in a goroutine until the test ends or the returned function is called. The test fails if run returns an error.
func background(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("a part ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// host is a running gateway with its address.
type host struct {
	addr string
	stop func() // drains, as a rollout does
}

// serve starts a gateway that uses the bus.
func (s *system) serve(bus *streams.Bus, change ...func(*gateway.Options)) host {
	s.t.Helper()
	o := gateway.Options{Bus: bus, Records: book{}, Log: slog.New(slog.NewTextHandler(s.t.Output(), nil)), Grace: patience}
	for _, c := range change {
		c(&o)
	}
	l, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	gw := gateway.New(o)
	return host{l.Addr().String(), background(s.t, func(ctx context.Context) error { return gw.Run(ctx, l) })}
}

// single starts one gateway and directs the proxy to it.
func (s *system) single(change ...func(*gateway.Options)) host {
	s.t.Helper()
	h := s.serve(s.log.Open(), change...)
	s.proxy.Aim(h.addr)
	return h
}

// note returns the event number n of a conversation.
func note(conv schemas.ConversationID, n int) schemas.Event {
	c := schemas.Call{ID: schemas.CallID(fmt.Sprint("turn-", n)), Account: alice, Conversation: conv}
	text := fmt.Sprintf("line %d of %s\r\n<b>é</b> \u2028 ", n, conv) + strings.Repeat("x", n%200)
	return schemas.NewEvent(c, schemas.Message, fmt.Sprintf("%s.%d", conv, n), time.Now(), map[string]string{"text": text})
}

// store publishes an event, again and again until it is stored, and remembers it for judge. Events of one conversation must be stored one
// after the other.
func (s *system) store(e schemas.Event) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		at, err := streams.Events.Store(ctx, s.bus, e)
		if err == nil && at.Cursor.Epoch != "" {
			s.remember(e, at.Cursor)
			return
		}
		if err != nil && schemas.CodeOf(err) != schemas.Unavailable && schemas.CodeOf(err) != schemas.Timeout || ctx.Err() != nil {
			s.t.Errorf("store %s: %v", e.ID, err)
			return
		}
	}
}

func (s *system) remember(e schemas.Event, at schemas.Cursor) {
	digest, err := replaytest.Digest(e)
	if err != nil {
		s.t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ever[e.Conversation] = append(s.ever[e.Conversation], streamcheck.Seen{
		Conversation: string(e.Conversation), Cursor: at.String(), Digest: digest,
	})
}

// end returns the cursor of the last event that was stored in a conversation.
func (s *system) end(conv schemas.ConversationID) schemas.Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.ever[conv]
	if len(all) == 0 {
		return schemas.Cursor{}
	}
	c, err := schemas.ParseCursor(all[len(all)-1].Cursor)
	if err != nil {
		s.t.Error(err)
	}
	return c
}

// write stores the events from to to-1 of each conversation: number from of all, then the next of all.
func (s *system) write(convs []schemas.ConversationID, from, to int) {
	for n := from; n < to; n++ {
		for _, c := range convs {
			s.store(note(c, n))
		}
	}
}

// keepWriting stores events of all conversations, one of each every few milliseconds, until the returned function is called. That function
// returns the number of the next event.
func (s *system) keepWriting(convs []schemas.ConversationID, from int) (stop func() int) {
	s.t.Helper()
	const pace = 4 * time.Millisecond
	next := from
	end := background(s.t, func(ctx context.Context) error {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for ; ctx.Err() == nil; next++ {
			s.write(convs, next, next+1)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		return nil
	})
	return func() int { end(); return next }
}

// held returns the events of a conversation that the log has now.
func (s *system) held(conv schemas.ConversationID) (all []streamcheck.Seen) {
	s.t.Helper()
	bus := s.log.Open() // another knows the incarnation of now
	for e, err := range streams.Events.Replay(s.t.Context(), bus, string(alice)+"/"+string(conv), schemas.Cursor{}) {
		if err != nil {
			s.t.Fatalf("read %s: %v", conv, err)
		}
		digest, err := replaytest.Digest(e.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, streamcheck.Seen{Conversation: string(conv), Cursor: e.Cursor.String(), Digest: digest})
	}
	return all
}

// crowd is a group of clients that follow conversations, by every API that there is for it.
type crowd struct {
	s    *system
	end  context.CancelFunc
	ctx  context.Context //nolint:containedctx // it is of the clients, which are the crowd
	all  []*replaytest.Transcript
	work sync.WaitGroup
}

// crowd returns a group without clients.
func (s *system) crowd() *crowd {
	c := &crowd{s: s}
	c.ctx, c.end = context.WithCancel(context.Background())
	s.t.Cleanup(c.leave)
	return c
}

// leave stops all clients and waits for their end.
func (c *crowd) leave() {
	c.end()
	c.work.Wait()
}

// rejoin starts a client for each transcript, which continues where the transcript ends.
func (c *crowd) rejoin(all ...*replaytest.Transcript) {
	for _, tr := range all {
		f := c.wayOf(tr.Way)
		c.work.Go(func() {
			if err := tr.Write(c.ctx, f); err != nil {
				c.s.t.Error(err)
			}
		})
	}
	c.all = append(c.all, all...)
}

// transport returns an HTTP client with connections of its own, which are closed at the end of the test.
func (c *crowd) transport() *http.Client {
	tr := &http.Transport{}
	c.s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (c *crowd) client() *client.Client {
	cl := client.New(c.s.url, aliceKey)
	cl.Pause, cl.HTTP = 20*time.Millisecond, c.transport()
	return cl
}

// socket opens a WebSocket that runs until the crowd leaves.
func (c *crowd) socket() *client.Socket {
	sock := c.client().Socket()
	c.work.Go(func() {
		if err := sock.Run(c.ctx); err != nil {
			c.s.t.Errorf("a socket ended: %v", err)
		}
	})
	return sock
}

// join starts a client for each conversation, which follows it and writes a transcript.
func (c *crowd) join(way string, follow replaytest.Follow, convs ...schemas.ConversationID) []*replaytest.Transcript {
	var joined []*replaytest.Transcript
	for _, conv := range convs {
		tr := replaytest.NewTranscript(conv, way)
		joined = append(joined, tr)
		c.work.Go(func() {
			if err := tr.Write(c.ctx, follow); err != nil {
				c.s.t.Error(err)
			}
		})
	}
	c.all = append(c.all, joined...)
	return joined
}

// ways returns, by name, functions that make a client: one for each API by which conversations can be followed.
func (c *crowd) ways(i int) map[string]func() replaytest.Follow {
	return map[string]func() replaytest.Follow{
		fmt.Sprint("socket ", i):       func() replaytest.Follow { return c.socket().Follow },
		fmt.Sprint("event stream ", i): func() replaytest.Follow { return c.client().Events },
		fmt.Sprint("long poll ", i): func() replaytest.Follow {
			return replaytest.Poller{Base: c.s.url, Key: aliceKey, Limit: 50 + 13*i, Wait: 5 * time.Second, HTTP: c.transport()}.Follow
		},
	}
}

// wayOf makes a client of the kind that the name has: one for each transcript, also for those of other crowds.
func (c *crowd) wayOf(name string) replaytest.Follow {
	for way, follow := range c.ways(0) {
		if kind, _, _ := strings.Cut(way, " 0"); strings.HasPrefix(name, kind) {
			return follow()
		}
	}
	c.s.t.Fatalf("%s: there is no such client", name)
	return nil
}

// everyWay starts n clients of each kind for each conversation.
func (c *crowd) everyWay(n int, convs ...schemas.ConversationID) {
	for i := range n {
		for way, follow := range c.ways(i) {
			c.join(way, follow(), convs...)
		}
	}
}

// caughtUp waits until every client has seen the last stored event. Then it stores one more event in each conversation and waits for that
// too: an event that is wrongly sent twice would arrive before it.
func (c *crowd) caughtUp() {
	c.s.t.Helper()
	for _, marker := range []bool{false, true} {
		if marker {
			for conv := range c.s.ever {
				c.s.store(note(conv, 1_000_000))
			}
		}
		c.reached()
	}
}

// reached waits until every client has seen the last event that was stored.
func (c *crowd) reached() {
	c.s.t.Helper()
	ctx, cancel := context.WithTimeout(c.s.t.Context(), patience)
	defer cancel()
	for _, tr := range c.all {
		end := c.s.end(tr.Conversation)
		if err := tr.Until(ctx, func(last schemas.Cursor, _ int) bool { return last.Epoch == end.Epoch && last.Seq >= end.Seq }); err != nil {
			c.s.t.Fatalf("%v; the end is %s", err, end)
		}
	}
}

// judge compares all transcripts with what was stored and what the log still has. It returns the number of events that clients have seen.
func (c *crowd) judge() (seen int) {
	c.s.t.Helper()
	faults, gaps := 0, 0
	still := map[schemas.ConversationID][]streamcheck.Seen{}
	for _, tr := range c.all {
		if still[tr.Conversation] == nil {
			still[tr.Conversation] = c.s.held(tr.Conversation)
		}
		found, err := tr.Judge(c.s.ever[tr.Conversation], still[tr.Conversation])
		if err != nil {
			c.s.t.Error(err)
		}
		for _, f := range found[:min(len(found), 3)] {
			c.s.t.Errorf("%s: %s", tr.Way, f)
		}
		faults, gaps, seen = faults+len(found), gaps+len(tr.Gaps()), seen+tr.Count()
	}
	c.s.t.Logf("%d readers saw %d events over %d connections, of which %d were cut: %d gaps told, %d faults",
		len(c.all), seen, c.s.proxy.Connections(), c.s.proxy.Cuts(), gaps, faults)
	return seen
}

// whole fails unless every client has seen every stored event without a gap. It judges the transcripts too.
func (c *crowd) whole() {
	c.s.t.Helper()
	for _, tr := range c.all {
		if want := len(c.s.ever[tr.Conversation]); tr.Count() != want || len(tr.Gaps()) > 0 || tr.Lives() > 1 {
			c.s.t.Errorf("%s saw %d events of %s, want %d; gaps %v, caught up %d times", tr.Way, tr.Count(),
				tr.Conversation, want, tr.Gaps(), tr.Lives())
		}
	}
	c.judge()
}

// names returns n conversations.
func names(n int) []schemas.ConversationID {
	all := make([]schemas.ConversationID, n)
	for i := range all {
		all[i] = schemas.ConversationID(fmt.Sprintf("chat/%d@x", i))
	}
	return all
}
