// Package acks publishes messages and waits for the log's confirmation, also while the log is still deciding about an earlier write.
package acks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
)

// Publisher publishes over one connection and passes each confirmation of the log to the goroutine that waits for it. It is safe for
// concurrent use.
//
// A tool call costs several publishes. The client library allocates a context, a timer, a channel, an inbox and a JSON decoder for each;
// here everything but the message is reused.
type Publisher struct {
	Conn   *nats.Conn
	prefix string // of the subjects to which the log answers; the rest is the number of the publish

	mu     sync.Mutex
	last   uint64
	waits  map[uint64]*receipt
	free   []*receipt // of those that have ended
	closed bool
}

// receipt waits for one confirmation. It is reused for another publish after wait has returned.
type receipt struct {
	number uint64
	got    chan receipted // has room for one
	timer  *time.Timer
}

// receipted is the answer to one publish.
type receipted struct {
	ack Confirmation
	err error
}

// Confirmation is the log's PubAck for one message.
type Confirmation struct {
	Seq       uint64
	Duplicate bool
}

// NoStreamPause is the pause before a publish that found no stream is repeated: the stream may be between two leaders.
const NoStreamPause = 250 * time.Millisecond

const (
	noStreamTries    = 2    // repetitions of such a publish
	mostFreeReceipts = 1024 // that are kept for reuse
)

// New subscribes to the answers of a connection.
func New(conn *nats.Conn) (*Publisher, error) {
	a := &Publisher{Conn: conn, prefix: conn.NewInbox() + ".", waits: map[uint64]*receipt{}}
	sub, err := conn.Subscribe(a.prefix+"*", a.take)
	if err != nil {
		return nil, natserr.Coded("connect to the log", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil { // bounded by what is published
		return nil, natserr.Coded("connect to the log", err)
	}
	return a, nil
}

// Publish sends a message and waits for its confirmation, for [direct.RequestTime] at most; then the error is [context.DeadlineExceeded].
// While the log is still deciding about an earlier write ([Undecided]) it sends the message again. Errors are those of the client library
// and of the server.
func (a *Publisher) Publish(ctx context.Context, m *nats.Msg) (Confirmation, error) {
	begun := time.Now()
	for try, waits := 0, 0; ; {
		r, err := a.send(m, direct.RequestTime-time.Since(begun))
		if err != nil {
			return Confirmation{}, err
		}
		ack, err := a.wait(ctx, r)
		if err == nil {
			return ack, nil
		}
		if Undecided(err) {
			waits++
			pause := ContestPause(waits)
			if time.Since(begun)+pause >= direct.RequestTime || !wait.Sleep(ctx, pause) {
				return Confirmation{}, err
			}
			continue
		}
		if !errors.Is(err, nats.ErrNoResponders) {
			return ack, err
		}
		if try == noStreamTries || !wait.Sleep(ctx, NoStreamPause) {
			return Confirmation{}, jetstream.ErrNoStreamResponse
		}
		try++
	}
}

// send sends a message. The caller must pass the receipt to wait.
func (a *Publisher) send(m *nats.Msg, within time.Duration) (*receipt, error) {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil, nats.ErrConnectionClosed
	}
	r := a.receipt(within)
	a.mu.Unlock()
	m.Reply = a.prefix + strconv.FormatUint(r.number, 36) // letters and digits
	if err := a.Conn.PublishMsg(m); err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.drop(r)
		return nil, err // the caller gives it a code
	}
	return r, nil
}

// receipt returns a receipt for the next publish. The caller holds the lock.
func (a *Publisher) receipt(within time.Duration) *receipt {
	var r *receipt
	if n := len(a.free); n > 0 {
		r = a.free[n-1]
		a.free = a.free[:n-1]
		r.timer.Reset(within)
	} else {
		r = &receipt{got: make(chan receipted, 1), timer: time.NewTimer(within)}
	}
	a.last++
	r.number = a.last
	a.waits[r.number] = r
	return r
}

// wait returns the answer to a publish, or why there is none yet.
func (a *Publisher) wait(ctx context.Context, r *receipt) (Confirmation, error) {
	var why error
	select {
	case got := <-r.got:
		a.mu.Lock()
		a.release(r)
		a.mu.Unlock()
		return got.ack, got.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-r.timer.C:
		why = context.DeadlineExceeded
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(r)
	return Confirmation{}, why
}

// drop stops waiting for an answer. The caller holds the lock.
func (a *Publisher) drop(r *receipt) {
	delete(a.waits, r.number)
	select {
	case <-r.got: // it came this moment, too late
	default:
	}
	a.release(r)
}

// release returns a receipt, for which no answer can arrive any more, to the free list. The caller holds the lock.
func (a *Publisher) release(r *receipt) {
	r.timer.Stop()
	if len(a.free) < mostFreeReceipts {
		a.free = append(a.free, r)
	}
}

// take passes an answer to the goroutine that waits for it.
func (a *Publisher) take(m *nats.Msg) {
	number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, a.prefix), 36, 64) // as in send
	if err != nil {
		return
	}
	got := receipted{}
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		got.err = nats.ErrNoResponders
	} else {
		got.ack, got.err = ParseConfirmation(m.Data)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.waits[number]; r != nil {
		delete(a.waits, number)
		r.got <- got // it has room: each number is answered once
	}
}

// Close fails all waiting publishes and refuses new ones.
func (a *Publisher) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for number, r := range a.waits {
		delete(a.waits, number)
		r.got <- receipted{err: nats.ErrConnectionClosed}
	}
}

// ParseConfirmation reads the log's answer to a publish. The form that nearly all answers have is read without a decoder, any other as
// JSON.
func ParseConfirmation(data []byte) (Confirmation, error) {
	if ack, ok := usualConfirmation(data); ok {
		return ack, nil
	}
	var a struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Seq       uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return Confirmation{}, jetstream.ErrInvalidJSAck
	}
	if a.Error != nil {
		return Confirmation{}, fmt.Errorf("nats: %w", a.Error)
	}
	if a.Stream == "" {
		return Confirmation{}, jetstream.ErrInvalidJSAck
	}
	return Confirmation{a.Seq, a.Duplicate}, nil
}

// usualConfirmation reads {"stream":"CALLS","seq":17}, with or without "duplicate": true.
func usualConfirmation(data []byte) (ack Confirmation, ok bool) {
	const longest = 18 // digits that always fit
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return ack, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte(`","seq":`))
	if !ok || len(stream) == 0 || bytes.ContainsAny(stream, `"\`) {
		return ack, false
	}
	if rest, ok = bytes.CutSuffix(rest, []byte("}")); !ok {
		return ack, false
	}
	rest, ack.Duplicate = bytes.CutSuffix(rest, []byte(`,"duplicate": true`))
	if len(rest) == 0 || len(rest) > longest || rest[0] == '0' {
		return ack, false
	}
	for _, c := range rest {
		if c < '0' || c > '9' {
			return ack, false
		}
		ack.Seq = 10*ack.Seq + uint64(c-'0') // decimal
	}
	return ack, true
}
