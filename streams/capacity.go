package streams

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

// Quotas are the most bytes that an account may keep.
type Quotas = usage.Quotas

// capacity admits writes within the room of the log and the quotas of accounts, and counts what was written. It finds out which account keeps
// a message, and for what; what is allowed is decided by package usage. It is safe for concurrent use.
type capacity struct {
	room  *usage.Room
	meter *usage.Meter
	jobs  *usage.Jobs
	sizes usage.Sizes // of values of buckets
}

func newCapacity(b *Bus) *capacity {
	log := accountLog{b}
	c := &capacity{room: usage.NewRoom(log.room), jobs: usage.NewJobs(b.options.OpenJobs, log.countOpenJobs)}
	c.meter = usage.NewMeter(usage.Options{
		Log: log, Quotas: b.options.Quotas, Room: c.room.Limit, ClocksApart: ClocksApart, Logger: b.log,
	})
	return c
}

// admit returns an error if a message of n bytes may not be written. Codes: unavailable (the log is full), exhausted (the account's quota
// is).
func (c *capacity) admit(ctx context.Context, w usage.Work, subject string, n int64) error {
	if w == usage.Reserved {
		return nil
	}
	if w == usage.Requested {
		account, class := usageOf(subject)
		if err := c.meter.Allow(ctx, account, class, n, true); err != nil {
			return err
		}
	}
	return c.room.Take(ctx, w, n)
}

// admitPublication returns an error if a publication of n bytes may not be kept until it is admitted as a call, and counts it otherwise. It
// does not wait.
func (c *capacity) admitPublication(a schemas.AccountID, n int64) error {
	if err := c.meter.Allow(context.Background(), a, usage.Calls, n, false); err != nil {
		return err
	}
	err := c.room.TakeNow(usage.Requested, n)
	if err == nil {
		c.wrote(subjects.WaitingSubject(a), n)
	}
	return err
}

// admitEvent returns an error if an account may not add an event of n bytes of its own.
func (c *capacity) admitEvent(ctx context.Context, a schemas.AccountID, n int64) error {
	if err := c.meter.Allow(ctx, a, usage.Events, n, true); err != nil {
		return err
	}
	return c.room.Take(ctx, usage.Requested, n)
}

// reserve reserves n bytes of an account's quota and of the log's room.
func (c *capacity) reserve(ctx context.Context, a schemas.AccountID, n int64) (release func(), err error) {
	quota, err := c.meter.Reserve(ctx, a, n)
	if err != nil {
		return nil, err
	}
	room, err := c.room.Reserve(ctx, usage.Requested, n)
	if err != nil {
		quota()
		return nil, err
	}
	return func() {
		room()
		quota()
	}, nil
}

// usageOf is what an account keeps, with its quotas.
func (c *capacity) usageOf(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	if err := a.Validate(); err != nil {
		return schemas.Usage{}, err
	}
	u, err := c.meter.Usage(ctx, a)
	return u, natserr.Coded("count what an account keeps", err)
}

// wrote counts a message of n bytes that was written, or a payload of one.
func (c *capacity) wrote(subject string, n int64) {
	c.changed(subject, schemas.Amount{Bytes: n, Messages: 1})
}

// changed counts by how much there is more, or less, below a subject.
func (c *capacity) changed(subject string, by schemas.Amount) {
	a, class := usageOf(subject)
	c.meter.Changed(a, class, by)
}

// fired counts that the timer of n bytes below a subject has fired at a time of the log's clock.
func (c *capacity) fired(subject string, n int64, at time.Time) {
	a, class := usageOf(subject)
	c.meter.Fired(a, class, schemas.Amount{Bytes: n, Messages: 1}, at)
}

// Room reports whether clients may have n bytes more kept that count against no quota, such as a record. Code: unavailable.
func (b *Bus) Room(ctx context.Context, n int) error {
	return b.capacity.room.Take(ctx, usage.Requested, int64(n))
}

// RoomFor reports whether an account may add an event of n bytes of its own. Codes: unavailable (the log is full), exhausted (the
// account's quota is).
func (b *Bus) RoomFor(ctx context.Context, a schemas.AccountID, n int) error {
	return b.capacity.admitEvent(ctx, a, int64(n))
}

// ReserveFor reserves room for n bytes of events and deliveries that an account's client wants written, all or nothing: until release
// is called they count against the account's quota and the log's room, so that requests at the same time do not rely on the same
// room. What is written under it goes by [Topic.Reserved]. Codes: unavailable (the log is full), exhausted (the account's quota is).
func (b *Bus) ReserveFor(ctx context.Context, a schemas.AccountID, n int64) (release func(), err error) {
	return b.capacity.reserve(ctx, a, n)
}

// ReserveAccepted is [Bus.ReserveFor] for what follows from accepted work, which counts against no quota. Code: unavailable (the log
// is full: try again).
func (b *Bus) ReserveAccepted(ctx context.Context, n int64) (release func(), err error) {
	return b.capacity.room.Reserve(ctx, usage.Accepted, n)
}

// AdmitJob admits one more background job of an account. It counts those on the log once in ten seconds: so much as other processes admit in
// that time may come on top. Code exhausted: the account has as many open jobs as it may. Where they cannot be counted it is admitted.
func (b *Bus) AdmitJob(ctx context.Context, a schemas.AccountID) error {
	return b.capacity.jobs.Admit(ctx, a)
}

// Usage is what an account keeps, with its quotas. The account is counted again if that was not done lately; a count that takes long is not
// waited for. Code: unavailable.
func (b *Bus) Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	return b.capacity.usageOf(ctx, a)
}

// usageOf finds which account keeps a message, and for what; it counts for no account where that is empty. It is pure.
func usageOf(subject string) (schemas.AccountID, usage.Class) {
	subject = subjects.TargetOf(subject)
	switch {
	case strings.HasPrefix(subject, prefixBucket):
		return usageOfValue(subject)
	case strings.HasPrefix(subject, subjects.Durable):
		if t := strings.Split(strings.TrimPrefix(subject, subjects.Durable), "."); len(t) == 3 { // account, id, writer
			return schemas.AccountID(t[0]), usage.Durable
		}
		return "", usage.Durable
	case strings.HasPrefix(subject, subjects.Calls), strings.HasPrefix(subject, subjects.Waiting), strings.HasPrefix(subject, subjects.Cancels):
		return subjects.AccountOf(subject), usage.Calls
	}
	return subjects.AccountOf(subject), usage.Events
}

// sizeOfMessage is about what the server counts for a message.
func sizeOfMessage(subject string, data []byte) int64 {
	const around = 128 // headers, and what the server writes with each message
	return int64(len(subject) + len(data) + around)
}

// viewOf reads the server's answer. Where the account has limits by the number of copies, a limit is of what is kept and the use
// of all copies of it. It is pure.
func viewOf(info *jetstream.AccountInfo, replicas int) usage.View {
	tier, ok := info.Tiers["R"+strconv.Itoa(max(replicas, 1))]
	if !ok {
		return usage.View{Limit: max(info.Limits.MaxStore, 0), Used: int64(info.Store)}
	}
	return usage.View{Limit: max(tier.Limits.MaxStore, 0) * int64(max(replicas, 1)), Used: int64(tier.Store)}
}
