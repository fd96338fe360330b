package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// ReplayStorm disconnects a crowd, publishes events that it misses, and measures how long it takes when all reconnect at once.
func ReplayStorm(ctx context.Context, size Crowd) (Report, error) {
	w, err := size.world(ctx, 1)
	if err != nil {
		return Report{}, err
	}
	defer w.close(ctx)
	var stayed, anew []time.Duration
	var cost []float64
	var last stormResult
	for round := range size.Rounds {
		for _, restart := range []bool{false, true} {
			got, err := w.storm(ctx, size.Clients, fmt.Sprintf("c_storm_%d_%t_", round, restart), restart)
			if err != nil {
				return Report{}, err
			}
			if restart {
				anew = append(anew, got.took)
			} else {
				stayed = append(stayed, got.took)
				cost = append(cost, got.cpu.Seconds())
			}
			last.lost += got.lost
			last.wrong += got.wrong
			last.consumers += got.consumers
		}
	}
	r := Report{
		Title:   fmt.Sprintf("A storm: %d clients come back at once, each for %d missed events", size.Clients, missedEvents),
		Machine: machine(),
		Rows: []Row{
			durations("all of them live, the network was away", time.Second, stayed),
			row("processor time of the gateway for that", "s", cost),
			durations("all of them live, the gateway was started anew", time.Second, anew),
		},
		Notes: []string{
			fmt.Sprintf("%d events lost, %d doubled or out of order, %d consumers left, in all rounds together.",
				last.lost, last.wrong, last.consumers),
			fmt.Sprintf("Aims: at most 5 s, and three times none. Every %d clients follow one conversation; each checks every event's predecessor.",
				perStorm),
		},
	}
	return r, nil
}

type stormResult struct {
	took                   time.Duration
	cpu                    time.Duration
	lost, wrong, consumers int
}

// storm runs one storm. With restart the clients reconnect to another gateway, which has nothing in memory.
func (w *replayWorld) storm(ctx context.Context, clients int, prefix string, restart bool) (r stormResult, err error) {
	conversations := names(prefix, max(clients/perStorm, 1))
	if err := w.fill(ctx, conversations, 1); err != nil {
		return r, err
	}
	g, err := w.open(ctx, clients)
	if err != nil {
		return r, err
	}
	defer func() { g.stop() }()
	conv := func(i int) string { return conversations[i%len(conversations)] }
	all, err := g.crowd(ctx, clients, smallRoom, conv, fromStart)
	if err != nil {
		return r, err
	}
	cutAll(all)
	if restart {
		g.stop()
		if g, err = w.open(ctx, clients); err != nil {
			return r, err
		}
	}
	consumers, err := w.consumers(ctx)
	if err != nil {
		return r, err
	}
	if err := w.fill(ctx, conversations, missedEvents); err != nil {
		return r, err
	}
	before, err := g.use(ctx)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := g.comeBack(ctx, all); err != nil {
		return r, err
	}
	r.took = time.Since(began)
	defer cutAll(all)
	after, err := g.use(ctx)
	if err != nil {
		return r, err
	}
	r.cpu = after.cpu - before.cpu
	for _, f := range all {
		r.lost += missedEvents - f.events
		r.wrong += f.faults
	}
	left, err := w.consumers(ctx)
	r.consumers = left - consumers
	return r, err
}

// comeBack opens a new socket for each client that was cut, and continues after the last event that the client received.
func (g *gate) comeBack(ctx context.Context, all []*follower) error {
	shaking := make(chan struct{}, handshakes)
	return each(len(all), len(all), func(i int) error {
		shaking <- struct{}{}
		f, err := dialFollower(ctx, g.address, g.key, mediumRoom)
		<-shaking
		if err != nil {
			return err
		}
		conv, after := all[i].conv, all[i].last
		all[i] = f
		if err := f.attach(conv, after); err != nil {
			return err
		}
		return f.until(opLive)
	})
}

