package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/streams"
)

// Size is the size of a benchmark: the number of calls, and of interleaved rounds.
type Size struct {
	Calls  int // of one run
	Rounds int
}

const producers = 10

// Throughput measures benchmark (a): calls per second from acceptance to a result on the log, compared with the bare pipeline on the same
// engine, with ten producers and that many slots.
func Throughput(ctx context.Context, size Size, slots int) (Report, error) {
	var bareRate, writesRate, ourRate []float64
	for range size.Rounds {
		b, err := bareRun(ctx, size.Calls, slots)
		if err != nil {
			return Report{}, err
		}
		w, err := writesRun(ctx, size.Calls, slots)
		if err != nil {
			return Report{}, err
		}
		o, err := ourRun(ctx, size.Calls, slots)
		if err != nil {
			return Report{}, err
		}
		bareRate, writesRate, ourRate = append(bareRate, b), append(writesRate, w), append(ourRate, o)
	}
	r := Report{
		Title:   fmt.Sprintf("Throughput of no-op calls, %d slots, %d calls a run", slots, size.Calls),
		Machine: machine(),
		Ratios: []Ratio{
			ratio("Sandjet / bare JetStream", "≥ 0.60", ourRate, bareRate),
			ratio("the writes alone / bare JetStream", "", writesRate, bareRate),
			ratio("Sandjet / the writes alone", "", ourRate, writesRate),
		},
		Notes: []string{"Bare JetStream: publish with acknowledgement, pull, publish the result, ack; no look at the content, no proof of the " +
			"start, " +
			"no claim of the id. The writes alone: the four messages that Sandjet writes for a call, with their conditions and ids, by the client " +
			"library. Sandjet: the same and all its promises."},
	}
	r.Rows = []Row{
		row("bare JetStream pipeline", "calls/s", bareRate), row("the writes of a call alone", "calls/s", writesRate),
		row("Sandjet", "calls/s", ourRate),
	}
	return r, nil
}

func bareRun(ctx context.Context, n, slots int) (float64, error) {
	b, err := openBare(ctx)
	if err != nil {
		return 0, err
	}
	defer b.close()
	body := make([]byte, 400)
	var serial counter
	return throughput(ctx, n, func(ctx context.Context, done func()) error { return b.serve(ctx, slots, body, done) },
		func() error { return b.accept(ctx, serial.next(), body) })
}

func ourRun(ctx context.Context, n, slots int) (float64, error) {
	o, err := openOurs(ctx)
	if err != nil {
		return 0, err
	}
	defer o.close(ctx)
	done, all := countdown(n)
	o.work(ctx, slots, done)
	start := time.Now()
	if err := produce(n, producers, func() error { return o.accept(ctx) }); err != nil {
		return 0, err
	}
	if err := waitFor(ctx, all); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// Latency measures the second half of benchmark (a): one call at a time, from before its acceptance until the caller has the result.
func Latency(ctx context.Context, calls int) (Report, error) {
	const pause = 7 * time.Millisecond
	b, err := openBare(ctx)
	if err != nil {
		return Report{}, err
	}
	defer b.close()
	o, err := openOurs(ctx)
	if err != nil {
		return Report{}, err
	}
	defer o.close(ctx)
	o.work(ctx, producers, func() {})
	body := make([]byte, 400)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	live, err := b.conn.SubscribeSync("bare.live.>")
	if err != nil {
		return Report{}, fmt.Errorf("bare: listen: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- b.serve(ctx, producers, body, func() {}) }()
	var serial counter
	bareOnce := func() error {
		if err := b.accept(ctx, serial.next(), body); err != nil {
			return err
		}
		_, err := live.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("bare: wait for the result: %w", err)
		}
		return nil
	}
	ourOnce := func() error {
		c := o.call()
		if err := streams.Calls.Publish(ctx, o.bus, c); err != nil {
			return err
		}
		_, err := o.bus.AwaitCall(ctx, c)
		return err
	}
	bareTimes, ourTimes, err := alternate(calls, pause, bareOnce, ourOnce)
	if err != nil {
		return Report{}, err
	}
	added := make([]float64, len(ourTimes))
	for i := range added {
		added[i] = float64(ourTimes[i]-bareTimes[i]) / float64(time.Millisecond)
	}
	return Report{
		Title: "Latency of one no-op call at low load", Machine: machine(),
		Rows: []Row{
			durations("bare JetStream round trip", time.Millisecond, bareTimes),
			durations("Sandjet, acceptance to result", time.Millisecond, ourTimes),
			row("added by Sandjet, pair by pair", "ms", added),
		},
		Notes: []string{"Aim: median added ≤ 1 ms."},
	}, nil
}

// alternate times a and b in turn, after a few runs that are not counted.
func alternate(n int, pause time.Duration, a, b func() error) (as, bs []time.Duration, err error) {
	const warm = 10
	for i := range n + warm {
		for side, f := range []func() error{a, b} {
			start := time.Now()
			if err := f(); err != nil {
				return nil, nil, err
			}
			took := time.Since(start)
			switch {
			case i < warm:
			case side == 0:
				as = append(as, took)
			default:
				bs = append(bs, took)
			}
			time.Sleep(pause) // keeps the load low
		}
	}
	return as, bs, nil
}
