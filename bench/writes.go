package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// writes is the messages that Sandjet writes to the log for a call, without anything else: no validation, no checks, no worker. The
// streams have the same settings, the messages the same conditions and ids and about the same size. Ours cannot be faster as long as a
// call needs these four messages; docs/BENCHMARKS.md explains each.
type writes struct {
	*bare

	body []byte
}

const (
	writesCalls  = "WRITES_CALLS"
	writesEvents = "WRITES_EVENTS"
)

func openWrites(ctx context.Context) (*writes, error) {
	b, err := openBare(ctx)
	if err != nil {
		return nil, err
	}
	w := &writes{bare: b, body: make([]byte, 400)}
	if err := w.make(ctx); err != nil {
		b.close()
		return nil, err
	}
	return w, nil
}

func (w *writes) make(ctx context.Context) (err error) {
	for _, c := range []jetstream.StreamConfig{
		{Name: writesCalls, Subjects: []string{"writes.calls.*.*"}, MaxMsgsPerSubject: 1, AllowAtomicPublish: true, AllowMsgSchedules: true,
			AllowDirect: true, Compression: jetstream.S2Compression},
		{Name: writesEvents, Subjects: []string{"writes.events.*"}, MaxMsgsPerSubject: 1_000_000, AllowAtomicPublish: true,
			AllowDirect: true, Compression: jetstream.S2Compression, Duplicates: 10 * time.Minute,
			RePublish: &jetstream.RePublish{Source: "writes.events.*", Destination: "writes.live.{{wildcard(1)}}"}},
	} {
		if _, err := w.js.CreateStream(ctx, c); err != nil {
			return fmt.Errorf("writes: create %s: %w", c.Name, err)
		}
	}
	w.work, err = w.js.CreateConsumer(ctx, writesCalls, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		return fmt.Errorf("writes: create the consumer: %w", err)
	}
	return nil
}

// accept writes a call and its acceptance.
func (w *writes) accept(ctx context.Context, id string) error {
	if err := w.call(ctx, id); err != nil {
		return err
	}
	return w.event(ctx, id, "accepted")
}

// call writes a call, unless one with its id exists.
func (w *writes) call(ctx context.Context, id string) error {
	m := nats.NewMsg("writes.calls.provider." + id)
	m.Data = w.body
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, "writes.calls.*."+id)
	if _, err := w.js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("writes: publish a call: %w", err)
	}
	return nil
}

// event writes one event of a call; a hundred calls share a subject.
func (w *writes) event(ctx context.Context, id, kind string) error {
	const shared = 2 // digits
	m := nats.NewMsg("writes.events.c" + id[:max(len(id)-shared, 0)])
	m.Data = w.body
	m.Header.Set(jetstream.MsgIDHeader, "acct."+id+"."+kind)
	if _, err := w.js.PublishMsg(ctx, m); err != nil {
		return fmt.Errorf("writes: publish an event: %w", err)
	}
	return nil
}

// serve writes the start and the result of each call until ctx ends, and calls done after each ack.
func (w *writes) serve(ctx context.Context, slots int, done func()) error {
	it, err := w.work.Messages(jetstream.PullMaxMessages(slots * 2))
	if err != nil {
		return fmt.Errorf("writes: pull: %w", err)
	}
	defer context.AfterFunc(ctx, it.Stop)()
	var hands sync.WaitGroup
	defer hands.Wait()
	for range slots {
		hands.Go(func() {
			for {
				m, err := it.Next()
				if err != nil {
					return
				}
				id := m.Subject()[len("writes.calls.provider."):]
				if w.event(ctx, id, "started") != nil || w.event(ctx, id, "finished") != nil {
					return
				}
				if m.Ack() == nil {
					done()
				}
			}
		})
	}
	return nil
}

func writesRun(ctx context.Context, n, slots int) (float64, error) {
	w, err := openWrites(ctx)
	if err != nil {
		return 0, err
	}
	defer w.close()
	var serial counter
	return throughput(ctx, n, func(ctx context.Context, done func()) error { return w.serve(ctx, slots, done) },
		func() error { return w.accept(ctx, serial.next()) })
}

// throughput returns how many calls per second are accepted and served, of n calls.
func throughput(ctx context.Context, n int, serve func(ctx context.Context, done func()) error, accept func() error) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, all := countdown(n)
	served := make(chan error, 1)
	go func() { served <- serve(ctx, done) }()
	start := time.Now()
	if err := produce(n, producers, accept); err != nil {
		return 0, err
	}
	if err := waitFor(ctx, all); err != nil {
		return 0, err
	}
	rate := float64(n) / time.Since(start).Seconds()
	cancel()
	return rate, <-served
}