// ReplayLive measures the time from the publication of an event until its frame arrives at a client, with a crowd that follows; and the
// same while some clients do not read.
func ReplayLive(ctx context.Context, size Crowd) (Report, error) {
	w, err := size.world(ctx, 1)
	if err != nil {
		return Report{}, err
	}
	defer w.close(ctx)
	const part, stalledPart = 5, 50
	sockets, stalled := max(2*size.Clients/part, perLive), max(size.Clients/stalledPart, 1)
	conversations := names("c_live_", max(sockets/perLive, 1))
	conv := func(i int) string { return conversations[i%len(conversations)] }
	const long = "c_long"
	if err := w.fill(ctx, []string{long}, longEvents); err != nil {
		return Report{}, err
	}
	var free, held, taken, grown, usual, cost, bare []float64
	var times []time.Duration
	for range size.Rounds {
		err := w.withGate(ctx, sockets+stalled, func(g *gate) error {
			all, err := g.crowd(ctx, sockets, smallRoom, conv, fromNow)
			if err != nil {
				return err
			}
			heard := listen(all)
			defer heard.end()
			stop, err := heard.subscribe(w)
			if err != nil {
				return err
			}
			defer stop()
			if _, _, err := w.liveStretch(ctx, conversations, heard, size.Live/4); err != nil { // warm
				return err
			}
			before, err := g.use(ctx)
			if err != nil {
				return err
			}
			one, engine, err := w.liveStretch(ctx, conversations, heard, size.Live)
			if err != nil {
				return err
			}
			between, err := g.use(ctx)
			if err != nil {
				return err
			}
			deaf, err := g.deaf(ctx, stalled, long)
			if err != nil {
				return err
			}
			defer cutAll(deaf)
			stuck, err := g.settled(ctx, size.settle())
			if err != nil {
				return err
			}
			two, _, err := w.liveStretch(ctx, conversations, heard, size.Live)
			if err != nil {
				return err
			}
			after, err := g.use(ctx)
			if err != nil {
				return err
			}
			times, bare = append(times, one...), append(bare, percentile(engine))
			free, held = append(free, percentile(one)), append(held, percentile(two))
			taken = append(taken, (stuck.resident-between.resident)/(kib*kib))
			grown = append(grown, (after.resident-stuck.resident)/(kib*kib))
			usual = append(usual, (between.resident-before.resident)/(kib*kib))
			cost = append(cost, float64((between.cpu-before.cpu).Microseconds())/float64(len(one)))
			return heard.faults()
		})
		if err != nil {
			return Report{}, err
		}
	}
	return Report{
		Title: fmt.Sprintf("From publish to frame: %d events/s on %d conversations, %d sockets, ten on each", liveRate,
			len(conversations), sockets), Machine: machine(),
		Rows: []Row{
			durations("all frames", time.Millisecond, times), row("99th percentile of a stretch", "ms", free),
			row("99th percentile of one bare subscription to the same events", "ms", bare),
			row("the same while clients do not read", "ms", held),
			row("resident memory of the gateway that those take", "MiB", taken), row("its growth while they do not read", "MiB", grown),
			row("its growth in the stretch before them", "MiB", usual),
			row("processor time of the gateway per frame", "µs", cost),
		},
		Ratios: []Ratio{
			ratio("99th percentile of frames / of the bare subscription", "", free, bare),
			ratio(fmt.Sprintf("99th percentile with %d stalled clients / without", stalled), "< 2", held, free),
		},
		Notes: []string{"Aims: 99th percentile ≤ 10 ms, no growth. The clients' goroutines wait for the same cores, and are part of the time."},
	}, nil
}

func percentile(d []time.Duration) float64 {
	const p = 0.99
	f := milliseconds(d)
	slices.Sort(f)
	return quantile(f, p)
}

// deaf opens sockets with small windows that request more than fits into the kernel's buffers, and never read.
func (g *gate) deaf(ctx context.Context, n int, conv string) ([]*follower, error) {
	const window = 4 << 10
	all := make([]*follower, n)
	for i := range all {
		var err error
		if all[i], err = dialFollower(ctx, g.address, g.key, smallRoom); err != nil {
			cutAll(all)
			return nil, err
		}
		if tcp, ok := all[i].conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(window) // if it fails, they stall a little later
		}
		if err := all[i].attach(conv, []byte(startCursor)); err != nil {
			cutAll(all)
			return nil, err
		}
	}
	return all, nil
}

// listeners are the clients that read.
type listeners struct {
	all   []*follower
	wg    sync.WaitGroup
	total atomic.Int64

	mu    sync.Mutex
	times []time.Duration
	bare  []time.Duration // of a bare subscription to all conversations
}

// subscribe also times the events at a bare subscription of this process, until stop is called.
func (l *listeners) subscribe(w *replayWorld) (stop func(), err error) {
	sub, err := w.nats.Subscribe("sandjet.live."+string(benchAccount)+".>", func(m *nats.Msg) {
		now := time.Now()
		if at, ok := stampOf(m.Data, afterStamp); ok {
			l.mu.Lock()
			l.bare = append(l.bare, now.Sub(at))
			l.mu.Unlock()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("bare: listen: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// listen reads from all sockets and times the events.
func listen(all []*follower) *listeners {
	l := &listeners{all: all}
	for _, f := range all {
		f.each = func(frame []byte) {
			now := time.Now()
			if at, ok := stampOf(frame, inFrame); ok {
				l.mu.Lock()
				l.times = append(l.times, now.Sub(at))
				l.mu.Unlock()
			}
			l.total.Add(1)
		}
		l.wg.Go(func() {
			for {
				if _, err := f.next(); err != nil {
					if !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
						f.faults++
					}
					return
				}
			}
		})
	}
	return l
}

func (l *listeners) end() {
	cutAll(l.all)
	l.wg.Wait()
}

// faults stops the listeners and returns an error if events were lost, doubled or out of order.
func (l *listeners) faults() error {
	l.end()
	n := 0
	for _, f := range l.all {
		n += f.faults
	}
	if n > 0 {
		return schemas.OpErrorf(schemas.Internal, "live", "%d events were lost, doubled or out of order", n)
	}
	return nil
}

// liveStretch publishes events at liveRate for the duration d. It returns the times of all resulting frames, and those of the bare
// subscription.
func (w *replayWorld) liveStretch(ctx context.Context, conversations []string, l *listeners,
	d time.Duration) (times, bare []time.Duration, err error) {
	l.mu.Lock()
	l.times, l.bare = l.times[:0], l.bare[:0]
	l.mu.Unlock()
	const beat = 5 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	n, want := 0, l.total.Load()
	for began := time.Now(); time.Since(began) < d; {
		due := int(time.Since(began) * liveRate / time.Second)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		for n < due {
			c := n % len(conversations)
			if _, err := streams.Events.PublishAsync(ctx, w.bus, w.event(conversations[c])); err != nil {
				return nil, nil, err
			}
			n++
			want += int64((len(l.all) - c + len(conversations) - 1) / len(conversations))
		}
	}
	for began := time.Now(); l.total.Load() < want; {
		if time.Since(began) > followWithin {
			return nil, nil, schemas.OpErrorf(schemas.Timeout, "live", "%d of %d frames came", l.total.Load(), want)
		}
		time.Sleep(beat)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.times), slices.Clone(l.bare), nil
}
