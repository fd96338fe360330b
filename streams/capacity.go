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

// Quotas limit what an account may store, in bytes.
type Quotas = usage.Quotas

// capacity admits writes within the space of the log and the quotas of accounts, and counts what was written. It determines which account
// and class a message counts for; package usage decides. It is safe for concurrent use.
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

// admitPublication counts a publication of n bytes that waits to be admitted as a call, or returns an error if it may not be stored. It
// does not block.
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

// admitEvent returns an error if an account may not append an event of n bytes.
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

// usageOf returns what an account stores, with its quotas.
func (c *capacity) usageOf(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	if err := a.Validate(); err != nil {
		return schemas.Usage{}, err
	}
	u, err := c.meter.Usage(ctx, a)
	return u, natserr.Coded("count what an account keeps", err)
}

// wrote counts a written message of n bytes, or the payload of one.
func (c *capacity) wrote(subject string, n int64) {
	c.changed(subject, schemas.Amount{Bytes: n, Messages: 1})
}

// changed adjusts the usage that a subject counts for.
func (c *capacity) changed(subject string, by schemas.Amount) {
	a, class := usageOf(subject)
	c.meter.Changed(a, class, by)
}

// fired counts that a scheduled message of n bytes was delivered at a time of the log's clock, so that its timer is gone.
func (c *capacity) fired(subject string, n int64, at time.Time) {
	a, class := usageOf(subject)
	c.meter.Fired(a, class, schemas.Amount{Bytes: n, Messages: 1}, at)
}

// Room reports whether the log has space for n more bytes that count against no quota, such as a record. Code: unavailable.
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

// ReserveAccepted is [Bus.ReserveFor] for writes that follow from accepted work and count against no quota. Code: unavailable (the log is
// full: try again).
func (b *Bus) ReserveAccepted(ctx context.Context, n int64) (release func(), err error) {
	return b.capacity.room.Reserve(ctx, usage.Accepted, n)
}

// AdmitJob admits one more background job of an account. It counts the open jobs on the log every ten seconds, so jobs that other
// processes admit meanwhile can come on top. If they cannot be counted, the job is admitted. Code: exhausted (the account has as many open
// jobs as it may).
func (b *Bus) AdmitJob(ctx context.Context, a schemas.AccountID) error {
	return b.capacity.jobs.Admit(ctx, a)
}

// Usage returns what an account stores, with its quotas. It recounts if the last count is old, but does not wait for a long count. Code:
// unavailable.
func (b *Bus) Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	return b.capacity.usageOf(ctx, a)
}

// usageOf returns the account and class that a message counts for; no account if it does not count. It is pure.
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

// sizeOfMessage approximates what the server counts for a message.
func sizeOfMessage(subject string, data []byte) int64 {
	const around = 128 // headers, and what the server writes with each message
	return int64(len(subject) + len(data) + around)
}

// viewOf reads the server's answer about the NATS account. With limits per number of copies, the limit is of what is stored, and the use
// is that of all copies. It is pure.
func viewOf(info *jetstream.AccountInfo, replicas int) usage.View {
	tier, ok := info.Tiers["R"+strconv.Itoa(max(replicas, 1))]
	if !ok {
		return usage.View{Limit: max(info.Limits.MaxStore, 0), Used: int64(info.Store)}
	}
	return usage.View{Limit: max(tier.Limits.MaxStore, 0) * int64(max(replicas, 1)), Used: int64(tier.Store)}
}
