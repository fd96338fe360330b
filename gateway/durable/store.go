package durable

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// store reads and writes streams on the log.
type store struct {
	log     streams.Durable
	records recordBucket
	lanes   lanes
	counts  counts
	now     func() time.Time
}

// recordBucket is the part of a bucket that store uses.
type recordBucket interface {
	All(ctx context.Context) iter.Seq2[streams.BucketEntry[Record], error]
	Get(ctx context.Context, key string) (streams.BucketEntry[Record], error)
	Create(ctx context.Context, key string, r Record, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, r Record, revision uint64) (uint64, error)
}

func newStore(b *streams.Bus, maxStreams int) *store {
	return &store{
		log: streams.OpenDurable(b), records: streams.OpenBucket[Record](b, streams.DurableRecords), now: b.Now,
		counts: counts{most: maxStreams},
	}
}

// found is a stream's record with its revision.
type found struct {
	Record

	revision uint64
}

// lookup returns the record of a stream, which may have been deleted and be kept for its forks (Ended). An expired stream is removed.
// Code: not_found.
func (s *store) lookup(ctx context.Context, a schemas.AccountID, path string) (found, error) {
	p, err := s.records.Get(ctx, recordKey(a, path))
	if errors.Is(err, schemas.ErrNotFound) {
		return found{}, schemas.Errorf(schemas.NotFound, "there is no such stream: PUT makes it")
	}
	if err != nil {
		return found{}, err
	}
	f := found{p.Value, p.Revision}
	if !f.Ended && f.expired(s.now()) {
		kept, err := s.removeWhile(ctx, f, func(r *Record) bool { return !r.Ended && r.expired(s.now()) })
		switch {
		case err != nil:
			return found{}, err
		case kept != nil: // another process has used it just now
			return *kept, nil
		case len(f.Forks) == 0:
			return found{}, schemas.Errorf(schemas.NotFound, "the stream's time is over")
		}
		f.Ended = true
	}
	return f, nil
}

// live returns the record of a stream that is in use. Code: not_found, with the status 410 if the stream was deleted and is kept for its
// forks.
func (s *store) live(ctx context.Context, a schemas.AccountID, path string) (found, error) {
	f, err := s.lookup(ctx, a, path)
	if err == nil && f.Ended {
		return found{}, refuse(http.StatusGone, schemas.NotFound, "the stream was deleted; its data is kept for its forks")
	}
	return f, err
}

