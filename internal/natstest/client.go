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

const within = 90 * time.Second // of everything that must happen at all

// Client is a plain NATS client, as an outside publisher has one. Its methods fail the test in
// place of returning errors.
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

// flush waits until the server has what was sent. It takes a context and no timeout, as all methods here: for timeouts the NATS client has
// a pool of timers for the process, and one that was made in a bubble of virtual time ends a process that takes it elsewhere.
func (c *Client) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}

// Publish sends a message and waits until the server has it.
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

// Request asks and returns the answer. It asks again while there is no responder yet: a service opens in its own time.
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

// Inbox is a subscription to an inbox of one's own.
type Inbox struct {
	Subject string
	sub     *nats.Subscription
}

// Inbox subscribes to a new inbox and waits until the server knows.
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

// Purge removes what a stream holds on a subject but for the last keep messages, as retention does
// in time.
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

// DeleteStream removes a stream, as an operator may who starts over. The next process that opens the log creates it again.
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

// Count counts the messages of a subject from its return on.
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
