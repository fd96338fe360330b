package crashtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// replaySize is how much TestEveryEventOnceInSpiteOfKills does.
type replaySize struct {
	kills   int // of each role
	readers int // of each kind
	pause   time.Duration
}

func replaySizeOf(t *testing.T) replaySize {
	t.Helper()
	if sizeOf().kills > 1 {
		return replaySize{kills: 5, readers: 4, pause: 1500 * time.Millisecond}
	}
	return replaySize{kills: 2, readers: 1, pause: 800 * time.Millisecond}
}

// TestEveryEventOnceInSpiteOfKills: while events are appended and clients follow, the server and the gateway are killed with SIGKILL and
// started again, many times. At the end every accepted event is on the log once, and each client has seen the log whole and in order.
//
//guarantee:a-conversation-has-no-holes
func TestEveryEventOnceInSpiteOfKills(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "readers in spite of kills; calls in spite of kills are in the short form")
	size, seed := replaySizeOf(t), longtest.Seed(t)
	t.Logf("%+v", size)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	c := startPair(ctx, t)
	conversations := []schemas.ConversationID{"replay-1", "replay-2"}

	readers, leave := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	var all []*replaytest.Transcript
	for i := range size.readers {
		for way, follow := range c.ways(readers, t, &clients) {
			for _, conv := range conversations {
				tr := replaytest.NewTranscript(conv, fmt.Sprint(way, " ", i))
				all = append(all, tr)
				clients.Go(func() {
					if err := tr.Write(readers, follow); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}

	writing, enough := context.WithCancel(ctx)
	accepted := make(map[schemas.ConversationID]int)
	var mu sync.Mutex
	var writers sync.WaitGroup
	for _, conv := range conversations {
		writers.Go(func() {
			n := 0
			for ; writing.Err() == nil; n++ {
				c.append(ctx, t, conv, n)
			}
			mu.Lock()
			defer mu.Unlock()
			accepted[conv] = n
		})
	}
	random := rand.New(rand.NewPCG(seed, 3))
	for range size.kills {
		for _, p := range c.roles {
			pause(ctx, size.pause/4+time.Duration(random.Int64N(int64(size.pause))))
			c.log.note("--- kill -9 " + p.name)
			p.kill()
			pause(ctx, time.Duration(random.Int64N(int64(size.pause))))
			c.revive(t, p)
		}
	}
	enough()
	writers.Wait()

	log := c.readLog(ctx, t, conversations)
	for _, conv := range conversations {
		ids := map[string]int{}
		for _, e := range log[conv] {
			ids[e.id]++
		}
		if len(log[conv]) != accepted[conv] || len(ids) != accepted[conv] {
			t.Errorf("%s: %d events on the log, %d different, want the %d that were accepted", conv, len(log[conv]), len(ids), accepted[conv])
		}
	}
	seen := 0
	for _, tr := range all {
		ever := seenOf(log[tr.Conversation])
		end := log[tr.Conversation][len(ever)-1].at
		if err := tr.Until(ctx, func(last schemas.Cursor, _ int) bool { return last == end }); err != nil {
			t.Errorf("%v; the end is %s", err, end)
		}
		faults, err := tr.Judge(ever, ever)
		if err != nil || len(faults) > 0 || len(tr.Gaps()) > 0 {
			t.Errorf("%s: %v, gaps %v, %d faults: %v", tr.Way, err, tr.Gaps(), len(faults), faults[:min(len(faults), 3)])
		}
		seen += tr.Count()
	}
	for _, p := range c.roles {
		t.Logf("%s was killed %d times", p.name, p.kills)
	}
	t.Logf("%d readers saw %d events, accepted were %v", len(all), seen, accepted)
}

// ways are one client of each kind.
func (c *cluster) ways(ctx context.Context, t *testing.T, clients *sync.WaitGroup) map[string]replaytest.Follow {
	t.Helper()
	cl := client.New("http://"+c.gateway, c.key)
	cl.Pause = 50 * time.Millisecond
	socket := cl.Socket()
	clients.Go(func() {
		if err := socket.Run(ctx); err != nil {
			t.Errorf("a socket ended: %v", err)
		}
	})
	poll := replaytest.Poller{Base: "http://" + c.gateway, Key: c.key, Limit: 20, Wait: 5 * time.Second, HTTP: http.DefaultClient}
	return map[string]replaytest.Follow{"socket": socket.Follow, "event stream": cl.Events, "long poll": poll.Follow}
}

// append adds one event to a conversation until it is accepted.
func (c *cluster) append(ctx context.Context, t *testing.T, conv schemas.ConversationID, n int) {
	t.Helper()
	status, answer, err := c.ask(ctx, http.MethodPost, "/v1/conversations/"+url.PathEscape(string(conv))+"/events", schemas.AppendedEvent{
		ID: fmt.Sprint("event-", n), Type: schemas.Message, Data: fmt.Appendf(nil, `{"text":"number %d"}`, n),
	})
	if err != nil || status != http.StatusCreated && status != http.StatusOK {
		t.Errorf("event %d of %s: %d %s %v", n, conv, status, answer, err)
	}
}

// logged is an event as the log has it.
type logged struct {
	id   string
	at   schemas.Cursor
	seen streamcheck.Seen
}

// readLog reads conversations past the gateway.
func (c *cluster) readLog(ctx context.Context, t *testing.T, conversations []schemas.ConversationID) map[schemas.ConversationID][]logged {
	t.Helper()
	role := c.credential(t)
	bus, err := streams.Open(ctx, streams.Options{URL: role.URL, User: role.User, Password: role.Password, Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Close(ctx) }()
	return readBus(ctx, t, bus, conversations)
}

func seenOf(all []logged) []streamcheck.Seen {
	seen := make([]streamcheck.Seen, 0, len(all))
	for _, e := range all {
		seen = append(seen, e.seen)
	}
	return seen
}
