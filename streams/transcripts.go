package streams

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
	"github.com/sandjet/sandjet/streams/usage"
)

// headerFrom is on each commit of a transcript: the sequence from which on it is read.
const headerFrom = "Sandjet-From"

// KeptCommit is a commit as the log has it.
type KeptCommit struct {
	Seq    uint64 // grows with time within a transcript, with gaps
	Stored time.Time
	Size   int // bytes
	Commit schemas.Commit
}

// AppendCommit adds a commit to the transcript of a conversation if its last one is after; 0: there is none. From is the sequence from
// which on the transcript is read from then on, which a summary has moved; 0: from the beginning. It returns the commit's sequence, also
// when the commit was stored by a former try whose acknowledgement was lost, which its id shows.
//
// Codes: conflict (the transcript has moved on: another has written, or it was removed), invalid, unavailable (also: the log is full),
// exhausted (the account's quota; only where after is 0). After unavailable it is unknown whether the commit is stored: append the same one
// again. Until then nothing may follow from it.
func AppendCommit(
	ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, after, from uint64, commit schemas.Commit,
) (uint64, error) {
	if err := errors.Join(a.Validate(), c.Validate()); err != nil {
		return 0, err
	}
	data, err := schemas.EncodeCommit(commit)
	if err != nil {
		return 0, err
	}
	t, kind := transcriptOf(b, a, c), usage.Accepted
	if after == 0 {
		kind = usage.Requested
	}
	if err := b.capacity.admit(ctx, kind, t.subject, sizeOfMessage(t.subject, data)); err != nil {
		return 0, err
	}
	m := nats.NewMsg(t.subject)
	m.Data = data
	m.Header.Set(headerFrom, strconv.FormatUint(from, 10))
	expectLast(m, after, t.subject)
	if err := b.payloads.Offload(ctx, t.stream, m); err != nil {
		return 0, err
	}
	const tries = 4
	pause := wait.Backoff{First: 20 * time.Millisecond, Most: time.Second}
	for try := 1; ; try++ {
		stored, err := b.writer.store(ctx, m)
		if err == nil {
			return stored.Cursor.Seq, nil
		}
		lost := errors.Is(err, schemas.ErrUnavailable)
		if !lost && !errors.Is(err, schemas.ErrConflict) {
			return 0, err
		}
		seq, is, found := t.behind(ctx, after, commit.ID)
		switch {
		case found == nil && is:
			return seq, nil
		case found == nil && seq > 0:
			return 0, schemas.Wrap(schemas.Conflict, "append to a transcript", "another has written to it: read it anew", err)
		case found == nil && !lost && t.last(ctx) < after: // what it was to stand behind is gone
			return 0, schemas.Wrap(schemas.Conflict, "append to a transcript", "it was removed: read it anew", err)
		}
		// What was refused while nothing is behind meets a write that is not stored yet: perhaps our own.
		if try == tries || !pause.Sleep(ctx, try) {
			return 0, schemas.Wrap(schemas.Unavailable, "append to a transcript", "nobody knows whether it is stored: append it again", err)
		}
	}
}

// transcript is where the commits of a conversation are kept.
type transcript struct {
	bus             *Bus
	stream, subject string
}

func transcriptOf(b *Bus, a schemas.AccountID, c schemas.ConversationID) transcript {
	shard := subjects.ShardOf(c, b.Shards())
	return transcript{b, subjects.TranscriptStream(shard), subjects.Transcript(shard, a, c)}
}

// behind is the first commit after a sequence, and whether it has an id. Seq is 0 if there is none.
func (t transcript) behind(ctx context.Context, after uint64, id string) (seq uint64, is bool, err error) {
	m, err := t.bus.reader.GetNewest(ctx, t.stream, direct.Request{Seq: after + 1, Next: t.subject})
	if errors.Is(err, schemas.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	k, err := t.commit(ctx, m)
	return m.Seq, err == nil && k.Commit.ID == id, nil // what cannot be read is another's
}

// last is the sequence of the last commit; 0 if there is none. Where that is not known it is the highest.
func (t transcript) last(ctx context.Context) uint64 {
	m, err := t.bus.reader.GetNewest(ctx, t.stream, direct.Request{Last: t.subject})
	switch {
	case err == nil:
		return m.Seq
	case errors.Is(err, schemas.ErrNotFound):
		return 0
	}
	return ^uint64(0)
}

// ReadTranscript yields the commits of a conversation's transcript in their order, from where its last one says that it is read. A
// conversation that never had a turn, or none within the time that they are kept, has none. What is read reaches at least to what was
// confirmed when the reading began; [AppendCommit] finds out what has come since. After an error nothing follows. Codes: invalid,
// unavailable, exhausted (more than [schemas.MaxTranscript] bytes), internal (a commit cannot be read).
func ReadTranscript(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID) iter.Seq2[KeptCommit, error] {
	return func(yield func(KeptCommit, error) bool) {
		err := errors.Join(a.Validate(), c.Validate())
		if err == nil {
			err = transcriptOf(b, a, c).each(ctx, func(k KeptCommit) bool { return yield(k, nil) })
		}
		if err != nil {
			yield(KeptCommit{}, err)
		}
	}
}

// each yields the commits from where the last one says that the transcript is read.
func (t transcript) each(ctx context.Context, yield func(KeptCommit) bool) error {
	const op = "read a transcript"
	last, err := t.bus.reader.GetNewest(ctx, t.stream, direct.Request{Last: t.subject})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := strconv.ParseUint(last.Headers.Get(headerFrom), 10, 64)
	if err != nil {
		return schemas.Wrap(schemas.Internal, op, "its last commit does not say from where it is read", err)
	}
	for size := 0; ; {
		page, more, err := t.bus.reader.GetPage(ctx, t.stream, t.subject, from, nil, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			k, err := t.commit(ctx, m)
			if err != nil {
				return err
			}
			if size += k.Size; size > schemas.MaxTranscript {
				return schemas.OpErrorf(schemas.Exhausted, op, "it has more than %d bytes since its last summary", schemas.MaxTranscript)
			}
			if from = m.Seq + 1; !yield(k) {
				return nil
			}
		}
		if !more || len(page) == 0 {
			return nil
		}
	}
}

// commit reads a message of the transcript.
func (t transcript) commit(ctx context.Context, m direct.Message) (KeptCommit, error) {
	data, err := t.bus.payloads.Whole(ctx, t.stream, m.Headers, m.Data, m.Time)
	if err != nil {
		return KeptCommit{}, err
	}
	c, err := schemas.DecodeCommit(data)
	if err != nil {
		return KeptCommit{}, schemas.Wrap(schemas.Internal, "read a transcript", "what is kept there is not a commit", err)
	}
	return KeptCommit{Seq: m.Seq, Stored: m.Time, Size: len(data), Commit: c}, nil
}
