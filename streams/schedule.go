package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// Schedule stores v to be handed out at a time, instead of whatever was scheduled for the same subject,
// and returns when the log has confirmed it. It comes up to a quarter of a second late, and at once
// when the time has passed. It takes room as [Topic.Publish] does. Codes: unsupported (the topic has no timers), unavailable (also: the
// log is full), exhausted (a quota).
func (t Topic[T]) Schedule(ctx context.Context, b *Bus, v T, at time.Time) error {
	if t.timer == nil {
		return schemas.OpErrorf(schemas.Unsupported, "schedule", "this topic has no timers")
	}
	subject, err := t.subject(b, v)
	if err != nil {
		return err
	}
	data, err := t.encode(v)
	if err != nil {
		return err
	}
	if err := b.capacity.admit(ctx, t.work, subject, sizeOfMessage(subject, data)); err != nil {
		return err
	}
	m := nats.NewMsg(t.timer(subject))
	m.Data = data
	if err := b.payloads.Offload(ctx, t.stream, m); err != nil {
		return err
	}
	return b.writer.schedule(ctx, m, subject, at)
}
