package streams

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

// Durable keeps the messages of durable streams: append-only sequences that clients make and name.
// A stream is known here by an account and an id of its own. Its messages have writers, and the last
// message of each writer is found as quickly as the last of the stream. Safe for concurrent use.
//
// Who uses it keeps the state that follows from all messages in each message, so that one write
// changes data and state together and on a condition, and no reader has to fold the stream.
type Durable struct{ bus *Bus }

// DurableEntry is a message of a durable stream.
type DurableEntry struct {
	Seq    uint64 // grows with time over all streams of the log
	Stored time.Time
	State  []byte
	Data   []byte
}

const (
	headerState = "Sandjet-State"
	noWriter    = "_"
)

// OpenDurable returns the durable streams of the log. It does not touch the log.
func OpenDurable(b *Bus) Durable { return Durable{bus: b} }

// MaxData is the most bytes of one message.
func (d Durable) MaxData() int { return d.bus.payloads.Limit() }

func durableSubject(a schemas.AccountID, id, writer string) string {
	return subjects.Durable + string(a) + "." + id + "." + cmp.Or(writer, noWriter)
}

// Append adds a message if the stream's last sequence is after; 0 begins a stream. state is one line of text; writer is empty or a word of
// A-Z a-z 0-9 _ -. It returns the message's sequence. Code conflict: the stream has moved on or was dropped. After unavailable the message
// may be stored or not.
func (d Durable) Append(ctx context.Context, a schemas.AccountID, id, writer string, after uint64, state, data []byte) (uint64, error) {
	if !subjects.IsToken(string(a)) || !subjects.IsToken(id) || writer != "" && !subjects.IsToken(writer) {
		return 0, schemas.Invalidf("stream", "account, id and writer must be plain words")
	}
	subject := durableSubject(a, id, writer)
	if err := d.bus.capacity.admit(ctx, usage.Requested, subject, sizeOfMessage(subject, data)+int64(len(state))); err != nil {
		return 0, err
	}
	m := nats.NewMsg(subject)
	m.Header.Set(headerState, string(state))
	m.Data = data
	expectLast(m, after, durableSubject(a, id, "*"))
	stored, err := d.bus.writer.store(ctx, m)
	return stored.Cursor.Seq, err
}

// Last returns the last message of a stream, or of one of its writers. The stream's leader is asked:
// a copy that lags behind could hide what a writer has written. Code: not_found.
func (d Durable) Last(ctx context.Context, a schemas.AccountID, id, writer string) (DurableEntry, error) {
	subject := durableSubject(a, id, "*")
	if writer != "" {
		subject = durableSubject(a, id, writer)
	}
	s, err := d.bus.reader.GetFromLeader(ctx, streamDurable, direct.Request{Last: subject})
	return durableEntry(s), err
}

// Page returns the messages after a sequence, in order, at most 256 or 1 MiB, but always one. more reports whether others follow.
func (d Durable) Page(ctx context.Context, a schemas.AccountID, id string, after uint64) (page []DurableEntry, more bool, err error) {
	found, more, err := d.bus.reader.GetPage(ctx, streamDurable, durableSubject(a, id, "*"), after+1, nil, 0)
	for _, s := range found {
		page = append(page, durableEntry(s))
	}
	return page, more, err
}

func durableEntry(s direct.Message) DurableEntry {
	return DurableEntry{Seq: s.Seq, Stored: s.Time, State: []byte(s.Headers.Get(headerState)), Data: s.Data}
}

// Drop removes all messages of a stream. An append that is on its way then fails with conflict.
func (d Durable) Drop(ctx context.Context, a schemas.AccountID, id string) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := d.bus.jsBulk.Stream(ctx, streamDurable)
	if err != nil {
		return natserr.Coded("drop a durable stream", err)
	}
	return natserr.Coded("drop a durable stream", s.Purge(ctx, jetstream.WithPurgeSubject(durableSubject(a, id, "*"))))
}

