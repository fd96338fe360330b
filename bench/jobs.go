package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/maintenance"
)

const (
	jobSlots     = 64
	completers   = 32
	benchKey     = "sk_bench_0123456789"
	stateBucket  = "BARE_STATE"
	handedStream = "BARE_HANDED"
)

// Settle measures how many job completions are settled and forwarded per second, from the publication of the first completion until the
// last job's end is on its conversation. It compares with the bare steps that this needs on the same engine: publish a message, pull it,
// read and write a key, publish the end, the follow-up and its notice, ack.
func Settle(ctx context.Context, size Size) (Report, error) {
	var bareRate, ourRate []float64
	for range size.Rounds {
		b, err := bareSettle(ctx, size.Calls)
		if err != nil {
			return Report{}, err
		}
		o, err := ourSettle(ctx, size.Calls)
		if err != nil {
			return Report{}, err
		}
		bareRate, ourRate = append(bareRate, b), append(ourRate, o)
	}
	return Report{
		Title: fmt.Sprintf("Jobs settled and handed on, %d a run", size.Calls), Machine: machine(),
		Rows:   []Row{row("bare JetStream steps", "jobs/s", bareRate), row("Sandjet", "jobs/s", ourRate)},
		Ratios: []Ratio{ratio("Sandjet / bare JetStream", "", ourRate, bareRate)},
		Notes:  []string{"Aim: at least 3,000 a second on 2 cores. Each job has a turn, so that its follow-up goes to an agent."},
	}, nil
}

func bareSettle(ctx context.Context, n int) (float64, error) {
	b, err := openBare(ctx)
	if err != nil {
		return 0, err
	}
	defer b.close()
	kv, err := b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: stateBucket})
	if err != nil {
		return 0, fmt.Errorf("bare: create the bucket: %w", err)
	}
	if _, err := b.js.CreateStream(ctx, jetstream.StreamConfig{Name: handedStream, Subjects: []string{"bare.handed.>"}}); err != nil {
		return 0, fmt.Errorf("bare: create the stream: %w", err)
	}
	body := make([]byte, 600)
	if err := produce(n, completers, bareJob(ctx, kv, body)); err != nil {
		return 0, err
	}
	it, err := b.work.Messages(jetstream.PullMaxMessages(jobSlots * 2))
	if err != nil {
		return 0, fmt.Errorf("bare: pull: %w", err)
	}
	defer it.Stop()
	done, all := countdown(n)
	for range jobSlots {
		go func() {
			for {
				m, err := it.Next()
				if err != nil {
					return
				}
				id := m.Subject()[len("bare.work."):]
				e, err := kv.Get(ctx, id)
				if err == nil {
					_, err = kv.Update(ctx, id, body, e.Revision())
				}
				for _, to := range []string{"bare.result.", "bare.handed.agent.", "bare.handed.told."} {
					if err == nil {
						_, err = b.js.Publish(ctx, to+id, body)
					}
				}
				if err == nil && m.Ack() == nil {
					done()
				}
			}
		}()
	}
	var serial counter
	start := time.Now()
	if err := produce(n, completers, func() error { return b.accept(ctx, serial.next(), body) }); err != nil {
		return 0, err
	}
	if err := waitFor(ctx, all); err != nil {
		return 0, err
	}
	return float64(n) / time.Since(start).Seconds(), nil
}

// bareJob returns a function that writes the next key.
func bareJob(ctx context.Context, kv jetstream.KeyValue, body []byte) func() error {
	var serial counter
	return func() error {
		if _, err := kv.Put(ctx, serial.next(), body); err != nil {
			return fmt.Errorf("bare: write a key: %w", err)
		}
		return nil
	}
}

