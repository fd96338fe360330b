package streams

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

const (
	countWithin = 30 * time.Minute // a count of one account; one with very much is counted rarely
	countPage   = 5000             // messages that are asked for at a time
	countIdle   = time.Minute      // after which the server forgets a count that its process left
)

// recount counts what an account keeps and puts it on record. What others have recorded meanwhile is added: of that, some may be in
// the count already, so it errs to more, by what was written in its time. Timers that have fired meanwhile are not taken off, for the same
// reason.
func (m *meter) recount(ctx context.Context, a schemas.AccountID) error {
	if err := m.record(ctx, a); err != nil {
		return err
	}
	m.mu.Lock()
	before := m.account(a).record
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	began := time.Now()
	found, err := m.bus.countUsage(ctx, a)
	if err != nil {
		return err
	}
	took := time.Since(began)
	return m.change(ctx, a, usage{}, func(r usageRecord) (usageRecord, bool) {
		if !r.Counted.Equal(before.Counted) { // by another, meanwhile
			return r, false
		}
		meanwhile := r.Usage.add(r.Fired).minus(before.Usage.add(before.Fired))
		return usageRecord{Usage: found.plus(meanwhile), Counted: m.bus.Now().UTC(), Took: took}, true
	})
}

// countUsage counts what an account keeps, message by message: the server knows numbers of messages by subject, but no bytes.
func (b *Bus) countUsage(ctx context.Context, a schemas.AccountID) (usage, error) {
	var u usage
	if err := a.Validate(); err != nil {
		return u, err
	}
	name := string(a)
	type row struct {
		stream  string
		filters []string
	}
	rows := []row{
		{streamCalls, []string{prefixCalls + "*." + name + ".*", prefixCallTimers + "*." + name + ".*"}},
		{streamCancels, []string{prefixCancels + name + ".*"}},
		{streamJobs, []string{prefixJobs + name + ".*"}},
		{streamTurns, []string{prefixTurns + name + ".*.*"}},
		{streamDeliver, []string{prefixDeliveries + "*." + name + ".*", prefixTimers + "*." + name + ".*"}},
		{streamWakes, []string{prefixWakes + name + ".*", prefixWakeTimers + name + ".*"}},
		{streamDead, []string{prefixDead + "*." + name + ".*"}},
		{streamDurable, []string{prefixDurable + name + ".*.*"}},
		{streamArtifacts, []string{prefixArtifacts + name + ".>"}},
	}
	for bucket := range accountBuckets() {
		rows = append(rows, row{"KV_" + string(bucket), []string{prefixBucket + string(bucket) + "." + name + ".>"}})
	}
	for shard := range b.Shards() {
		rows = append(rows, row{eventStream(shard), []string{eventSubjectPrefix(shard) + name + ".*"}},
			row{transcriptStream(shard), []string{transcriptSubjectPrefix(shard) + name + ".*"}})
	}
	for _, r := range rows {
		if strings.HasPrefix(r.filters[0], prefixBucket) { // of which most accounts have nothing
			_, err := b.getOne(ctx, r.stream, getRequest{Seq: 1, Next: r.filters[0]})
			if errors.Is(err, schemas.ErrNotFound) {
				continue
			}
			if err != nil {
				return u, err
			}
		}
		err := b.eachHeader(ctx, r.stream, r.filters, 1, true, func(m jetstream.Msg) bool {
			if size, err := strconv.ParseInt(m.Headers().Get(nats.MsgSize), 10, 64); err == nil { // there are none without
				_, class := usageOf(m.Subject())
				u[class].Bytes += size + sizeOfMessage(m.Subject(), nil)
				u[class].Messages++
			}
			return true
		})
		if err != nil {
			return u, err
		}
	}
	if err := b.countWaiting(ctx, a, &u); err != nil {
		return u, err
	}
	for _, stream := range []string{streamCalls, streamDead, streamJobs, eventStream(0)} {
		if err := b.countPayloads(ctx, a, stream, &u); err != nil {
			return u, err
		}
	}
	return u, nil
}

