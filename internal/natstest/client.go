package natstest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const within = 90 * time.Second // limit of everything that is expected to happen

// Client is a plain NATS client, such as that of an external publisher. Its methods fail the test instead of returning errors.
type Client struct{ nc *nats.Conn }

// Dial connects to a server as a user; the connection is closed when the test ends.
func Dial(tb testing.TB, url, user, password string) *Client {
	tb.Helper()
	nc, err := nats.Connect(url, nats.UserInfo(user, password), nats.Timeout(within))
	if err != nil {
		tb.Fatalf("connect as %s: %v", user, err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	tb.Cleanup(func() {
		nc.Close()
		<-closed
	})
	return &Client{nc}
}

// flush waits until the server has received all messages. Like all methods here it has a context rather than a timeout: for timeouts the
// NATS client uses a pool of timers, and a timer that was created in a bubble of virtual time must not be used outside of it.
func (c *Client) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}

// Publish publishes a message and waits until the server has received it.
func (c *Client) Publish(tb testing.TB, subject string, headers map[string]string, data string) {
	tb.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(data)
	for k, v := range headers {
		m.Header.Set(k, v)
	}
	if err := c.nc.PublishMsg(m); err != nil {
		tb.Fatalf("publish %s: %v", subject, err)
	}
	if err := c.flush(); err != nil {
		tb.Fatalf("publish %s: %v", subject, err)
	}
}

// Request sends a request and returns the answer. It retries while there is no responder, because services start asynchronously.
func (c *Client) Request(tb testing.TB, subject, data string) []byte {
	tb.Helper()
	for end := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		m, err := c.nc.RequestWithContext(ctx, subject, []byte(data))
		cancel()
		if err == nil {
			return m.Data
		}
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(end) {
			tb.Fatalf("request %s: %v", subject, err)
		}
	}
}

// Inbox is a subscription to an inbox.
type Inbox struct {
	Subject string
	sub     *nats.Subscription
}

// Inbox subscribes to a new inbox and waits until the server has processed the subscription.
func (c *Client) Inbox(tb testing.TB) Inbox {
	tb.Helper()
	subject := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(subject)
	if err == nil {
		err = c.flush()
	}
	if err != nil {
		tb.Fatalf("subscribe %s: %v", subject, err)
	}
	return Inbox{subject, sub}
}

// Next waits for a message.
func (i Inbox) Next(tb testing.TB) []byte {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	m, err := i.sub.NextMsgWithContext(ctx)
	if err != nil {
		tb.Fatalf("nothing came to %s: %v", i.Subject, err)
	}
	return m.Data
}

// Purge removes the messages of a subject from a stream, except for the last keep ones, as retention does in time.
func (c *Client) Purge(tb testing.TB, stream, subject string, keep uint64) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	js, err := jetstream.New(c.nc)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := js.Stream(ctx, stream)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeKeep(keep))
	}
	if err != nil {
		tb.Fatalf("purge %s of %s: %v", subject, stream, err)
	}
}

// DeleteStream deletes a stream, like an operator who starts over. The next process that opens the log creates it again.
func (c *Client) DeleteStream(tb testing.TB, stream string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	js, err := jetstream.New(c.nc)
	if err == nil {
		err = js.DeleteStream(ctx, stream)
	}
	if err != nil {
		tb.Fatalf("delete %s: %v", stream, err)
	}
}

// Count counts the messages of a subject from now on. The returned function returns their number.
func (c *Client) Count(tb testing.TB, subject string) func() int {
	tb.Helper()
	var n atomic.Int64
	if _, err := c.nc.Subscribe(subject, func(*nats.Msg) { n.Add(1) }); err != nil {
		tb.Fatalf("subscribe to %s: %v", subject, err)
	}
	if err := c.flush(); err != nil {
		tb.Fatalf("subscribe to %s: %v", subject, err)
	}
	return func() int { return int(n.Load()) }
}
