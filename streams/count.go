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
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

// accountLog reads what accounts store on the log, message by message, and their usage records. It implements [usage.Log].
type accountLog struct{ bus *Bus }

// Now is the log's time.
func (l accountLog) Now() time.Time { return l.bus.Now() }

// room asks the server for the limit and the use of this log.
func (l accountLog) room(ctx context.Context) (usage.View, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	info, err := l.bus.js.AccountInfo(ctx)
	if err != nil {
		return usage.View{}, natserr.Coded("look at the log's room", err)
	}
	return viewOf(info, l.bus.Replicas()), nil
}

// Record reads the record of an account.
func (l accountLog) Record(ctx context.Context, a schemas.AccountID) (usage.Record, error) {
	p, err := OpenBucket[usage.Record](l.bus, usageRecords).Get(ctx, string(a))
	if errors.Is(err, schemas.ErrNotFound) {
		err = nil
	}
	return p.Value, err
}

// Change changes the record of an account.
func (l accountLog) Change(
	ctx context.Context, a schemas.AccountID, f func(usage.Record) (usage.Record, bool),
) (usage.Record, error) {
	bucket := OpenBucket[usage.Record](l.bus, usageRecords)
	var contest Contest
	for {
		p, err := bucket.Get(ctx, string(a))
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return usage.Record{}, err
		}
		next, changes := f(p.Value)
		if !changes {
			return next, nil
		}
		if p.Revision == 0 { // also where there was one once
			_, err = bucket.Create(ctx, string(a), next, 0)
		} else {
			_, err = bucket.Update(ctx, string(a), next, p.Revision)
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return next, err
		}
		if err := contest.Again(ctx); err != nil {
			return usage.Record{}, err
		}
	}
}

// Count counts what an account keeps, message by message: the server knows numbers of messages by subject, but no bytes.
func (l accountLog) Count(ctx context.Context, a schemas.AccountID) (usage.Amounts, error) {
	var u usage.Amounts
	if err := a.Validate(); err != nil {
		return u, err
	}
	name := string(a)
	type row struct {
		stream  string
		filters []string
	}
	rows := []row{
		{streamCalls, []string{subjects.Calls + "*." + name + ".*", subjects.CallTimers + "*." + name + ".*"}},
		{streamCancels, []string{subjects.Cancels + name + ".*"}},
		{streamJobs, []string{subjects.Jobs + name + ".*"}},
		{streamTurns, []string{subjects.Turns + name + ".*.*"}},
		{streamDeliver, []string{subjects.Deliveries + "*." + name + ".*", subjects.DeliveryTimers + "*." + name + ".*"}},
		{streamWakes, []string{subjects.Wakes + name + ".*", subjects.WakeTimers + name + ".*"}},
		{streamDead, []string{subjects.Dead + "*." + name + ".*"}},
		{streamDurable, []string{subjects.Durable + name + ".*.*"}},
		{streamArtifacts, []string{subjects.Artifacts + name + ".>"}},
	}
	for bucket := range accountBuckets() {
		rows = append(rows, row{"KV_" + string(bucket), []string{prefixBucket + string(bucket) + "." + name + ".>"}})
	}
	for shard := range l.bus.Shards() {
		rows = append(rows, row{subjects.EventStream(shard), []string{subjects.EventsOf(shard) + name + ".*"}},
			row{subjects.TranscriptStream(shard), []string{subjects.TranscriptsOf(shard) + name + ".*"}})
	}
	for _, r := range rows {
		if strings.HasPrefix(r.filters[0], prefixBucket) { // of which most accounts have nothing
			_, err := l.bus.reader.Get(ctx, r.stream, direct.Request{Seq: 1, Next: r.filters[0]})
			if errors.Is(err, schemas.ErrNotFound) {
				continue
			}
			if err != nil {
				return u, err
			}
		}
		err := l.bus.reader.Each(ctx, r.stream, r.filters, 1, true, func(m jetstream.Msg) bool {
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
	if err := l.countWaiting(ctx, a, &u); err != nil {
		return u, err
	}
	for _, stream := range []string{streamCalls, streamDead, streamJobs, subjects.EventStream(0)} {
		if err := l.countPayloads(ctx, a, stream, &u); err != nil {
			return u, err
		}
	}
	return u, nil
}

// countWaiting counts an account's publications that wait to be admitted as calls. They must be read, since a work queue shows nothing of
// its messages.
func (l accountLog) countWaiting(ctx context.Context, a schemas.AccountID, u *usage.Amounts) error {
	for next, more := uint64(1), true; more; {
		page, behind, err := l.bus.reader.GetPage(ctx, streamIntake, subjects.WaitingSubject(a), next, nil, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			u[usage.Calls].Bytes += sizeOfMessage(m.Subject, m.Data)
			u[usage.Calls].Messages++
			next = m.Seq + 1
		}
		more = behind && len(page) > 0
	}
	return nil
}

// countPayloads counts the large payloads of an account that are kept for messages of a stream.
func (l accountLog) countPayloads(ctx context.Context, a schemas.AccountID, stream string, u *usage.Amounts) error {
	bucket, _ := payloadBucket(stream)
	class := usage.Events
	if stream == streamCalls {
		class = usage.Calls
	}
	err := l.bus.reader.Each(ctx, "OBJ_"+bucket, []string{"$O." + bucket + ".M.>"}, 1, false, func(m jetstream.Msg) bool {
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

// countOpenJobs returns the number of an account's open jobs. It counts the account's marks in one read; only if these reach the limit it
// checks them one by one, since marks of jobs that have just settled still exist.
func (l accountLog) countOpenJobs(ctx context.Context, a schemas.AccountID, most int) (int, error) {
	stream, subject := "KV_"+string(OpenJobMarks), "$KV."+string(OpenJobMarks)+"."+string(a)+".*"
	first, err := l.bus.reader.Get(ctx, stream, direct.Request{Seq: 1, Next: subject, Batch: 1})
	if errors.Is(err, schemas.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if all, err := first.AndBehind(); err != nil || all < uint64(most) {
		return int(min(all, uint64(most))), err
	}
	open := 0
	for next, more := uint64(1), true; more && open < most; {
		page, behind, err := l.bus.reader.GetPage(ctx, stream, subject, next, nil, 0)
		if err != nil {
			return 0, err
		}
		for _, m := range page {
			var mark struct {
				Settled bool `json:"settled"`
			}
			if len(m.Data) > 0 && json.Unmarshal(m.Data, &mark) == nil && !mark.Settled { // a removal has no value
				open++
			}
			next = m.Seq + 1
		}
		more = behind && len(page) > 0
	}
	return open, nil
}

// payloadOf returns the account and size of a large payload from its metadata in the object store; no account if that cannot be read. It
// is pure.
func payloadOf(data []byte) (schemas.AccountID, int64) {
	var info jetstream.ObjectInfo
	if json.Unmarshal(data, &info) != nil || info.Deleted || info.Size > payloads.Max {
		return "", 0
	}
	owner, _, ok := strings.Cut(info.Name, ".")
	if !ok || owner == "" || owner == subjects.NoAccount {
		return "", 0
	}
	return schemas.AccountID(owner), int64(info.Size)
}
