package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// skillIDOf is the id of a skill of a name: so that of several that make it at the same time all make the same record.
func skillIDOf(a schemas.AccountID, name string) schemas.SkillID {
	return schemas.SkillID(derivedID(schemas.SkillPrefix, a, name))
}

// Skills are the skills of accounts.
type Skills struct{ *cache }

// List returns the skills of an account, by name. It costs no round trip. One that another process has just added may be missing.
func (s Skills) List(_ context.Context, a schemas.AccountID) ([]schemas.Skill, error) {
	return s.cached(a), nil
}

func (s Skills) cached(a schemas.AccountID) []schemas.Skill {
	return s.tenantOf(a).skillList()
}

// skillList are copies of a tenant's skills, by name. The tenant may be nil.
func (t *tenant) skillList() []schemas.Skill {
	if t == nil {
		return nil
	}
	list := make([]schemas.Skill, 0, len(t.skills.byID))
	for _, k := range t.skills.byID {
		list = append(list, cloneSkill(k))
	}
	slices.SortFunc(list, func(a, b schemas.Skill) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Get returns a skill of an account by its id or name, and its revision. One that the copy does not have yet is read from the log.
// Codes: not_found, in the same words for another account's.
func (s Skills) Get(ctx context.Context, a schemas.AccountID, id string) (schemas.Skill, uint64, error) {
	key, err := skillRef(a, id)
	if err != nil {
		return schemas.Skill{}, 0, err
	}
	type found struct {
		skill    schemas.Skill
		revision uint64
	}
	f, err := find(ctx, s.cache, key, func(t *tenant) (found, bool) {
		id := idOfKey(key)
		k, ok := t.skills.byID[id]
		return found{k, t.skills.stands[id].revision}, ok
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Skill{}, 0, noSkill(id)
	}
	return cloneSkill(f.skill), f.revision, err
}

// skillRef is the key of a skill by its id or name; a name is never like an id.
func skillRef(a schemas.AccountID, id string) (string, error) {
	if a.Validate() != nil {
		return "", noSkill(id)
	}
	if strings.HasPrefix(id, schemas.SkillPrefix) {
		if schemas.SkillID(id).Validate() != nil {
			return "", noSkill(id)
		}
		return skillKey(a, schemas.SkillID(id)), nil
	}
	if schemas.ValidateSkillName("", id) != nil {
		return "", noSkill(id)
	}
	return skillKey(a, skillIDOf(a, id)), nil
}

// idOfKey is the last part of a key.
func idOfKey(key string) schemas.SkillID {
	return schemas.SkillID(key[strings.LastIndexByte(key, '.')+1:])
}

// OfAgent returns the skills that an agent may load: those that it names and that are there, in the order in which it names them.
// Without an agent they are all of the account. Codes: not_found (the agent), unavailable.
func (s Skills) OfAgent(ctx context.Context, a schemas.AccountID, agent schemas.AgentID) ([]schemas.Skill, error) {
	if agent == "" {
		return s.List(ctx, a)
	}
	g, err := find(ctx, s.cache, agentKey(a, agent), func(t *tenant) (schemas.Agent, bool) {
		g, ok := t.agents.byID[agent]
		return g, ok
	})
	if err != nil {
		return nil, err
	}
	var list []schemas.Skill
	for _, name := range g.Skills {
		k, _, err := s.Get(ctx, a, name)
		switch {
		case errors.Is(err, schemas.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			list = append(list, k)
		}
	}
	return list, nil
}

// Admit reports whether an account may have a skill of a name, before its bundle is stored. With fresh there must be none yet. Codes:
// invalid, conflict (there is one of that name), exhausted.
func (s Skills) Admit(_ context.Context, a schemas.AccountID, m schemas.SkillManifest, fresh bool) error {
	if err := errors.Join(a.Validate(), m.Validate()); err != nil {
		return err
	}
	t := s.tenantOf(a)
	if t == nil {
		return nil
	}
	id := skillIDOf(a, m.Name)
	switch _, there := t.skills.byID[id]; {
	case there && fresh:
		return skillThere(m.Name)
	case !there && len(t.skills.byID) >= schemas.MaxSkills:
		return schemas.Errorf(schemas.Exhausted, "the account has %d skills, the most it may: remove one", len(t.skills.byID))
	}
	return nil
}

func skillThere(name string) error {
	return &schemas.Error{Code: schemas.Conflict, Field: "name",
		Message: fmt.Sprintf("the account has a skill %q already: replace it with PUT /v1/skills/%s", schemas.Quotable(name), name)}
}

// Put makes a skill, or replaces the one of its name, once its bundle is stored. With fresh there must be none; with a revision other
// than 0 it replaces only that one. The same bundle again changes nothing. Codes: invalid, conflict (there is one of that name; field
// [FieldIfMatch]: the revision is another), not_found (it was to be replaced and is gone), exhausted.
func (s Skills) Put(ctx context.Context, k schemas.Skill, fresh bool, revision uint64) (out schemas.Skill, rev uint64, err error) {
	var contest streams.Contest
	if err := s.Admit(ctx, k.Account, k.SkillManifest, fresh); err != nil {
		return out, 0, err
	}
	k = cloneSkill(k)
	k.ID = skillIDOf(k.Account, k.Name)
	key := skillKey(k.Account, k.ID)
	for {
		p, err := s.bucket.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound) && revision != 0:
			return out, 0, noSkill(k.Name)
		case errors.Is(err, schemas.ErrNotFound):
			k.Created, k.Updated = s.now().UTC(), s.now().UTC()
			rev, err = s.write(ctx, streams.BucketEntry[record]{}, record{Skill: &k}, true)
		case err != nil:
			return out, 0, fmt.Errorf("read the record %s: %w", key, err)
		case fresh:
			return out, 0, skillThere(k.Name)
		case revision != 0 && p.Revision != revision:
			return out, 0, stale()
		case p.Value.Skill == nil:
			return out, 0, schemas.Errorf(schemas.Unsupported, "the record %s is of another version", key)
		case p.Value.Skill.Digest == k.Digest:
			s.apply(p)
			return cloneSkill(*p.Value.Skill), p.Revision, nil
		default:
			k.Created, k.Updated = p.Value.Skill.Created, s.now().UTC()
			rev, err = s.write(ctx, p, record{Skill: &k}, true)
		}
		if err == nil {
			return cloneSkill(k), rev, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return out, 0, fmt.Errorf("change the record %s: %w", key, err)
		}
		if err := contest.Again(ctx); err != nil {
			return out, 0, err
		}
	}
}

// Remove removes a skill by its id or name; with a revision other than 0 only that one. Its bundle goes later. Codes: not_found,
// conflict (field [FieldIfMatch]).
func (s Skills) Remove(ctx context.Context, a schemas.AccountID, id string, revision uint64) error {
	key, err := skillRef(a, id)
	if err != nil {
		return err
	}
	err = s.remove(ctx, key, revision)
	if errors.Is(err, schemas.ErrNotFound) {
		return noSkill(id)
	}
	return err
}

// Names reports whether a skill of an account has the bundle of a digest. What the copy says counts for yes alone: for no, the log is
// asked. Codes: unavailable.
func (s Skills) Names(ctx context.Context, a schemas.AccountID, digest string) (bool, error) {
	if slices.ContainsFunc(s.cached(a), func(k schemas.Skill) bool { return k.Digest == digest }) {
		return true, nil
	}
	keys, err := s.bucket.Keys(ctx, kindSkill+"."+string(a)+".*")
	if err != nil {
		return false, fmt.Errorf("list the skills of %s: %w", a, err)
	}
	for _, key := range keys {
		p, err := s.bucket.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound): // meanwhile
		case err != nil:
			return false, fmt.Errorf("read the record %s: %w", key, err)
		case p.Value.Skill == nil || p.Value.Skill.Digest == digest: // what cannot be read may name it
			return true, nil
		}
	}
	return false, nil
}

func noSkill(id string) error {
	return schemas.Errorf(schemas.NotFound, "there is no skill %q", schemas.Quotable(id))
}

// cloneSkill keeps what callers do with a value out of the copy.
func cloneSkill(k schemas.Skill) schemas.Skill {
	k.Metadata = maps.Clone(k.Metadata)
	return k
}
