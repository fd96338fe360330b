package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Crowd is the size of a benchmark with clients that follow conversations. The log and the clients are in this process. Each gateway is a
// process of its own, so that its memory and processor time can be measured, but all share the cores of the host.
type Crowd struct {
	Program     string        // sandjet
	Clients     int           // sockets in ReplayIdle and ReplayStorm; ReplayLive uses fewer
	Rounds      int           // number of paired measurements
	Interleaved int           // number of conversations that are interleaved in the log; in ReplayCold also the number of events of each
	Live        time.Duration // duration of each measurement of live events
}

const (
	hotSockets   = 64
	hotEvents    = 500 // of the conversation that all clients read, which fits into the gateway's ring
	hotReplays   = 40  // of each socket in one round
	missedEvents = 200
	perStorm     = 20 // clients of one conversation in ReplayStorm
	perLive      = 10 // sockets of one conversation in ReplayLive
	liveRate     = 1000
	smallRoom    = 4 << 10
	mediumRoom   = 16 << 10
	largeRoom    = 64 << 10
	kib          = 1 << 10
	handshakes   = 200    // of clients in ReplayStorm, at the same time
	longEvents   = 20_000 // of the conversation that stalled clients request: some 10 MB
	spareFiles   = 200
)

// world opens a log for a crowd. Code invalid: this process may not open enough files.
func (c Crowd) world(ctx context.Context, shards int) (*replayWorld, error) {
	files, err := openFiles()
	if err != nil {
		return nil, err
	}
	if need := c.Clients + spareFiles; uint64(need) > files {
		return nil, schemas.Invalidf("clients", "%d sockets need %d open files, and %d are allowed: raise the limit (ulimit -n)",
			c.Clients, need, files)
	}
	return openReplayWorld(ctx, c.Program, shards)
}

// names returns the names of n conversations.
func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = prefix + strconv.Itoa(i)
	}
	return all
}

// withGate runs a gateway while do runs.
func (w *replayWorld) withGate(ctx context.Context, sockets int, do func(*gate) error) error {
	g, err := w.open(ctx, sockets)
	if err != nil {
		return err
	}
	defer g.stop()
	if err := do(g); err != nil {
		return fmt.Errorf("%w: %s", err, g.errors)
	}
	return nil
}

// settle returns how long a gateway is idle before its memory is read.
func (c Crowd) settle() time.Duration { const part = 3; return c.Live / part }

// settled returns the gateway's use of resources after a pause.
func (g *gate) settled(ctx context.Context, wait time.Duration) (use, error) {
	select {
	case <-time.After(wait):
		return g.use(ctx)
	case <-ctx.Done():
		return use{}, ctx.Err()
	}
}

