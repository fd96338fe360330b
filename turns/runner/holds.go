package runner

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	signRenewed = time.Second
	// signSettled is how long a process must have kept its own sign of life before it takes the absence of another's for its end: after
	// an outage of the log everybody's is gone for a moment.
	signSettled = streams.LeaseTTL + signRenewed
)

// signRecord is the content of a process's lease, for people who inspect the bucket.
type signRecord struct {
	Runner  string    `json:"runner"`
	Host    string    `json:"host,omitzero"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// sign is the lease of this process: a record that it renews while it lives. It is safe for concurrent use.
type sign struct {
	bucket *streams.Bucket[signRecord]
	name   string
	record signRecord
	log    *slog.Logger

	mu      sync.Mutex
	renewed clock.Reading // when the last successful renewal was begun
	since   clock.Reading // since when it is kept without a gap
	is      bool          // it was renewed once
}

func newSign(b *streams.Bus, name string, log *slog.Logger) *sign {
	s := &sign{bucket: streams.OpenBucket[signRecord](b, streams.Leases), name: name, log: log}
	s.record = signRecord{Runner: name, PID: os.Getpid(), Started: b.Now().UTC()}
	s.record.Host, _ = os.Hostname() // a host without a name has none here
	return s
}

// keep renews the lease until ctx is done, and then deletes it.
func (s *sign) keep(ctx context.Context) {
	for {
		if err := s.renew(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("lease not renewed, retrying", "error", err)
		}
		if !wait.Sleep(ctx, signRenewed) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signRenewed)
	defer cancel()
	if err := s.bucket.Delete(ctx, s.name); err != nil {
		s.log.Debug("lease not released, it expires", "error", err)
	}
}

func (s *sign) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, signRenewed)
	defer cancel()
	begun := clock.Now()
	if _, err := s.bucket.Put(ctx, s.name, s.record); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := clock.Now(); !s.is || end.Sub(s.renewed) > streams.LeaseTTL {
		s.since = end
	}
	s.renewed, s.is = begun, true
	return nil
}

// keptSince reports whether the lease was valid without interruption since t, so that no process can have considered this one dead.
func (s *sign) keptSince(t clock.Reading) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is && !s.since.After(t) && clock.Now().Sub(s.renewed) < streams.LeaseTTL
}

// lives reports whether another process may be alive. If this process has not held its own lease for long enough, the answer is true,
// since after an outage of the log all leases are gone for a moment.
func (s *sign) lives(ctx context.Context, name string) (bool, error) {
	s.mu.Lock()
	now := clock.Now()
	settled := s.is && now.Sub(s.renewed) < streams.LeaseTTL && now.Sub(s.since) >= signSettled
	s.mu.Unlock()
	if !settled {
		return true, nil
	}
	_, err := s.bucket.Get(ctx, name)
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	return true, err
}

// held is the record of a conversation that this process owns, with its revision.
type held struct {
	schemas.TurnHold

	revision uint64
	since    clock.Reading
	// resting is where the former owner left the transcript, with no request under way.
	resting uint64
}

// take makes this process the owner of a conversation. It returns nil if no message has arrived for it, and errOthers if another process
// that may be alive owns it.
func (r *Runner) take(ctx context.Context, p place) (*held, error) {
	holds, key := lifecycle.OpenTurnHolds(r.Bus), lifecycle.TurnHoldKey(p.account, p.conversation)
	var contest streams.Contest
	for {
		since := clock.Now()
		e, err := holds.Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) {
			return nil, nil //nolint:nilnil // there is nothing to carry on
		}
		if err != nil {
			return nil, err
		}
		h := held{TurnHold: e.Value, since: since, resting: e.Value.Resting}
		if h.Owner != "" && h.Owner != r.name {
			lives, err := r.sign.lives(ctx, h.Owner)
			if err != nil {
				return nil, err
			}
			if lives {
				return nil, errOthers
			}
			r.Log.Info("conversation taken over from a process that is gone", "conversation", p.conversation, "former", h.Owner)
		}
		h.Owner, h.Epoch, h.Resting, h.Updated = r.name, h.Epoch+1, 0, r.Bus.Now().UTC()
		h.revision, err = holds.Update(ctx, key, h.TurnHold, e.Revision)
		if errors.Is(err, schemas.ErrConflict) {
			if err := contest.Again(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		return &h, nil
	}
}

// write stores the record. If another process has taken the conversation over, it returns errMoved.
func (c *carrying) write(ctx context.Context) error {
	c.hold.Updated = c.r.Bus.Now().UTC()
	holds, key := lifecycle.OpenTurnHolds(c.r.Bus), lifecycle.TurnHoldKey(c.account, c.conversation)
	var contest streams.Contest
	for {
		revision, err := holds.Update(ctx, key, c.hold.TurnHold, c.hold.revision)
		if err == nil {
			c.hold.revision = revision
			return nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
		// A follow-up that has come behind a later one may have moved its beginning.
		e, err := holds.Get(ctx, key)
		if err != nil {
			return err
		}
		if e.Value.Owner != c.r.name || e.Value.Epoch != c.hold.Epoch {
			return errMoved
		}
		if e.Value.First < c.hold.First {
			c.hold.First, c.hold.Seen = e.Value.First, min(c.hold.Seen, e.Value.Seen)
			c.readTo, c.inbox = c.hold.Seen, nil
			c.hand.poke()
		}
		c.hold.revision = e.Revision
	}
}

// mine checks, before an expensive request, that no other process has taken the conversation over; otherwise it returns errMoved.
func (c *carrying) mine(ctx context.Context) error {
	if c.r.sign.keptSince(c.hold.since) {
		return nil
	}
	since := clock.Now()
	e, err := lifecycle.OpenTurnHolds(c.r.Bus).Get(ctx, lifecycle.TurnHoldKey(c.account, c.conversation))
	if err != nil {
		return err
	}
	if e.Value.Owner != c.r.name || e.Value.Epoch != c.hold.Epoch {
		return errMoved
	}
	c.hold.since = since
	return nil
}
