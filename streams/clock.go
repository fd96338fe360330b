package streams

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/natserr"
)

const (
	// ClocksApart is how far the clocks of a cluster's servers may be apart, at most.
	ClocksApart = logclock.ServersApart
	// clockMark is under which key of [trimMarks] is how far the log's clock had come when it was set back.
	clockMark = "clock"
)

// Now returns the time of the log's server, in UTC. Use it for every timestamp that another process reads and for every decision that
// ends, expires or deletes. It costs no round trip, is exact to some milliseconds, and does not depend on this host's clock. After the
// machine was suspended with all its clocks, it is behind until the connection is restored and the wall clock is right, or for ten
// minutes.
func (b *Bus) Now() time.Time { return b.clock.Now() }

// ClockOff returns how far the clock of this process is ahead of the log's.
func (b *Bus) ClockOff() time.Duration { return b.clock.Off() }

// ClockWarning is a text for people while the clock of this process is wrong, else empty.
func (b *Bus) ClockWarning() string { return b.clock.Warning() }

// Age returns how long ago something was stored at a time of the log's clock. If that clock was set back, the age may be unknown; treat it
// as arbitrarily old.
func (b *Bus) Age(at time.Time) (age time.Duration, known bool) { return b.clock.Age(at) }

// Recognises reports whether the log certainly detects, as a duplicate, a second publish of a message that it stored at a time of its own
// clock.
func (b *Bus) Recognises(at time.Time) bool {
	age, known := b.Age(at)
	return known && age < SureWithin
}

// clockSource answers the questions of a [logclock.Clock].
type clockSource struct {
	conn     *nats.Conn
	marks    trimmings
	standsIn func() time.Time // see [Options.LogClock]
}

// Time asks a stream's leader for its time. All processes ask about the same stream.
func (s clockSource) Time(ctx context.Context) (time.Time, error) {
	m, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+streamCancels, nil)
	if err != nil {
		return time.Time{}, natserr.Coded("ask the log for its time", err)
	}
	at, err := parseTime(m.Data)
	if err == nil && s.standsIn != nil {
		at = s.standsIn().Round(0).UTC()
	}
	return at, err
}

// Reconnects is how often the connection has reconnected.
func (s clockSource) Reconnects() uint64 { return s.conn.Stats().Reconnects }

// SetBack returns the time that the log's clock had reached when it was set back.
func (s clockSource) SetBack(ctx context.Context) (time.Time, error) {
	return s.marks.through(ctx, clockMark)
}

// NoteSetBack stores that time on the log.
func (s clockSource) NoteSetBack(ctx context.Context, back time.Time) error {
	return s.marks.note(ctx, clockMark, back)
}

// parseTime reads the time in the answer to a question about a stream.
func parseTime(data []byte) (time.Time, error) {
	var answer struct {
		Time time.Time `json:"ts"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Time.IsZero() {
		return time.Time{}, schemas.Wrap(schemas.Unavailable, "ask the log for its time", "the answer has no time", err)
	}
	return answer.Time.UTC(), nil
}
