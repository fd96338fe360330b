package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Manifests apply manifests to an account's records, and return them as manifests.
type Manifests struct {
	*cache

	applying *serial // callers that apply a manifest to an account
}

// Apply makes an account's records what a manifest says, see [Plan], and says what it changed. Changes are
// made one after the other, each only to the revision that was planned with; when another was faster, what is left is
// planned again. When it fails half way, whatever is done is done: the same manifest applied again makes
// the rest. Applied twice it changes nothing.
//
// Codes: invalid (with all that is wrong, by resource), conflict (a name is another project's; or too many
// others change the same), exhausted, unavailable.
func (s Manifests) Apply(ctx context.Context, a schemas.AccountID, r schemas.ManifestRequest) (schemas.ManifestAnswer, error) {
	const tries = 8 // of others changing the same records at the same time
	if err := a.Validate(); err != nil {
		return schemas.ManifestAnswer{}, err
	}
	leave, err := s.applying.enter(ctx, a) // others of the account would only be in its way, and together take all processors
	if err != nil {
		return schemas.ManifestAnswer{}, err
	}
	defer leave()
	done := map[string]schemas.ManifestChange{} // by id
	var contest streams.Contest
	for try := 1; ; try++ {
		have, revisions, err := s.present(a)
		if err != nil {
			return schemas.ManifestAnswer{}, err
		}
		p, err := planOf(have, r.Manifest, r.Prune, s.now())
		if err != nil {
			return schemas.ManifestAnswer{}, err
		}
		answer := p.answer()
		if r.DryRun {
			return answer, nil
		}
		err = s.carryOut(ctx, a, p, revisions, done)
		if err == nil {
			answer.Changes, answer.Applied = withDone(answer.Changes, done), true
			return answer, nil
		}
		if !errors.Is(err, schemas.ErrConflict) || try == tries {
			return schemas.ManifestAnswer{}, halfWay(err, len(done))
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.ManifestAnswer{}, halfWay(err, len(done))
		}
	}
}

