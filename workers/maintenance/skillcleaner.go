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

// SkillRecords reports which bundles of skills are in use.
type SkillRecords interface {
	// Names reports whether a stored skill of the account refers to the bundle. Code: unavailable.
	Names(ctx context.Context, a schemas.AccountID, digest string) (bool, error)
}

const cleanSkillsEvery = 10 * time.Minute

// SkillCleaner removes bundles of skills to which no record refers: those of replaced and removed skills, and those of uploads that ended
// before they wrote their record. It removes a bundle that has been unreferenced for [streams.SkillsKept], by the stream's clock, and was
// not written for as long. Therefore no upload is about to refer to it, and no call that has begun reads it. Of all processes with a
// SkillCleaner, one does the work. If another takes over, the waiting times start again.
type SkillCleaner struct {
	Bus     *streams.Bus
	Records SkillRecords
	Log     *slog.Logger  // nil: silent
	Every   time.Duration // between two rounds; 0: 10 minutes
}

// Run removes bundles until ctx is done, and then returns nil.
func (s *SkillCleaner) Run(ctx context.Context) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return byOne(ctx, s.Bus, "skills", log, func(ctx context.Context, t *streams.Tenure) {
		unnamed := map[streams.StoredSkill]time.Time{} // since when a bundle is unreferenced
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

// sweep checks every stored bundle once, and removes those that were unreferenced for long enough.
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
