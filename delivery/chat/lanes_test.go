package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// crowd is a service with chats that never respond, chats that request pauses, and chats that accept everything at once.
type crowd struct {
	*service

	mu   sync.Mutex
	came map[string]time.Time // when messages to healthy chats arrived
	hung int
}

func (c *crowd) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	name, err := c.Destination(to.Route)
	switch {
	case err != nil:
		return channel.Receipt{}, err
	case strings.HasPrefix(name, "slow"):
		c.mu.Lock()
		c.hung++
		c.mu.Unlock()
		<-ctx.Done()
		return channel.Receipt{}, &channel.Error{Outcome: channel.Ambiguous, Reason: "no answer"}
	case strings.HasPrefix(name, "limited"):
		return channel.Receipt{}, &channel.Error{Outcome: channel.Limited, Reason: "too much", After: 3 * time.Second, Of: channel.PerDestination}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.came[m.Text] = time.Now()
	return channel.Receipt{ID: "1"}, nil
}

// Hundreds of slow or rate-limited chats, also of the same account, leave slots to the others: in virtual time, a message to a healthy
// chat is sent at once, although each of the slow ones occupies a slot for twenty seconds, again and again.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestSlowAndLimitedChatsLeaveOthersTheirLanes(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const slow, limited, healthy = 500, 500, 50
		c := &crowd{service: newService(channel.OnceNever), came: map[string]time.Time{}}
		d := delivery.Deliverer{
			Bus: b, Channel: "memory", Sender: &Sender{Bus: b, Channels: bot(), Adapter: c, Render: inLines},
			Waits: []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second},
			Grace: time.Second,
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		n := 0
		put := func(chat, text string, account schemas.AccountID) {
			t.Helper()
			n++
			m := toChat(n, chat, text)
			m.Route, m.Account = json.RawMessage(`{"chat":"`+chat+`"}`), account
			if err := lifecycle.Deliver(t.Context(), b, m); err != nil {
				t.Fatal(err)
			}
		}
		for i := range slow {
			put(fmt.Sprint("slow ", i), "x", "acct_1")
		}
		for i := range limited {
			put(fmt.Sprint("limited ", i), "x", "acct_1")
		}
		time.Sleep(2 * time.Minute) // by then the slow chats are known
		began := time.Now()
		for i := range healthy {
			put(fmt.Sprint("healthy ", i), fmt.Sprint("same ", i), "acct_1")
			put(fmt.Sprint("sound ", i), fmt.Sprint("other ", i), "acct_2")
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.came) != 2*healthy || c.hung < slow {
			t.Errorf("%d of %d messages came, and %d slow requests were made", len(c.came), 2*healthy, c.hung)
		}
		for text, at := range c.came {
			if at.Sub(began) > sendWithin/2 {
				t.Errorf("%s came after %s: the slow ones were waited for", text, at.Sub(began))
			}
		}
	})
}
