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

// store keeps streams on the log.
type store struct {
	log     streams.Durable
	records recordBucket
	lanes   lanes
	counts  counts
	now     func() time.Time
}

// recordBucket is the part of a bucket that a store uses.
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

// found is a record with its revision.
type found struct {
	Record

	revision uint64
}

// lookup finds a stream that may be ended. Code: not_found.
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

// live finds a stream that is in use. Codes: not_found, also with the status 410.
func (s *store) live(ctx context.Context, a schemas.AccountID, path string) (found, error) {
	f, err := s.lookup(ctx, a, path)
	if err == nil && f.Ended {
		return found{}, refuse(http.StatusGone, schemas.NotFound, "the stream was deleted; its data is kept for its forks")
	}
	return f, err
}

// touch lets a stream with a TTL live on.
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

// change writes a changed record, and tries again if another process has written it meanwhile. Code not_found: the path belongs to another
// stream by now, or to none.
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

// end is the last message of a stream.
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

// appended is the answer to an append.
type appended struct {
	end

	duplicate bool
	reached   *producer
}

// append adds data to a stream. A refusal comes with the stream's end.
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

// inspect makes the lane know the stream's end, and returns where the producer is: nil if it never
// wrote, or there is none.
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

// writer is the word for a producer on the log; ids of clients may hold anything.
func writer(p *producer) string {
	if p == nil {
		return ""
	}
	const enough = 16
	sum := sha256.Sum256([]byte(p.ID))
	return "p" + base64.RawURLEncoding.EncodeToString(sum[:enough])
}