// touch extends the life of a stream with a TTL: it writes the time of this use, if that is due.
func (s *store) touch(ctx context.Context, f *found) error {
	if !f.stale(s.now()) {
		return nil
	}
	next, err := s.change(ctx, f.Account, f.Path, f.ID, func(r *Record) error {
		if now := s.now().UTC(); now.After(r.Touched) {
			r.Touched = now
		}
		return nil
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil // it was deleted under the reader, whose next read reports that
	}
	if err == nil {
		*f = next
	}
	return err
}

// change applies how to the record and writes it, and tries again if another process has written it meanwhile. Code not_found: the stream
// with this id is not at the path any more.
func (s *store) change(ctx context.Context, a schemas.AccountID, path, id string, how func(*Record) error) (found, error) {
	var contest streams.Contest
	for {
		p, err := s.records.Get(ctx, recordKey(a, path))
		if err != nil {
			return found{}, err
		}
		if p.Value.ID != id {
			return found{}, schemas.Errorf(schemas.NotFound, "the stream was deleted")
		}
		if err := how(&p.Value); err != nil {
			return found{}, err
		}
		revision, err := s.records.Update(ctx, p.Key, p.Value, p.Revision)
		if err == nil {
			return found{p.Value, revision}, nil
		}
		if !errors.Is(err, schemas.ErrConflict) || ctx.Err() != nil {
			return found{}, err
		}
		if err := contest.Again(ctx); err != nil {
			return found{}, err
		}
	}
}

// end is the sequence of a stream's last message and the state after it.
type end struct {
	seq   uint64
	state state
}

func (s *store) end(ctx context.Context, f found) (end, error) {
	last, err := s.log.Last(ctx, f.Account, f.ID, "")
	if err != nil {
		return end{}, err
	}
	e := end{seq: last.Seq}
	e.state, err = decodeState(last)
	return e, err
}

func decodeState(e streams.DurableEntry) (state, error) {
	var s state
	if err := json.Unmarshal(e.State, &s); err != nil {
		return s, schemas.Wrap(schemas.Internal, "", "a message of the stream carries no state", err)
	}
	return s, nil
}

// appended is the result of an append.
type appended struct {
	end

	duplicate bool
	reached   *producer
}

// append adds data to a stream. With a refusal, it also returns the stream's end.
func (s *store) append(ctx context.Context, f found, a addition, data []byte) (appended, error) {
	n, err := s.lanes.enter(ctx, f.Account, f.ID)
	if err != nil {
		return appended{}, err
	}
	defer s.lanes.leave(n)
	var contest streams.Contest
	for {
		remembered := n.known
		before, err := s.inspect(ctx, f, n, a.producer)
		if errors.Is(err, schemas.ErrNotFound) {
			return appended{}, schemas.Errorf(schemas.NotFound, "the stream was deleted")
		}
		if err != nil {
			return appended{}, err
		}
		next, duplicate, err := decide(n.state, before, a, len(data))
		if (err != nil || duplicate) && remembered {
			n.forget() // nothing is written that would prove it: other gateways may be ahead of it
			continue
		}
		if err != nil || duplicate {
			return appended{end{n.last, n.state}, duplicate, before}, err
		}
		seq, err := s.write(ctx, f, n.last, next, data)
		if err == nil {
			n.last, n.state = seq, next
			if a.producer != nil {
				n.reach(a.producer)
			}
			return appended{end{seq, next}, false, a.producer}, nil
		}
		n.forget()
		if !errors.Is(err, schemas.ErrConflict) || ctx.Err() != nil {
			return appended{}, err
		}
		if err := contest.Again(ctx); err != nil {
			return appended{}, err
		}
	}
}

// inspect fills the lane's cache with the stream's end if it is empty, and returns what the producer has reached: nil if it never wrote,
// or p is nil.
func (s *store) inspect(ctx context.Context, f found, n *lane, p *producer) (*producer, error) {
	if !n.known {
		e, err := s.end(ctx, f)
		if err != nil {
			return nil, err
		}
		n.known, n.last, n.state = true, e.seq, e.state
	}
	if p == nil {
		return nil, nil //nolint:nilnil // there is none to look for
	}
	if at, ok := n.reached[p.ID]; ok {
		return at, nil
	}
	// What it wrote after the end that is known lets the append fail on its condition.
	last, err := s.log.Last(ctx, f.Account, f.ID, writer(p))
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, nil //nolint:nilnil // it never wrote, and may not write now: nothing is remembered of it
	}
	if err != nil {
		return nil, err
	}
	st, err := decodeState(last)
	if err != nil {
		return nil, err
	}
	if st.Producer != nil {
		n.reach(st.Producer)
	}
	return st.Producer, nil
}

func (s *store) write(ctx context.Context, f found, after uint64, st state, data []byte) (uint64, error) {
	line, err := json.Marshal(st)
	if err != nil {
		return 0, schemas.Wrap(schemas.Internal, "", "the state cannot be written", err)
	}
	return s.log.Append(ctx, f.Account, f.ID, writer(st.Producer), after, line, data)
}

// writer returns the subject token of a producer: a hash, since producer ids may contain any character. It is empty for nil.
func writer(p *producer) string {
	if p == nil {
		return ""
	}
	const enough = 16
	sum := sha256.Sum256([]byte(p.ID))
	return "p" + base64.RawURLEncoding.EncodeToString(sum[:enough])
}
