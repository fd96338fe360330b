package acks

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
)

// ContestPause returns the pause after failed try number n of a write.
func ContestPause(n int) time.Duration {
	const first, most = 20 * time.Millisecond, 50 * time.Millisecond
	return wait.Backoff{First: first, Most: most}.After(n)
}

// Undecided reports whether the log refused a message because an earlier one with the same message id, or under the same condition, is
// still in process. With several replicas the leader answers so from its proposal of a message until a majority has stored it. The earlier
// message may be stored or lost; the refused one is not stored.
func Undecided(err error) bool {
	return natserr.Is(err, natserr.WrongLastSequenceAny, natserr.DuplicateInProcess)
}

// UntilDecided calls write again while the log is undecided, for [direct.RequestTime] at most.
func UntilDecided(ctx context.Context, write func() error) error {
	begun := time.Now()
	for n := 1; ; n++ {
		err := write()
		if !Undecided(err) {
			return err
		}
		pause := ContestPause(n)
		if time.Since(begun)+pause >= direct.RequestTime || !wait.Sleep(ctx, pause) {
			return err
		}
	}
}

// PublishDecided publishes by the client library and waits until the log has decided.
func PublishDecided(ctx context.Context, js jetstream.JetStream, m *nats.Msg, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	err = UntilDecided(ctx, func() (err error) {
		ack, err = js.PublishMsg(ctx, m, o...)
		return err
	})
	return ack, err
}
