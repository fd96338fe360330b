package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Fault is what tests do to a Bus.
type Fault struct {
	DropLive      func(*nats.Msg) bool // a live message that gets lost
	NoDeadLetters bool                 // dead letters cannot be written
	Deaf          func() bool          // whether changes of buckets get lost on their way
}

// Faults sets the faults of a Bus that is not used yet.
func (b *Bus) Faults(f Fault) {
	b.faults = faults{dropLive: f.DropLive, noDeadLetters: f.NoDeadLetters, deaf: f.Deaf}
}

// DeleteConsumer removes a durable, as an operator may.
func (b *Bus) DeleteConsumer(ctx context.Context, stream, name string) error {
	return b.js.DeleteConsumer(ctx, stream, name)
}

// DeleteMessage removes a message.
func (b *Bus) DeleteMessage(ctx context.Context, stream string, seq uint64) error {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	return s.DeleteMsg(ctx, seq)
}

// DeleteStream removes a stream.
func (b *Bus) DeleteStream(ctx context.Context, stream string) error {
	return b.js.DeleteStream(ctx, stream)
}

// Again makes the topology as Open does.
func (b *Bus) Again(ctx context.Context) error {
	b.reader.ForgetEpochs()
	return b.topology.Ensure(ctx)
}

// Ungrouped makes the Bus write each call by itself, for comparison.
func (b *Bus) Ungrouped() { b.group = nil }

// Received is how many bytes have come over the Bus's connections.
func (b *Bus) Received() uint64 {
	n := uint64(0)
	for _, c := range []*nats.Conn{b.publish, b.work, b.live, b.bulk} {
		n += c.Stats().InBytes
	}
	return n
}

// Drop restarts every watch, as after a lost connection.
func (b *Bus) Drop() { b.drops.Notify() }

// Swallow makes the log take publications of clients and never confirm them, like a log that cannot write. It calls taken for each.
func (b *Bus) Swallow(ctx context.Context, taken func()) error {
	if err := b.js.DeleteStream(ctx, streamIntake); err != nil {
		return err
	}
	if _, err := b.publish.Subscribe(subjects.Waiting+">", func(*nats.Msg) { taken() }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	return b.publish.FlushWithContext(ctx)
}

// Request asks as a client does.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) error {
	_, err := b.publish.RequestWithContext(ctx, subject, data)
	return err
}

// AskTime asks the log for its time, as each few minutes.
func (b *Bus) AskTime(ctx context.Context) error { return b.clock.Ask(ctx) }

// Watched is how many conversations are listened to for who waits for results.
func (b *Bus) Watched() int {
	return b.waits.Watched()
}

// Another opens the log as another process would.
func (b *Bus) Another(ctx context.Context) (*Bus, error) { return Open(ctx, b.options) }

// Cut ends every connection at once, as a process does that dies.
func (b *Bus) Cut() { b.abandon() }

// RemoveOld removes what is old of a shard as one look of a Retention does, with so many conversations on its lists.
func (b *Bus) RemoveOld(ctx context.Context, shard int, oldest time.Time, atOnce int, t *Tenure) error {
	s := newSweep(b, b.log, subjects.EventStream(shard), subjects.EventsOf(shard)+"*.*", t)
	s.now, s.most, s.large = b.Now(), atOnce, &largeOnes{of: map[schemas.AccountID]*trimming{}}
	s.begin = func(ctx context.Context, _ jetstream.StreamState) error {
		s.lists = append(s.lists, s.listOld)
		return s.findCut(ctx, oldest)
	}
	for {
		if left, err := s.round(ctx); err != nil || !left {
			return err
		}
	}
}

// EventsWithoutOutline is the topic as it was before events had outlines.
func EventsWithoutOutline() Topic[schemas.Event] {
	t := Events
	t.outline = nil
	return t
}

// Requests calls its function with each request that any process makes on a subject, by its subject and body, in their order.
func (b *Bus) Requests(subject string, heard func(subject string, body []byte)) error {
	if _, err := b.publish.Subscribe(subject, func(m *nats.Msg) { heard(m.Subject, m.Data) }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a timeout would leave a timer of the bubble in the client's pool
	defer cancel()
	return b.publish.FlushWithContext(ctx)
}

// Sent is how many messages have gone over the Bus's connections.
func (b *Bus) Sent() uint64 {
	n := uint64(0)
	for _, c := range []*nats.Conn{b.publish, b.work, b.live, b.bulk} {
		n += c.Stats().OutMsgs
	}
	return n
}

// HasStream returns an error unless a stream is there.
func (b *Bus) HasStream(ctx context.Context, name string) error {
	_, err := b.js.Stream(ctx, name)
	return err
}

// SpoilPayload makes the newest of the large payloads in a bucket unreadable until the returned function is called.
func (b *Bus) SpoilPayload(ctx context.Context, bucket string) (mend func() error, err error) {
	m, err := b.reader.GetLast(ctx, "OBJ_"+bucket, "$O."+bucket+".M.*")
	if err != nil {
		return nil, err
	}
	put := func(data []byte) error {
		_, err := b.js.Publish(ctx, m.Subject, data)
		return err
	}
	return func() error { return put(m.Data) }, put([]byte("spoilt"))
}

// HoldPayload makes the newest of the large payloads in a bucket one that no server has yet, until arrive is called.
func (b *Bus) HoldPayload(ctx context.Context, bucket string) (arrive func() error, err error) {
	b.copied.Store(true) // a log without copies has no payload that is on its way
	m, err := b.reader.GetLast(ctx, "OBJ_"+bucket, "$O."+bucket+".M.*")
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := b.js.Publish(ctx, m.Subject, m.Data)
		return err
	}, b.DeleteMessage(ctx, "OBJ_"+bucket, m.Seq)
}

// Sequences reads one page of a stream.
func (b *Bus) Sequences(ctx context.Context, stream string) (seqs []uint64, more bool, err error) {
	page, more, err := b.reader.GetPageNear(ctx, stream, ">", 1, nil, direct.PageMessages)
	for _, m := range page {
		seqs = append(seqs, m.Seq)
	}
	return seqs, more, err
}

// Fake answers requests on a subject as the log would.
func (b *Bus) Fake(subject string, with func() []*nats.Msg) error {
	_, err := b.publish.Subscribe(subject, func(m *nats.Msg) {
		for _, part := range with() {
			part.Subject = m.Reply
			_ = b.publish.PublishMsg(part) // the reader says what is missing
		}
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a timeout would leave a timer of the bubble in the client's pool
	defer cancel()
	return b.publish.FlushWithContext(ctx)
}

// Unfinished is how many messages a durable has to hand out or has handed out without an answer yet.
func (b *Bus) Unfinished(ctx context.Context, stream, name string) (int, error) {
	c, err := b.jsWork.Consumer(ctx, stream, name)
	if err != nil {
		return 0, natserr.Coded("look at a consumer", err)
	}
	i := c.CachedInfo()
	return i.NumAckPending + int(i.NumPending), nil
}

// FoundSince asks the clock of the log.
func (b *Bus) FoundSince(ctx context.Context, since time.Time) (bool, error) {
	return b.clock.FoundSince(ctx, since)
}