// Watch calls wake after every append to a stream, after [Durable.Notify], and whenever an append may have been missed, until stop is
// called. wake must not block. Appends before Watch returns may be signalled or not; all later ones are.
func (d Durable) Watch(ctx context.Context, a schemas.AccountID, id string, wake func()) (stop func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	sub, err := d.bus.live.Subscribe(subjects.DurableLive+string(a)+"."+id, func(*nats.Msg) { wake() })
	if err != nil {
		return nil, natserr.Coded("watch a durable stream", err)
	}
	d.bus.slow.Store(sub, wake)
	ended := make(chan struct{})
	go d.rewake(ended, wake)
	stop = func() {
		close(ended)
		d.bus.slow.Delete(sub)
		if err := sub.Unsubscribe(); err != nil {
			d.bus.log.Debug("unsubscribe failed", "error", err)
		}
	}
	if err := d.bus.live.FlushWithContext(ctx); err != nil {
		stop()
		return nil, natserr.Coded("watch a durable stream", err)
	}
	return stop, nil
}

// rewake calls wake after a reconnection: notifications of appends in between were not received.
func (d Durable) rewake(ended <-chan struct{}, wake func()) {
	for drop := d.bus.drops.Next(); ; {
		select {
		case <-ended:
			return
		case <-d.bus.ctx.Done():
			return
		case <-drop:
			drop = d.bus.drops.Next()
			ctx, cancel := context.WithTimeout(d.bus.ctx, requestWithin)
			if err := d.bus.live.FlushWithContext(ctx); err != nil { // the server has the subscription again after it
				d.bus.log.Debug("connection not flushed after reconnect", "error", err)
			}
			cancel()
			wake()
		}
	}
}

// Notify wakes the watchers of a stream. Nothing is stored, and there may be no watcher.
func (d Durable) Notify(a schemas.AccountID, id string) error {
	return natserr.Coded("tell of a durable stream", d.bus.publish.Publish(subjects.DurableLive+string(a)+"."+id, nil))
}

// DurableName names a stream.
type DurableName struct {
	Account schemas.AccountID
	ID      string
}

// Names lists the streams that have messages.
func (d Durable) Names(ctx context.Context) (map[DurableName]bool, error) {
	all, err := d.subjects(ctx, streamDurable, subjects.Durable+">")
	names := map[DurableName]bool{}
	for subject := range all {
		if t := strings.Split(strings.TrimPrefix(subject, subjects.Durable), "."); len(t) == 3 {
			names[DurableName{schemas.AccountID(t[0]), t[1]}] = true
		}
	}
	return names, err
}

// Forget deletes a record of [DurableRecords] if its revision is rev still, so that nothing is left of
// it after a minute. Code: conflict when it is not.
func (d Durable) Forget(ctx context.Context, key string, rev uint64) error {
	const left = time.Minute // until the mark goes too
	if !jetstreamKey(key) {
		return schemas.Invalidf("key", "%q cannot be one", schemas.Quotable(key))
	}
	m := nats.NewMsg("$KV." + string(DurableRecords) + "." + key)
	m.Header.Set("KV-Operation", "DEL") // as the client library writes it, but with a time to live
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(rev, 10))
	m.Header.Set(jetstream.MsgTTLHeader, left.String())
	if _, err := d.bus.writer.store(ctx, m); err != nil {
		return err
	}
	d.bus.capacity.changed(m.Subject, schemas.Amount{Bytes: -sizeOfMessage(m.Subject, nil), Messages: -1}) // the mark, which goes too
	OpenBucket[struct{}](d.bus, DurableRecords).removed(key, rev)
	return nil
}

// Count returns how many records of [DurableRecords] an account has; deleted ones count for a minute more.
func (d Durable) Count(ctx context.Context, a schemas.AccountID) (int, error) {
	subjects, err := d.subjects(ctx, "KV_"+string(DurableRecords), "$KV."+string(DurableRecords)+"."+string(a)+".*")
	return len(subjects), err
}

func (d Durable) subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*requestWithin)
	defer cancel()
	s, err := d.bus.jsBulk.Stream(ctx, stream)
	if err != nil {
		return nil, natserr.Coded("list durable streams", err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, natserr.Coded("list durable streams", err)
	}
	return info.State.Subjects, nil
}
