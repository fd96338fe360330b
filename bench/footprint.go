package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/workers"
)

type counter struct{ n atomic.Int64 }

func (c *counter) next() string { return strconv.FormatInt(c.n.Add(1), 10) }

// Footprint measures benchmark (c): bytes of disk per finished call, and bytes of memory per call in flight.
func Footprint(ctx context.Context, calls, inFlight int) (Report, error) {
	disk, err := diskPerCall(ctx, calls)
	if err != nil {
		return Report{}, err
	}
	mem, err := memoryPerCall(ctx, inFlight)
	if err != nil {
		return Report{}, err
	}
	return Report{
		Title: "Footprint", Machine: machine(),
		Rows: []Row{
			row(fmt.Sprintf("disk per finished call (%d calls)", calls), "bytes", []float64{disk}),
			row(fmt.Sprintf("heap and stacks per call in flight (%d at once), client and server", inFlight), "bytes", []float64{mem}),
		},
		Notes: []string{"Disk: the call, the proof of its start and its result, before the log compacts. Aim for memory: ≤ 40 KB beside the " +
			"sandbox's own."},
	}, nil
}

func diskPerCall(ctx context.Context, calls int) (float64, error) {
	o, err := openOurs(ctx)
	if err != nil {
		return 0, err
	}
	defer o.close(ctx)
	before, err := diskUse(o.dir)
	if err != nil {
		return 0, err
	}
	done, all := countdown(calls)
	o.work(ctx, producers, done)
	if err := produce(calls, producers, func() error { return o.accept(ctx) }); err != nil {
		return 0, err
	}
	if err := waitFor(ctx, all); err != nil {
		return 0, err
	}
	after, err := diskUse(o.dir)
	return float64(after-before) / float64(calls), err
}

// held is a provider whose runs block until the gate is closed.
type held struct {
	providertest.Noop

	started chan<- struct{}
	gate    <-chan struct{}
}

func (h held) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	h.started <- struct{}{}
	select {
	case <-h.gate:
	case <-ctx.Done():
	}
	return h.Noop.Run(ctx, cmd)
}

func memoryPerCall(ctx context.Context, n int) (float64, error) {
	o, err := openOurs(ctx)
	if err != nil {
		return 0, err
	}
	defer o.close(ctx)
	started, gate := make(chan struct{}, n), make(chan struct{})
	done, all := countdown(n)
	ctx, stop := context.WithCancel(ctx)
	w := workers.Worker{
		Bus: o.bus, Provider: held{started: started, gate: gate}, Name: benchProvider, Specs: benchSpecs{}, Slots: n,
		Metrics: workers.Metrics{Finished: finished(done)},
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	// The first calls warm up the caches. Only what each further call adds is counted.
	const tenth = 10
	hold := func(calls int) (int64, error) {
		if err := produce(calls, producers, func() error { return o.accept(ctx) }); err != nil {
			return 0, err
		}
		for range calls {
			select {
			case <-started:
			case <-ctx.Done():
				return 0, fmt.Errorf("waiting for the calls to start: %w", ctx.Err())
			}
		}
		return heap(), nil
	}
	few := max(n/tenth, 1)
	before, err := hold(few)
	if err != nil {
		stop()
		return 0, err
	}
	after, err := hold(n - few)
	if err != nil {
		stop()
		return 0, err
	}
	per := float64(after-before) / float64(n-few)
	close(gate)
	err = waitFor(ctx, all)
	stop()
	if werr := <-ended; err == nil {
		err = werr
	}
	return per, err
}

// Backlog measures benchmark (d): n calls are queued without a worker, and then drained. The time per call must not grow with the queue,
// and memory must stay constant.
func Backlog(ctx context.Context, n, slots int) (Report, error) {
	const tenths = 10
	unqueued, err := ourRun(ctx, max(n/tenths, 1), slots)
	if err != nil {
		return Report{}, err
	}
	o, err := openOurs(ctx)
	if err != nil {
		return Report{}, err
	}
	defer o.close(ctx)
	fill := time.Now()
	if err := produce(n, producers, func() error { return o.accept(ctx) }); err != nil {
		return Report{}, err
	}
	filled := float64(n) / time.Since(fill).Seconds()
	atFull := resident()
	var (
		mu    sync.Mutex
		count int
		last  = time.Now()
		rates []float64
		peak  = atFull
	)
	done, all := countdown(n)
	o.work(ctx, slots, func() {
		mu.Lock()
		if count++; count%(n/tenths) == 0 {
			now := time.Now()
			rates, last = append(rates, float64(n/tenths)/now.Sub(last).Seconds()), now
			peak = max(peak, resident())
		}
		mu.Unlock()
		done()
	})
	if err := waitFor(ctx, all); err != nil {
		return Report{}, err
	}
	const mb = 1 << 20
	first, end := rates[0], rates[len(rates)-1]
	return Report{
		Title: fmt.Sprintf("A backlog of %d calls, drained with %d slots", n, slots), Machine: machine(),
		Rows: []Row{
			row("filling the queue", "calls/s", []float64{filled}),
			row("draining, tenth by tenth", "calls/s", rates),
			row("without a queue", "calls/s", []float64{unqueued}),
			row("resident memory with the queue full", "MiB", []float64{float64(atFull) / mb}),
			row("resident memory at the most while draining", "MiB", []float64{float64(peak) / mb}),
		},
		Ratios: []Ratio{
			ratio("last tenth / first tenth", "no growth: ≥ 0.8", []float64{end}, []float64{first}),
			ratio("drain / unqueued", "≥ 0.8", []float64{median(rates)}, []float64{unqueued}),
			ratio("memory draining / full", "flat", []float64{float64(peak)}, []float64{float64(atFull)}),
		},
		Notes: []string{"One process holds the server, the producers and the worker, so its memory is all of them together."},
	}, nil
}

func median(f []float64) float64 { return row("", "", append([]float64(nil), f...)).Median }
