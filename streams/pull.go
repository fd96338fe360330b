package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/streams/natserr"
)

const (
	pullExpires = 5 * time.Second // bounds what a vanished host holds
	pullSilence = pullExpires + 2*time.Second
	drainWithin = 2 * time.Second // that the server may take to learn of an end
)

// pulling requests exactly as many messages as there are free slots, so that none ages in a buffer. Several requests may be open at once
// on one inbox; outstanding is how many messages they may still return.
type pulling struct {
	mu          sync.Mutex
	outstanding int
	lastSign    time.Time // of the last sign of the server
	over        bool      // take no more
	broken      chan error
	conn        uint64 // of the connection, when this began
}

// pull requests and receives messages until ctx ends or the consumer must be checked again. Open requests are cancelled then.
func (c *consuming[T]) pull(ctx context.Context) error {
	nc := c.bus.work
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(status)
	// Counted before the first request: a message may wait here while the connection that brought it ends and reconnects.
	p := &pulling{broken: make(chan error, 1), lastSign: time.Now(), conn: c.bus.workChanges.Count()}
	if !nc.IsConnected() { // the listener came too late for it
		return errors.New("the connection was lost")
	}
	inbox := nats.NewInbox()
	sub, err := nc.Subscribe(inbox, func(m *nats.Msg) { c.arrive(p, m) })
	if err != nil {
		return natserr.Coded("consume", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil { // bounded by what is asked for
		return natserr.Coded("consume", err)
	}
	defer func() { c.endPull(p, nc, sub) }()
	subject := "$JS.API.CONSUMER.MSG.NEXT." + c.topic.stream + "." + c.options.Name
	silence := time.NewTicker(pullExpires / 2)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-p.broken:
			return err
		case <-status:
			return errors.New("the connection was lost")
		case <-silence.C:
			if p.silent() {
				return errors.New("the server is silent")
			}
			continue
		case <-c.free.Freed():
		}
		if err := c.ask(p, nc, subject, inbox); err != nil {
			return err
		}
	}
}

// ask sends one request for the free slots. While an earlier request is open it leaves a few slots out: the next message comes by that
// request, and one request per slot would cost the server as much as the messages. After the last message of the open requests, it asks
// for all free slots.
func (c *consuming[T]) ask(p *pulling, nc *nats.Conn, subject, inbox string) error {
	const few = 4 // of as many places
	p.mu.Lock()
	if p.outstanding > 0 && c.free.Free() < c.options.Slots/few {
		p.mu.Unlock()
		return nil
	}
	n := c.free.TakeAll()
	p.outstanding += n
	p.mu.Unlock()
	if n == 0 {
		return nil
	}
	body, err := json.Marshal(struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires"`
	}{n, pullExpires})
	if err == nil {
		err = nc.PublishRequest(subject, inbox, body)
	}
	if err != nil {
		return fmt.Errorf("ask for messages: %w", err)
	}
	return nil
}

// arrive handles a message, or a status of the server about a request.
func (c *consuming[T]) arrive(p *pulling, m *nats.Msg) {
	if code := m.Header.Get("Status"); code != "" && len(m.Data) == 0 && m.Header.Get("Nats-Stream") == "" {
		c.status(p, code, m.Header)
		return
	}
	msg, err := newMessage(c.bus, m, p.conn+c.bus.publishChanges.Count())
	if err != nil {
		c.bus.log.Error("message without a sequence skipped", "subject", m.Subject, "error", err)
		return
	}
	if c.topic.timer != nil {
		c.noteFired(msg)
	}
	p.mu.Lock()
	p.lastSign = time.Now()
	over := p.over
	if !over {
		p.outstanding--
		c.inFlight.Add(1) // before it may be over: a wait for the messages in flight includes this
	}
	last := p.outstanding == 0
	p.mu.Unlock()
	if last {
		c.free.Wake()
	}
	if over { // asked for before the end: straight back
		if err := msg.nak(0); err != nil {
			c.bus.log.Debug("message not handed back, the server delivers it again", "error", err)
		}
		return
	}
	c.take(msg)
}

// status handles what the server says about a request: it has ended with so many messages undelivered, or the consumer must be checked.
func (c *consuming[T]) status(p *pulling, code string, h nats.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastSign = time.Now()
	left, err := strconv.Atoi(h.Get("Nats-Pending-Messages"))
	if err == nil && left > 0 && code == "408" {
		left = min(left, p.outstanding)
		p.outstanding -= left
		if !p.over {
			c.free.Give(left)
			return
		}
		return
	}
	switch code {
	case "100", "408":
		return
	}
	select {
	case p.broken <- fmt.Errorf("the server says: %s %s", code, h.Get("Description")):
	default:
	}
}

// silent reports whether the server should have sent something by now.
func (p *pulling) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outstanding > 0 && time.Since(p.lastSign) > pullSilence
}

// endPull stops receiving and cancels the requests. Messages that the server has already sent are nak'ed, since they would otherwise be
// redelivered only after AckWait.
func (c *consuming[T]) endPull(p *pulling, nc *nats.Conn, sub *nats.Subscription) {
	p.mu.Lock()
	p.over = true
	left := p.outstanding
	p.outstanding = 0
	p.mu.Unlock()
	c.free.Give(left)
	if nc.IsConnected() {
		ended := make(chan struct{})
		sub.SetClosedHandler(func(string) { close(ended) })
		if err := sub.Drain(); err == nil { // until the server knows of it, and arrive has nak'ed the messages before
			select {
			case <-ended:
				return
			case <-time.After(drainWithin):
			}
		}
	}
	if err := sub.Unsubscribe(); err != nil {
		c.bus.log.Debug("unsubscribe failed", "error", err)
	}
}