func ourSettle(ctx context.Context, n int) (float64, error) {
	o, err := openOurs(ctx)
	if err != nil {
		return 0, err
	}
	defer o.close(ctx)
	jobs := make([]schemas.Job, n)
	for i := range jobs {
		jobs[i] = benchJob(i, "c_"+strconv.Itoa(i/100))
	}
	var made atomic.Int64
	if err := produce(n, completers, func() error { return putJob(ctx, o.bus, jobs[made.Add(1)-1]) }); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var settling sync.WaitGroup
	defer settling.Wait()
	defer cancel()
	settled := make(chan error, 1)
	settling.Go(func() {
		settled <- (&maintenance.Settler{Bus: o.bus, Endpoints: noEndpoints{}, Slots: jobSlots}).Run(ctx)
	})
	handed, all := countdown(n)
	settling.Go(func() {
		_ = streams.Turns.Consume(ctx, o.bus, streams.ConsumeOptions{Name: "bench", Slots: jobSlots},
			func(context.Context, streams.Delivery[schemas.FollowUp]) error { handed(); return nil })
	})
	var told atomic.Int64
	start := time.Now()
	if err := produce(n, completers, func() error {
		_, err := lifecycle.Complete(ctx, o.bus, benchEnd(jobs[told.Add(1)-1]))
		return err
	}); err != nil {
		return 0, err
	}
	if err := waitFor(ctx, all); err != nil {
		return 0, err
	}
	rate := float64(n) / time.Since(start).Seconds()
	cancel()
	return rate, <-settled
}

func benchJob(n int, conversation string) schemas.Job {
	now := time.Now().UTC()
	return schemas.Job{
		ID: schemas.JobID(schemas.JobPrefix + "bench" + strconv.Itoa(n)), Account: benchAccount,
		Conversation: schemas.ConversationID(conversation),
		Turn:         "turn_bench", Call: schemas.CallID("call_" + strconv.Itoa(n)), Tool: schemas.ToolBash,
		Command: "make test", Provider: benchProvider,
		Workspace: benchWorkspace, Sandbox: benchSandbox, State: schemas.JobRunning, Created: now, Launched: now, Deadline: now.Add(time.Hour),
	}
}

func putJob(ctx context.Context, b *streams.Bus, j schemas.Job) error {
	_, err := lifecycle.OpenJobs(b).Create(ctx, j.Key(), j, 0)
	return err
}

func benchEnd(j schemas.Job) schemas.Completion {
	return schemas.Completion{
		Job: j.ID, Account: j.Account, State: schemas.JobCompleted, ReportedBy: schemas.ReportedByProvider, ExitCode: new(0), Logs: "ok\n",
		LogBytes: 3, Finished: time.Now().UTC(),
	}
}

// noEndpoints is an account without webhooks.
type noEndpoints struct{}

func (noEndpoints) List(context.Context, schemas.AccountID) ([]schemas.Endpoint, error) {
	return nil, nil
}

// JobEnd measures the time from the publication of a job's completion until job.finished arrives at an idle WebSocket client, one job at a
// time, with log, settler and gateway in one process. It compares with the bare steps in between: publish, pull, write a key, publish for
// subscribers, receive.
func JobEnd(ctx context.Context, rounds int) (Report, error) {
	const pause = 7 * time.Millisecond
	b, err := openBare(ctx)
	if err != nil {
		return Report{}, err
	}
	defer b.close()
	bareOnce, bareStop, err := bareEnd(ctx, b)
	if err != nil {
		return Report{}, err
	}
	defer bareStop()
	o, err := openOurs(ctx)
	if err != nil {
		return Report{}, err
	}
	defer o.close(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	ourOnce, err := ourEnd(ctx, o, &parts)
	if err != nil {
		return Report{}, err
	}
	bareTimes, ourTimes, err := alternate(rounds, pause, bareOnce, ourOnce)
	if err != nil {
		return Report{}, err
	}
	return Report{
		Title: "From a job's end to the frame at an idle WebSocket", Machine: machine(),
		Rows: []Row{
			durations("bare JetStream steps", time.Millisecond, bareTimes), durations("Sandjet", time.Millisecond, ourTimes),
			highest("bare JetStream steps, 99th percentile", bareTimes), highest("Sandjet, 99th percentile", ourTimes),
		},
		Ratios: []Ratio{ratio("Sandjet / bare JetStream", "", milliseconds(ourTimes), milliseconds(bareTimes))},
		Notes:  []string{"Aim: median ≤ 10 ms."},
	}, nil
}

func milliseconds(d []time.Duration) []float64 {
	f := make([]float64, len(d))
	for i := range d {
		f[i] = float64(d[i]) / float64(time.Millisecond)
	}
	return f
}

// highest returns a row with the 99th percentile, which the other rows lack.
func highest(name string, d []time.Duration) Row {
	const p = 0.99
	f := milliseconds(d)
	slices.Sort(f)
	return row(name, "ms", []float64{quantile(f, p)})
}

// bareEnd returns a function that runs one bare round.
func bareEnd(ctx context.Context, b *bare) (once func() error, stop func(), err error) {
	kv, err := b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: stateBucket})
	if err != nil {
		return nil, nil, fmt.Errorf("bare: create the bucket: %w", err)
	}
	live, err := b.conn.SubscribeSync("bare.live.>")
	if err != nil {
		return nil, nil, fmt.Errorf("bare: listen: %w", err)
	}
	it, err := b.work.Messages()
	if err != nil {
		return nil, nil, fmt.Errorf("bare: pull: %w", err)
	}
	body := make([]byte, 600)
	go func() {
		for {
			m, err := it.Next()
			if err != nil {
				return
			}
			id := m.Subject()[len("bare.work."):]
			if _, err = kv.Put(ctx, id, body); err == nil {
				_, err = b.js.Publish(ctx, "bare.result."+id, body)
			}
			if err != nil || m.Ack() != nil {
				return
			}
		}
	}()
	var serial counter
	return func() error {
		if err := b.accept(ctx, serial.next(), body); err != nil {
			return err
		}
		if _, err := live.NextMsgWithContext(ctx); err != nil {
			return fmt.Errorf("bare: wait for the event: %w", err)
		}
		return nil
	}, it.Stop, nil
}

