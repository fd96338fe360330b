package maintenance

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// SkillRecords says which bundles of skills are named.
type SkillRecords interface {
	// Names reports whether a skill of the account has the bundle, by what the log has. Code: unavailable.
	Names(ctx context.Context, a schemas.AccountID, digest string) (bool, error)
}

const cleanSkillsEvery = 10 * time.Minute

// SkillCleaner removes bundles of skills that no record names: those that were replaced or whose skill was removed, and those of uploads
// that ended before their record. One goes when it was found without a name for [streams.SkillsKept], by the log's clock, and none of it
// was written for as long: so no upload is about to name it, and no call that has begun reads it. Of all processes that have one, one does
// the work; another that takes over begins to wait again.
type SkillCleaner struct {
	Bus     *streams.Bus
	Records SkillRecords
	Log     *slog.Logger  // nil: silent
	Every   time.Duration // between two looks. 0: 10 minutes
}

// Run looks until ctx ends, and returns nil then.
func (s *SkillCleaner) Run(ctx context.Context) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return byOne(ctx, s.Bus, "skills", log, func(ctx context.Context, t *streams.Tenure) {
		unnamed := map[streams.StoredSkill]time.Time{} // since when
		for {
			if err := s.sweep(ctx, t, unnamed); err != nil && ctx.Err() == nil {
				log.Warn("old bundles of skills not removed, retrying", "error", err)
			}
			if !wait.Sleep(ctx, cmp.Or(s.Every, cleanSkillsEvery)) {
				return
			}
		}
	})
}

// sweep looks once at every bundle that is kept, and removes those that were unnamed for long enough.
func (s *SkillCleaner) sweep(ctx context.Context, t *streams.Tenure, unnamed map[streams.StoredSkill]time.Time) error {
	list, err := streams.StoredSkills(ctx, s.Bus)
	if err != nil {
		return err
	}
	kept := map[streams.StoredSkill]bool{}
	for _, k := range list {
		named, err := s.Records.Names(ctx, k.Account, k.Digest)
		if err != nil {
			return err
		}
		now := s.Bus.Now()
		since, seen := unnamed[k]
		switch {
		case named:
			delete(unnamed, k)
			continue
		case !seen:
			unnamed[k] = now
			kept[k] = true
			continue
		}
		kept[k] = true
		if now.Sub(since) < streams.SkillsKept {
			continue
		}
		if err := t.Held(); err != nil {
			return err
		}
		if _, err := streams.RemoveSkill(ctx, s.Bus, k, now.Add(-streams.SkillsKept)); err != nil {
			return err
		}
	}
	for k := range unnamed {
		if !kept[k] {
			delete(unnamed, k)
		}
	}
	return nil
}
