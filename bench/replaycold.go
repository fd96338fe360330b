package bench

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// ReplayCold measures reading a conversation that no gateway has in memory, and that is interleaved with many others in the log, through a
// socket, compared with an ordered consumer on one stream.
func ReplayCold(ctx context.Context, size Crowd) (Report, error) {
	const others = 100 // number of conversations read, one after the other: enough for a 99th percentile
	own := names("c_cold_", size.Interleaved)
	read := slices.Clone(own[:min(others, len(own))])
	var bare []time.Duration
	var ours, cost [2][]time.Duration
	var gateway [2][]float64
	for i, shards := range []int{1, 16} {
		err := func() error {
			w, err := size.world(ctx, shards)
			if err != nil {
				return err
			}
			defer w.close(ctx)
			if err := w.fill(ctx, own, size.Interleaved); err != nil {
				return err
			}
			return w.withGate(ctx, len(own), func(g *gate) error {
				before, err := g.settled(ctx, size.settle()) // meanwhile the files of the log are written
				if err != nil {
					return err
				}
				for _, conv := range read {
					if shards == 1 {
						took, err := w.bareCold(ctx, conv, size.Interleaved)
						if err != nil {
							return err
						}
						bare = append(bare, took)
					}
					used := processTime()
					took, err := g.cold(ctx, conv, size.Interleaved)
					if err != nil {
						return err
					}
					ours[i], cost[i] = append(ours[i], took), append(cost[i], processTime()-used)
				}
				after, err := g.use(ctx)
				gateway[i] = []float64{float64((after.cpu-before.cpu)/time.Duration(len(read))) / float64(time.Millisecond)}
				return err
			})
		}()
		if err != nil {
			return Report{}, err
		}
	}
	return Report{
		Title:   fmt.Sprintf("Replay of %d events among %d conversations, from the log", size.Interleaved, size.Interleaved),
		Machine: machine(),
		Rows: []Row{
			durations("one ordered consumer on one stream, without a socket", time.Millisecond, bare),
			durations("Sandjet through a WebSocket, one shard", time.Millisecond, ours[0]),
			durations("Sandjet through a WebSocket, 16 shards", time.Millisecond, ours[1]),
			highest("Sandjet, 16 shards, 99th percentile", ours[1]),
			durations("processor time of server and client for it, one shard", time.Millisecond, cost[0]),
			durations("processor time of server and client for it, 16 shards", time.Millisecond, cost[1]),
			row("processor time of the gateway for it, one shard", "ms", gateway[0]),
			row("processor time of the gateway for it, 16 shards", "ms", gateway[1]),
		},
		Ratios: []Ratio{
			ratio("one ordered consumer / Sandjet, one shard", "", milliseconds(bare), milliseconds(ours[0])),
			ratio("one ordered consumer / Sandjet, 16 shards", "", milliseconds(bare), milliseconds(ours[1])),
		},
		Notes: []string{"Aim: 99th percentile ≤ 100 ms."},
	}, nil
}

func (w *replayWorld) bareCold(ctx context.Context, conv string, events int) (time.Duration, error) {
	stream, subject, err := w.source(ctx, conv)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = w.bareRead(ctx, stream, subject, events)
	return time.Since(began), err
}

// cold opens a socket, replays a conversation that the gateway has not read before, and returns how long that took.
func (g *gate) cold(ctx context.Context, conv string, events int) (time.Duration, error) {
	f, err := dialFollower(ctx, g.address, g.key, largeRoom)
	if err != nil {
		return 0, err
	}
	defer f.cut()
	began := time.Now()
	if err := f.attach(conv, []byte(startCursor)); err != nil {
		return 0, err
	}
	if err := f.until(opLive); err != nil {
		return 0, err
	}
	if f.events != events || f.faults > 0 {
		return 0, schemas.OpErrorf(schemas.Internal, "replay", "a client saw %d of %d events, %d of them wrong", f.events, events, f.faults)
	}
	return time.Since(began), nil
}

// processTime returns the processor time of this process so far.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it only fails for an invalid argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