// ourEnd starts the settler, a gateway and a client, and returns a function that runs one round.
func ourEnd(ctx context.Context, o *ours, parts *sync.WaitGroup) (func() error, error) {
	store, err := records.Open(ctx, o.bus, nil, benchProviders())
	if err != nil {
		return nil, err
	}
	if _, err := store.Accounts.Ensure(ctx, records.Bootstrap{Account: benchAccount, Key: benchKey, Provider: benchProvider}); err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	g := gateway.New(gateway.Options{Bus: o.bus, Records: store, Grace: time.Second})
	parts.Go(func() { _ = g.Run(ctx, l) })
	parts.Go(func() { _ = (&maintenance.Settler{Bus: o.bus, Endpoints: noEndpoints{}, Slots: jobSlots}).Run(ctx) })
	const conversation = "c_end"
	ended, err := listenForEnds(ctx, l.Addr().String(), conversation, parts)
	if err != nil {
		return nil, err
	}
	n := 0
	return func() error {
		n++
		return endJob(ctx, o.bus, benchJob(n, conversation), ended)
	}, nil
}

// endJob ends a job and waits until the client has received that. It also creates the job's record, a write that is included in the time
// although it is not part of the path.
func endJob(ctx context.Context, b *streams.Bus, j schemas.Job, ended <-chan string) error {
	if err := putJob(ctx, b, j); err != nil {
		return err
	}
	if _, err := lifecycle.Complete(ctx, b, benchEnd(j)); err != nil {
		return err
	}
	for {
		select {
		case id, ok := <-ended:
			switch {
			case !ok:
				return fmt.Errorf("the socket ended: %w", io.ErrUnexpectedEOF)
			case id == string(j.ID):
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// listenForEnds opens a WebSocket, attaches to the conversation and reports the ids of the jobs whose end arrives.
func listenForEnds(ctx context.Context, address, conversation string, parts *sync.WaitGroup) (<-chan string, error) {
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+address+"/v1/ws", http.Header{"Authorization": {"Bearer " + benchKey}})
	if err != nil {
		return nil, fmt.Errorf("open the socket: %w", err)
	}
	_ = resp.Body.Close() // the connection was upgraded
	context.AfterFunc(ctx, func() { _ = ws.Close() })
	if err := ws.WriteJSON(map[string]any{"op": "attach", "id": 1, "conv": conversation}); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	type frame struct {
		Op   string        `json:"op"`
		Data schemas.Event `json:"data"`
	}
	for f := (frame{}); f.Op != "live"; {
		if err := ws.ReadJSON(&f); err != nil {
			return nil, fmt.Errorf("attach: %w", err)
		}
	}
	const some = 16
	ended := make(chan string, some)
	parts.Go(func() {
		defer close(ended)
		for {
			var f frame
			if ws.ReadJSON(&f) != nil {
				return
			}
			if f.Op == "ev" && f.Data.Type == schemas.JobFinished {
				ended <- f.Data.Subject
			}
		}
	})
	return ended, nil
}