// ReplayHot measures the replay of events that the gateway has in memory, through sockets, compared with an ordered consumer for each
// client.
func ReplayHot(ctx context.Context, size Crowd) (Report, error) {
	w, err := size.world(ctx, 1)
	if err != nil {
		return Report{}, err
	}
	defer w.close(ctx)
	const alone, conv = "c_alone", "c_hot"
	if err := w.fill(ctx, []string{alone}, hotEvents); err != nil {
		return Report{}, err
	}
	if err := w.fill(ctx, append(names("c_other_", size.Interleaved-1), conv), hotEvents); err != nil {
		return Report{}, err
	}
	sockets := min(hotSockets, size.Clients)
	var ours, packed crossing
	var bare, bareAlone []float64
	err = w.withGate(ctx, sockets, func(g *gate) error {
		all, err := g.crowd(ctx, sockets, largeRoom, func(int) string { return conv }, fromStart)
		if err != nil {
			return err
		}
		defer cutAll(all)
		batched := make([]*follower, sockets)
		defer func() { cutAll(batched) }()
		err = each(sockets, sockets, func(i int) (err error) {
			if batched[i], err = g.packed(ctx, largeRoom); err != nil {
				return err
			}
			if err = batched[i].attach(conv, fromStart(i)); err != nil {
				return err
			}
			return batched[i].until(opLive)
		})
		if err != nil {
			return err
		}
		for range size.Rounds {
			for name, rates := range map[string]*[]float64{alone: &bareAlone, conv: &bare} {
				rate, err := w.bareReplay(ctx, name, hotEvents, sockets)
				if err != nil {
					return err
				}
				*rates = append(*rates, rate)
			}
			if err := ours.replayAll(ctx, g, all, conv); err != nil {
				return err
			}
			if err := packed.replayAll(ctx, g, batched, conv); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return Report{}, err
	}
	return Report{
		Title: fmt.Sprintf("Replay of %d events to %d clients, from memory", hotEvents, sockets), Machine: machine(),
		Rows: []Row{
			row(fmt.Sprintf("one ordered consumer per client, %d conversations interleaved", size.Interleaved), "events/s", bare),
			row("one ordered consumer per client, a run of the log without any other", "events/s", bareAlone),
			row("Sandjet, through WebSockets", "events/s", ours.rates),
			row("processor time of the gateway per event", "ns", ours.cost),
			row("bytes on the wire per event", "bytes", ours.bytes),
			row("Sandjet, in compressed batches", "events/s", packed.rates),
			row("processor time of the gateway per event, in compressed batches", "ns", packed.cost),
			row("bytes on the wire per event, in compressed batches", "bytes", packed.bytes),
		},
		Ratios: []Ratio{
			ratio("Sandjet / ordered consumers, interleaved", "≥ 50", ours.rates, bare),
			ratio("Sandjet / ordered consumers, nothing interleaved", "", ours.rates, bareAlone),
			ratio("bytes as they are / in compressed batches", "", ours.bytes, packed.bytes),
		},
		Notes: []string{"Aim: at least 1,000,000 a second on two cores. Ordered consumers bring the events no further than into one process, " +
			"Sandjet through a socket to each client. The clients take their share of the same cores and check every event's predecessor."},
	}, nil
}

// replayAgain detaches from the conversation and replays it from its beginning, that many times.
func replayAgain(f *follower, conv string, times int) error {
	for range times {
		if err := f.detach(); err != nil {
			return err
		}
		if err := f.until(opDetached); err != nil {
			return err
		}
		if err := f.attach(conv, []byte(startCursor)); err != nil {
			return err
		}
		if err := f.until(opLive); err != nil {
			return err
		}
		if f.events != hotEvents || f.faults > 0 {
			return schemas.OpErrorf(schemas.Internal, "replay", "a client saw %d of %d events, %d of them wrong", f.events, hotEvents, f.faults)
		}
	}
	return nil
}

// source returns the stream and the subject of a conversation.
func (w *replayWorld) source(ctx context.Context, conv string) (stream, subject string, err error) {
	page, err := streams.ReadEvents(ctx, w.bus, benchAccount, schemas.ConversationID(conv), 1, 1)
	if err != nil {
		return "", "", err
	}
	subject = page.Events[0].Subject
	if stream, err = w.js.StreamNameBySubject(ctx, subject); err != nil {
		return "", "", fmt.Errorf("bare: find the stream: %w", err)
	}
	return stream, subject, nil
}

// bareReplay reads a conversation with an ordered consumer for each client, and returns the events per second.
func (w *replayWorld) bareReplay(ctx context.Context, conv string, events, clients int) (perSecond float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, replayWithin)
	defer cancel()
	stream, subject, err := w.source(ctx, conv)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := each(clients, clients, func(int) error { return w.bareRead(ctx, stream, subject, events) }); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return float64(events*clients) / took.Seconds(), w.forgetConsumers(ctx, stream)
}

// forgetConsumers removes the consumers that ordered consumers leave behind: for minutes they count against the limit of a stream.
func (w *replayWorld) forgetConsumers(ctx context.Context, stream string) error {
	s, err := w.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("bare: find the stream: %w", err)
	}
	list := s.ListConsumers(ctx)
	for c := range list.Info() {
		if c.Config.Durable != "" {
			continue
		}
		if err := s.DeleteConsumer(ctx, c.Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("bare: remove a consumer: %w", err)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("bare: list consumers: %w", err)
	}
	return nil
}

// bareRead reads a subject's first events with an ordered consumer.
func (w *replayWorld) bareRead(ctx context.Context, stream, subject string, events int) error {
	c, err := w.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		return fmt.Errorf("bare: make a consumer: %w", err)
	}
	it, err := c.Messages(jetstream.PullMaxMessages(min(events, hotEvents)))
	if err != nil {
		return fmt.Errorf("bare: read: %w", err)
	}
	defer it.Stop()
	for range events {
		if _, err := it.Next(jetstream.NextContext(ctx)); err != nil {
			return fmt.Errorf("bare: read: %w", err)
		}
	}
	return nil
}