// countWaiting counts an account's requests that wait for the router: a queue cannot be looked at but by reading it.
func (b *Bus) countWaiting(ctx context.Context, a schemas.AccountID, u *usage) error {
	for next, more := uint64(1), true; more; {
		page, behind, err := b.getPage(ctx, streamIntake, waitingSubject(a), next, nil, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			u[usageCalls].Bytes += sizeOfMessage(m.subject, m.data)
			u[usageCalls].Messages++
			next = m.seq + 1
		}
		more = behind && len(page) > 0
	}
	return nil
}

// countPayloads counts the large payloads of an account that are kept for messages of a stream.
func (b *Bus) countPayloads(ctx context.Context, a schemas.AccountID, stream string, u *usage) error {
	bucket, _ := payloadBucket(stream)
	class := usageEvents
	if stream == streamCalls {
		class = usageCalls
	}
	err := b.eachHeader(ctx, "OBJ_"+bucket, []string{"$O." + bucket + ".M.>"}, 1, false, func(m jetstream.Msg) bool {
		if owner, size := payloadOf(m.Data()); owner == a {
			u[class].Bytes += size
			u[class].Messages++
		}
		return true
	})
	if errors.Is(err, schemas.ErrNotFound) { // no payload was ever so large
		return nil
	}
	return err
}

// payloadOf reads whose a large payload is, and its size, from what an object store says of it; of no account where that is not to be
// read. It is pure.
func payloadOf(data []byte) (schemas.AccountID, int64) {
	var info jetstream.ObjectInfo
	if json.Unmarshal(data, &info) != nil || info.Deleted || info.Size > maxWhole {
		return "", 0
	}
	owner, _, ok := strings.Cut(info.Name, ".")
	if !ok || owner == "" || owner == noAccount {
		return "", 0
	}
	return schemas.AccountID(owner), int64(info.Size)
}

// eachHeader calls f with the messages of a stream that the filters name and that are there now, from a sequence on and until it returns
// false; without their data, where it is not needed. Code not_found: there is no such stream.
func (b *Bus) eachHeader(
	ctx context.Context, stream string, filters []string, from uint64, headersOnly bool, f func(jetstream.Msg) bool,
) error {
	op := "count the messages of " + stream
	c, err := b.jsBulk.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, FilterSubjects: filters, HeadersOnly: headersOnly, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: countIdle,
		Replicas: 1, MemoryStorage: true,
	})
	if err != nil {
		return coded(op, err)
	}
	info := c.CachedInfo()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestWithin)
		defer cancel()
		if err := b.jsBulk.DeleteConsumer(ctx, stream, info.Name); err != nil {
			b.log.Debug("temporary consumer not removed, the server removes it when it is idle", "stream", stream, "error", err)
		}
	}()
	for left := info.NumPending; left > 0; {
		if err := ctx.Err(); err != nil {
			return coded(op, err)
		}
		batch, err := c.FetchNoWait(int(min(left, countPage)))
		if err != nil {
			return coded(op, err)
		}
		n, enough := uint64(0), false
		for m := range batch.Messages() {
			enough = enough || !f(m)
			n++
		}
		if err := batch.Error(); err != nil {
			return coded(op, err)
		}
		if n == 0 || enough { // the rest was removed meanwhile
			return nil
		}
		left -= min(n, left)
	}
	return nil
}

// Usage is what an account keeps, with its quotas. It is counted anew if that was not done lately; a count that takes long is not
// waited for. Codes: unavailable.
func (b *Bus) Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	if err := a.Validate(); err != nil {
		return schemas.Usage{}, err
	}
	b.meter.reread(ctx, a)
	if _, counted, due := b.meter.used(a, usageCalls); due {
		b.meter.ask(a, true)
		t := time.NewTimer(usagePatience)
		defer t.Stop()
		select {
		case <-counted:
		case <-t.C:
		case <-ctx.Done():
			return schemas.Usage{}, coded("count what an account keeps", ctx.Err())
		}
	}
	b.meter.mu.Lock()
	defer b.meter.mu.Unlock()
	e := b.meter.account(a)
	if e.read.IsZero() {
		return schemas.Usage{}, schemas.Errorf(schemas.Unavailable, "count what an account keeps", "the log does not answer: try again")
	}
	sum := e.sum()
	return schemas.Usage{
		Account: a, Calls: sum[usageCalls], Events: sum[usageEvents], Durable: sum[usageDurable], Counted: e.record.Counted,
		LogLimit: b.quota(a, usageCalls), DurableLimit: b.quota(a, usageDurable),
	}, nil
}
