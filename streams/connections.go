package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/natserr"
)

const (
	roleLive       = "live" // of the connection for live events
	asyncInFlight  = 1024
	reconnectAfter = 100 * time.Millisecond

	// When a server starts again, all processes come at once. They spread themselves over a moment, which is short beside the lives of
	// leases: a worker that came back after [LeaseTTL] would be taken for dead.
	reconnectJitter = 150 * time.Millisecond
	reconnectSpread = time.Second
)

// connections are the connections of one process to the log. There are several so that one kind of work does not wait behind another:
// publishes, deliveries with their acknowledgements, live events, and bulk reads. They are safe for concurrent use once open.
type connections struct {
	options Options
	log     *slog.Logger

	publish, work, live, bulk   *nats.Conn
	js                          jetstream.JetStream // on publish
	jsWork                      jetstream.JetStream // on work
	jsBulk                      jetstream.JetStream // on bulk
	acks, acksWork              *acks.Publisher     // on publish and work
	publishChanges, workChanges acks.Reconnects     // of publish and work

	drops  wait.Broadcast // notified when the connection of live events has reconnected
	slow   sync.Map       // what to do when a subscription to live events fell behind: func() by *nats.Subscription
	closed atomic.Bool
}

// dialAll opens the connections.
func (c *connections) dialAll(ctx context.Context) (err error) {
	for _, d := range []struct {
		conn **nats.Conn
		role string
		more []nats.Option
	}{
		{&c.publish, "publish", nil},
		{&c.work, "work", nil},
		{&c.live, roleLive, []nats.Option{nats.ReconnectHandler(func(*nats.Conn) { c.drops.Notify() })}},
		{&c.bulk, "bulk", nil},
	} {
		if *d.conn, err = c.dial(ctx, d.role, d.more...); err != nil {
			return err
		}
	}
	c.publishChanges.Watch(c.publish)
	c.workChanges.Watch(c.work)
	for _, j := range []struct {
		js   *jetstream.JetStream
		conn *nats.Conn
	}{{&c.js, c.publish}, {&c.jsWork, c.work}, {&c.jsBulk, c.bulk}} {
		*j.js, err = jetstream.New(j.conn, jetstream.WithPublishAsyncMaxPending(asyncInFlight), jetstream.WithDefaultTimeout(requestWithin),
			jetstream.WithPublishAsyncTimeout(2*requestWithin))
		if err != nil {
			return natserr.Coded("connect to the log", err)
		}
	}
	if c.acks, err = acks.New(c.publish); err != nil {
		return err
	}
	c.acksWork, err = acks.New(c.work)
	return err
}

func (c *connections) dial(ctx context.Context, role string, more ...nats.Option) (*nats.Conn, error) {
	const op = "connect to the log"
	o := c.options
	options := []nats.Option{
		nats.Name(o.Name + "-" + role), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1), nats.Timeout(requestWithin),
		nats.CustomReconnectDelay(c.reconnectDelay),
		nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { c.asyncError(role, s, err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil && !c.closed.Load() { // without an error it is this process that closes it, as a service does at its end
				c.log.Warn("connection to the log lost", "connection", role, "error", err)
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

// insist opens a connection of a long-lived part. Since the server may have become unavailable after the Bus was opened, it retries open
// while its code is unavailable, until ctx ends.
func (c *connections) insist(ctx context.Context, role string, open func() error) error {
	again := wait.Backoff{First: reconnectAfter, Most: 2 * time.Second}
	for failed := 1; ; failed++ {
		err := open()
		if schemas.CodeOf(err) != schemas.Unavailable || ctx.Err() != nil {
			return err
		}
		c.log.Warn("connection to the log not made, retrying", "connection", role, "error", err)
		if !again.Sleep(ctx, failed) {
			return err
		}
	}
}

// where names the server without secrets of its URL.
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

func (c *connections) asyncError(role string, s *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		c.fellBehind(role, s)
	}
	subject := ""
	if s != nil {
		subject = s.Subject
	}
	if !c.closed.Load() {
		c.log.Warn("NATS client error", "connection", role, "subject", subject, "error", err)
	}
}

// fellBehind makes the readers of a live subscription, of which messages were dropped, read the log. Readers of other subscriptions and
// connections are not affected.
func (c *connections) fellBehind(role string, s *nats.Subscription) {
	if behind, ok := c.slow.Load(s); ok {
		if f, ok := behind.(func()); ok {
			f()
			return
		}
	}
	if role == roleLive { // it fell behind before it was known by whom
		c.drops.Notify()
	}
}

// reconnectDelay returns the pause before reconnect number attempt. The first is short, since most losses concern one connection.
func (c *connections) reconnectDelay(attempt int) time.Duration {
	most := reconnectJitter
	if c.options.Server == nil { // others come too
		most = min(reconnectJitter<<min(max(attempt-1, 0), 3), reconnectSpread) // it has the whole spread then
	}
	return reconnectAfter + wait.Upto(most)
}

// spread waits for a random time, so that all processes do not send their requests at once when a server returns.
func (c *connections) spread(ctx context.Context) {
	if c.options.Server == nil {
		wait.Sleep(ctx, wait.Upto(reconnectSpread))
	}
}

// flush waits until what was sent has reached the server, or ctx ends.
func (c *connections) flush(ctx context.Context) {
	for _, conn := range c.all() {
		if conn.IsConnected() {
			if err := conn.FlushWithContext(deadlined(ctx)); err != nil && ctx.Err() == nil {
				c.log.Debug("connection not flushed at its end", "error", err)
			}
		}
	}
}

// closeAll ends the connections that are open, at once.
func (c *connections) closeAll() {
	c.closed.Store(true)
	for _, conn := range c.all() {
		if conn != nil {
			conn.Close()
		}
	}
	for _, a := range []*acks.Publisher{c.acks, c.acksWork} {
		if a != nil {
			a.Close()
		}
	}
}

func (c *connections) all() []*nats.Conn { return []*nats.Conn{c.work, c.publish, c.live, c.bulk} }

// deadlined gives a context without a deadline one, as the client library wants.
func deadlined(ctx context.Context) context.Context {
	if _, ok := ctx.Deadline(); ok {
		return ctx
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	context.AfterFunc(ctx, cancel)
	return ctx
}
