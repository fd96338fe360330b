package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bare is the minimal pipeline of any system on JetStream for a call with a durable result: publish, pull, publish the result, ack. Ours
// cannot be faster.
type bare struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	dir    string
	work   jetstream.Consumer
}

const (
	bareWork   = "BARE_WORK"
	bareResult = "BARE_RESULT"
)

// openBare starts an embedded server with the settings of Sandjet's own (file store, synced each
// second, in-process connection) on an empty directory.
func openBare(ctx context.Context) (*bare, error) {
	dir, err := os.MkdirTemp("", "sandjet-bench-")
	if err != nil {
		return nil, fmt.Errorf("bare: make a directory: %w", err)
	}
	b := &bare{dir: dir}
	b.server, err = server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
		SyncInterval: time.Second, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, fmt.Errorf("bare: make the server: %w", err)
	}
	b.server.Start()
	if !b.server.ReadyForConnections(time.Minute) {
		b.close()
		return nil, fmt.Errorf("bare: the server did not start: %w", context.DeadlineExceeded)
	}
	if err := b.connect(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bare) connect(ctx context.Context) (err error) {
	if b.conn, err = nats.Connect("", nats.InProcessServer(b.server)); err != nil {
		return fmt.Errorf("bare: connect: %w", err)
	}
	if b.js, err = jetstream.New(b.conn); err != nil {
		return fmt.Errorf("bare: open JetStream: %w", err)
	}
	for _, c := range []jetstream.StreamConfig{
		{Name: bareWork, Subjects: []string{"bare.work.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: bareResult, Subjects: []string{"bare.result.>"},
			RePublish: &jetstream.RePublish{Source: "bare.result.>", Destination: "bare.live.>"}},
	} {
		if _, err := b.js.CreateStream(ctx, c); err != nil {
			return fmt.Errorf("bare: create %s: %w", c.Name, err)
		}
	}
	b.work, err = b.js.CreateConsumer(ctx, bareWork, jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10_000,
	})
	if err != nil {
		return fmt.Errorf("bare: create the consumer: %w", err)
	}
	return nil
}

func (b *bare) close() {
	if b.conn != nil {
		b.conn.Close()
	}
	b.server.Shutdown()
	b.server.WaitForShutdown()
	_ = os.RemoveAll(b.dir)
}

// serve runs as many workers as slots until ctx ends, and calls done after each ack.
func (b *bare) serve(ctx context.Context, slots int, result []byte, done func()) error {
	it, err := b.work.Messages(jetstream.PullMaxMessages(slots * 2))
	if err != nil {
		return fmt.Errorf("bare: pull: %w", err)
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
				if b.result(ctx, m.Subject()[len("bare.work."):], result) != nil {
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

// accept publishes one call and waits until the log has stored it.
func (b *bare) accept(ctx context.Context, id string, call []byte) error {
	_, err := b.js.Publish(ctx, "bare.work."+id, call)
	if err != nil {
		return fmt.Errorf("bare: publish: %w", err)
	}
	return nil
}

// result publishes the result of a call and waits until the log has stored it.
func (b *bare) result(ctx context.Context, id string, result []byte) error {
	if _, err := b.js.Publish(ctx, "bare.result."+id, result); err != nil {
		return fmt.Errorf("bare: publish the result: %w", err)
	}
	return nil
}