// withDone replaces the remaining changes, of which there are none, by those that earlier tries have made.
func withDone(changes []schemas.ManifestChange, done map[string]schemas.ManifestChange) []schemas.ManifestChange {
	rest := maps.Clone(done)
	for i, c := range changes {
		if d, ok := rest[c.ID]; ok {
			delete(rest, c.ID)
			if c.Action == schemas.ActionNone {
				changes[i] = d
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(rest)) { // deletions
		changes = append(changes, rest[id])
	}
	return changes
}

func halfWay(err error, done int) error {
	if done == 0 {
		return err
	}
	public := schemas.Public(err)
	return schemas.Wrap(public.Code, "", fmt.Sprintf("%d changes were made, then one failed: %s; apply it again to make the rest",
		done, public.Error()), err)
}

// present copies what an account has, with the revision of each record by its key. Code: unavailable (a
// record of the account does not open: it would be made a second time).
func (s Manifests) present(a schemas.AccountID) (Present, map[string]uint64, error) {
	if err := s.lockedOf(a, kindSandbox, kindWorkspace, kindModel, kindAgent); err != nil {
		return Present{}, nil, err
	}
	t := s.tenantOf(a)
	have := Present{Account: a, Providers: s.providers, Operator: s.Operator, sizes: map[string]int{}, size: s.bucket.size}
	kept, quota := s.RecordUsage(a)
	have.bytes, have.quota = kept.Bytes, quota
	revisions := map[string]uint64{}
	if t == nil {
		return have, revisions, nil
	}
	have.Sandboxes = values(&t.sandboxes, have.sizes, revisions)
	have.Workspaces = values(&t.workspaces, have.sizes, revisions)
	have.Models = values(&t.models, have.sizes, revisions)
	have.Agents = values(&t.agents, have.sizes, revisions)
	have.Variables = t.variables.ids()
	return have, revisions, nil
}

// values lists a table by id, and notes the size and the revision of each record.
func values[ID ~string, T any](t *table[ID, T], sizes map[string]int, revisions map[string]uint64) []T {
	list := make([]T, 0, len(t.byID))
	for _, id := range slices.Sorted(maps.Keys(t.byID)) {
		list = append(list, t.byID[id])
		sizes[string(id)], revisions[string(id)] = t.stands[id].size, t.stands[id].revision
	}
	return list
}

// carryOut makes the changes of a plan and records those that it made. Codes: conflict (another process was faster; the copy then has its
// records), exhausted (before anything is changed).
func (s Manifests) carryOut(ctx context.Context, a schemas.AccountID, p plan, revisions map[string]uint64, done map[string]schemas.ManifestChange) error {
	var b boxes // once something is deleted
	release, used, ok := s.take(a, p.more)
	if !ok { // another write has taken the room since
		return tooLarge("resources", used, p.more, s.Quota.of(a))
	}
	defer release()
	for _, st := range p.steps {
		key := st.record.key()
		revision, err := revisions[st.ID], error(nil)
		switch st.Action {
		case schemas.ActionNone:
			continue
		case schemas.ActionDelete:
			if b.of == nil {
				b = s.boxesOf(ctx, a)
			}
			if err = s.removeMarked(ctx, key, revision, b.marked(key)); errors.Is(err, schemas.ErrNotFound) {
				err = nil // another was faster
			}
		case schemas.ActionCreate:
			_, err = s.write(ctx, streams.BucketEntry[record]{}, st.record, false)
		case schemas.ActionUpdate, schemas.ActionRename:
			_, err = s.write(ctx, streams.BucketEntry[record]{Revision: revision}, st.record, false)
		}
		if errors.Is(err, schemas.ErrConflict) {
			if ferr := s.refresh(ctx, key, revision); ferr != nil {
				return ferr
			}
		}
		if err != nil {
			return fmt.Errorf("%s the %s %s: %w", st.Action, st.Kind, st.Name, err)
		}
		done[st.ID] = st.ManifestChange
	}
	return nil
}

// refresh reads the present state of a record, which had a revision, into the copy.
func (s *cache) refresh(ctx context.Context, key string, revision uint64) error {
	err := s.fetch(ctx, key)
	if errors.Is(err, schemas.ErrNotFound) {
		// The mark of the deletion has a later revision than what it deletes, and no less than this.
		s.apply(streams.BucketEntry[record]{Key: key, Deleted: true, Revision: revision + 1})
		return nil
	}
	return err
}

// Get returns the manifest of a project: the one whose application would change nothing. Values of variables are masked unless they refer
// to one of the account; applying the mask keeps the value. Codes: invalid, unavailable, not_found (no record belongs to the project).
func (s Manifests) Get(_ context.Context, a schemas.AccountID, project string) (schemas.Manifest, error) {
	have, _, err := s.present(a)
	if err != nil {
		return schemas.Manifest{}, err
	}
	p := &planner{
		have: have, present: map[schemas.ResourceKind]map[string]existing{}, ids: map[schemas.ResourceKind]map[string]string{},
		names: map[string]string{},
	}
	p.look()
	m := schemas.Manifest{Version: schemas.ManifestVersion, Project: project}
	for _, kind := range schemas.ResourceKinds() {
		for _, name := range slices.Sorted(maps.Keys(p.present[kind])) {
			if st := p.present[kind][name]; st.project == project && project != "" {
				m.Resources = append(m.Resources, resourceOf(masked(st.record), func(id string) string { return p.names[id] }))
			}
		}
	}
	if len(m.Resources) == 0 {
		return m, &schemas.Error{
			Code: schemas.NotFound, Field: "project", Message: fmt.Sprintf("nothing is of the project %q%s",
				schemas.Quotable(project), projectsOf(have)),
		}
	}
	return m, nil
}

// masked returns a record without its secrets.
func masked(r record) record {
	if r.Sandbox == nil {
		return r
	}
	sandbox := *r.Sandbox
	sandbox.EnvVars = maskVars(sandbox.EnvVars)
	return record{Sandbox: &sandbox}
}

// projectsOf lists the existing projects, for an error message.
func projectsOf(have Present) string {
	var all []string
	for _, v := range have.Sandboxes {
		all = append(all, v.Manifest)
	}
	for _, v := range have.Workspaces {
		all = append(all, v.Manifest)
	}
	for _, v := range have.Models {
		all = append(all, v.Manifest)
	}
	for _, v := range have.Agents {
		all = append(all, v.Manifest)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
	if len(all) == 0 {
		return ": no manifest has been applied"
	}
	return ": there is " + list(all)
}
