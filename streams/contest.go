package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// contestPause is how long to wait before failure number n of a write is followed by the next try.
func contestPause(n int) time.Duration {
	const first, most = 20 * time.Millisecond, 50 * time.Millisecond
	return wait.Backoff{First: first, Most: most}.After(n)
}

// undecided reports whether the log refused a message because an earlier one with the same message id, or under the
// same condition, is in process. With several replicas the leader answers so from when it proposes a message until a
// majority has it. The earlier message may be stored or lost: nothing is known of it, and nothing of this one is stored.
func undecided(err error) bool {
	return natserr.Is(err, natserr.WrongLastSequenceAny, natserr.DuplicateInProcess)
}

// untilDecided calls write again while the log is undecided, for [requestWithin] at most.
func untilDecided(ctx context.Context, write func() error) error {
	begun := time.Now()
	for n := 1; ; n++ {
		err := write()
		if !undecided(err) {
			return err
		}
		pause := contestPause(n)
		if time.Since(begun)+pause >= requestWithin || !wait.Sleep(ctx, pause) {
			return err
		}
	}
}

// publishDecided publishes by the client library and waits until the log has decided.
func publishDecided(ctx context.Context, js jetstream.JetStream, m *nats.Msg, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	err = untilDecided(ctx, func() (err error) {
		ack, err = js.PublishMsg(ctx, m, o...)
		return err
	})
	return ack, err
}

// Contest paces a loop that reads a value, changes it and writes it on the condition that no other process was faster.
// Its zero value is ready for one loop.
type Contest struct {
	begun time.Time
	lost  int
}

// Again is called after a write was refused with the code conflict. It returns nil when the loop should read and try
// again: at once after the first conflict, later after a pause. Code: unavailable when the loop has lost for so long
// that the caller must try later; the error is that of ctx when ctx has ended.
func (c *Contest) Again(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return natserr.Coded("change a record", err)
	}
	c.lost++
	if c.lost == 1 {
		c.begun = time.Now()
		return nil
	}
	pause := contestPause(c.lost - 1)
	if time.Since(c.begun)+pause >= requestWithin {
		return schemas.OpErrorf(schemas.Unavailable, "change a record", "other processes changed it at the same time: try again")
	}
	if !wait.Sleep(ctx, pause) {
		return natserr.Coded("change a record", ctx.Err())
	}
	return nil
}
