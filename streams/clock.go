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
	// clocksFarApart is that of the clocks of different hosts, where only those are known.
	clocksFarApart = time.Hour
	// clockMark is under which key of [trimMarks] is how far the log's clock had come when it was set back.
	clockMark = "clock"
)

// Now is the time of the log's server, in UTC: for everything that another process reads or judges, and for every decision that ends,
// expires or deletes. It costs no round trip. A clock of this host that is wrong, is set or stops does not affect it; it is exact to some
// milliseconds. On a machine that was suspended with all its clocks it is behind until the connection is made again and its wall clock is
// right, or for ten minutes.
func (b *Bus) Now() time.Time { return b.clock.Now() }

// ClockOff is by how much the clock of this process is ahead of the log's.
func (b *Bus) ClockOff() time.Duration { return b.clock.Off() }

// ClockWarning says that the clock of this process is wrong, for people; empty while it is not.
func (b *Bus) ClockWarning() string { return b.clock.Warning() }

// Age is how long ago something was stored at a time by the log's clock. Where that clock was set back this may not be known: then it may
// be as old as anything.
func (b *Bus) Age(at time.Time) (age time.Duration, known bool) { return b.clock.Age(at) }

// Recognises reports whether the log surely recognises what was stored at a time, by its own clock, when it is published again.
func (b *Bus) Recognises(at time.Time) bool {
	age, known := b.Age(at)
	return known && age < SureWithin
}

// clockSource is where a [logclock.Clock] asks.
type clockSource struct {
	conn     *nats.Conn
	marks    trimmings
	standsIn func() time.Time // see [Options.LogClock]
}

// Time asks for the state of a stream, which the stream's leader answers with its time. All processes ask for the same stream.
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

// SetBack is how far the log's clock had come when it was set back.
func (s clockSource) SetBack(ctx context.Context) (time.Time, error) {
	return s.marks.through(ctx, clockMark)
}

// NoteSetBack notes that on the log.
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
