package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// groupPatience is how long a group waits for members of which nothing is known. It is longer than a call may wait for its start, so that
// every member that will start has started.
const groupPatience = 26 * time.Hour

// groupKept is the maximal time for which the record of a settled member is stored while its group waits for others: as long as three of
// the longest jobs take, run one after the other. Once a follow-up contains the member's result, its record is stored as long as any
// other.
const groupKept = 100 * 24 * time.Hour

// groupStep is the next step for a settled member of a group.
type groupStep string

const (
	memberWaits groupStep = "waits" // other members have not settled
	memberEnds  groupStep = "ends"  // the group is complete, and its follow-up is due
	memberAlone groupStep = "alone" // the group was complete without it, or is another group of the same id: it gets a follow-up of its own
	memberDone  groupStep = "done"  // the group's follow-up was created with it
)

// joinGroup adds a settled job to its group. G is the group's record; nil if there is none yet. If write is true, next must be stored
// before the step is taken.
//
// A group is complete once as many members have settled as it has. From then on its record changes only to Done, so that every later
// process finds the same members.
func joinGroup(g *schemas.Group, j schemas.Job, now time.Time) (next schemas.Group, write bool, step groupStep) {
	if g == nil {
		next = schemas.Group{
			ID: j.Group.ID, Account: j.Account, Conversation: j.Conversation, Agent: j.Agent, Turn: j.Turn, Origin: j.Origin,
			Size: j.Group.Size, Settled: []schemas.JobID{j.ID}, Created: now.UTC(), Deadline: now.UTC().Add(groupPatience),
		}
		return next, true, stepOf(next)
	}
	next = *g
	switch {
	case slices.Contains(g.Settled, j.ID) && g.Done:
		return next, false, memberDone
	case slices.Contains(g.Settled, j.ID):
		return next, false, stepOf(next)
	case sealed(*g) || g.Size != j.Group.Size || g.Conversation != j.Conversation:
		return next, false, memberAlone
	}
	next.Settled = append(slices.Clone(g.Settled), j.ID)
	return next, true, stepOf(next)
}

// sealed reports whether the group waits for no more members.
func sealed(g schemas.Group) bool { return g.Done || len(g.Settled)+g.Missing >= g.Size }

func stepOf(g schemas.Group) groupStep {
	if sealed(g) {
		return memberEnds
	}
	return memberWaits
}

// join adds a settled job to its group's record. IsSealed reports whether this job has completed the group.
func (h *followUps) join(ctx context.Context, j schemas.Job) (g schemas.Group, step groupStep, isSealed bool, err error) {
	groups, key := lifecycle.OpenGroups(h.bus), lifecycle.GroupKey(j.Account, j.Group.ID)
	var contest streams.Contest
	for {
		p, err := groups.Get(ctx, key)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return schemas.Group{}, "", false, fmt.Errorf("look up the group: %w", err)
		}
		found := err == nil && !p.Deleted
		var have *schemas.Group
		if found {
			have = &p.Value
		}
		g, write, step := joinGroup(have, j, h.bus.Now())
		switch {
		case !write:
		case found:
			_, err = groups.Update(ctx, key, g, p.Revision)
		default:
			_, err = groups.Create(ctx, key, g, 0)
		}
		switch {
		case !write || err == nil:
			return g, step, write && step == memberEnds, nil
		case !errors.Is(err, schemas.ErrConflict):
			return g, "", false, fmt.Errorf("count the job in its group: %w", err)
		}
		if err := contest.Again(ctx); err != nil {
			return g, "", false, err
		}
	}
}

// finish creates the follow-up of a complete group, unless there is nothing to report, and closes the group. It is idempotent, and several
// processes may call it at once: the first follow-up counts. Absent is passed to [streams.StoreOnce].
func (h *followUps) finish(ctx context.Context, g schemas.Group, absent streams.Absence, receivers []schemas.Endpoint) error {
	results, at, err := h.claimGroup(ctx, g)
	if err != nil {
		return err
	}
	if err := h.at(settleClaimed); err != nil {
		return err
	}
	if len(results) > 0 {
		if err := h.handOn(ctx, groupFollowUp(g, results, at), absent, receivers); err != nil {
			return err
		}
	}
	return h.close(ctx, g)
}

// claimGroup claims the results of a group's members for its follow-up, except results that were read already. It returns them in the
// order in which the jobs settled, with the time of the last. It is idempotent: claimed results remain claimed.
func (h *followUps) claimGroup(ctx context.Context, g schemas.Group) (results []schemas.JobResult, last time.Time, err error) {
	id := schemas.MakeFollowUpID(g.Account, g.ID, "")
	found := make(map[schemas.JobID]schemas.JobResult, len(g.Settled))
	var unstarted []schemas.JobID
	take := func(member schemas.JobID, claim func(schemas.Job) bool) error {
		j, mine, err := h.claim(ctx, g.Account, member, id, claim)
		if err == nil && mine {
			found[member] = schemas.JobResultOf(j, *j.Completion)
			if j.Completion.Finished.After(last) {
				last = j.Completion.Finished
			}
		}
		return err
	}
	for _, member := range g.Settled {
		err := take(member, func(j schemas.Job) bool {
			if j.State != schemas.JobUnstarted {
				return true
			}
			unstarted = append(unstarted, member)
			return false
		})
		if err != nil {
			return nil, last, err
		}
	}
	if len(found) == 0 { // unstarted calls have reported that in their own results
		for _, member := range unstarted {
			if err := h.rest(ctx, g.Account, member); err != nil {
				return nil, last, err
			}
		}
		return nil, last, nil
	}
	for _, member := range unstarted {
		if err := take(member, func(schemas.Job) bool { return true }); err != nil {
			return nil, last, err
		}
	}
	for _, member := range g.Settled {
		if r, ok := found[member]; ok {
			results = append(results, r)
		}
	}
	return results, last, nil
}

// claim claims a settled job's result for a follow-up if wanted is true for the job. It reports whether the follow-up contains the result:
// not if it was read before, or is part of another follow-up.
func (h *followUps) claim(
	ctx context.Context, a schemas.AccountID, id schemas.JobID, f schemas.FollowUpID, wanted func(schemas.Job) bool,
) (j schemas.Job, mine bool, err error) {
	jobs, key := lifecycle.OpenJobs(h.bus), schemas.JobKey(a, id)
	var contest streams.Contest
	for {
		p, err := jobs.Get(ctx, key)
		switch j = p.Value; {
		case errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted: // the record has expired
			return j, false, nil
		case err != nil:
			return j, false, fmt.Errorf("look up the job: %w", err)
		case j.Completion == nil:
			return j, false, schemas.OpErrorf(schemas.Unavailable, "follow up", "the job %s is in its group but not settled: that is tried again", id)
		case j.FollowUp == string(f):
			return j, true, nil
		case j.FollowUp != "" || !wanted(j):
			return j, false, nil
		}
		j.FollowUp = string(f)
		if _, err = jobs.UpdateFor(ctx, key, j, p.Revision, streams.SettledKept); err == nil {
			return j, true, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return j, false, fmt.Errorf("claim the result of the job: %w", err)
		}
		if err := contest.Again(ctx); err != nil {
			return j, false, err
		}
	}
}

// rest shortens the expiry of a settled job's record to that of other settled jobs, once no group waits for the job.
func (h *followUps) rest(ctx context.Context, a schemas.AccountID, id schemas.JobID) error {
	jobs, key := lifecycle.OpenJobs(h.bus), schemas.JobKey(a, id)
	var contest streams.Contest
	for {
		p, err := jobs.Get(ctx, key)
		if err == nil && !p.Deleted {
			_, err = jobs.UpdateFor(ctx, key, p.Value, p.Revision, streams.SettledKept)
		}
		switch {
		case err == nil || errors.Is(err, schemas.ErrNotFound):
			return nil
		case !errors.Is(err, schemas.ErrConflict):
			return fmt.Errorf("keep the record of the job no longer: %w", err)
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}

// seal closes a group whose time is over, with the members that have settled. It reports false if another process has changed the group
// meanwhile.
func (h *followUps) seal(ctx context.Context, p streams.BucketEntry[schemas.Group]) (schemas.Group, bool, error) {
	g := p.Value
	g.Missing = g.Size - len(g.Settled)
	_, err := lifecycle.OpenGroups(h.bus).Update(ctx, p.Key, g, p.Revision)
	switch {
	case errors.Is(err, schemas.ErrConflict):
		return g, false, nil
	case err != nil:
		return g, false, fmt.Errorf("close the group: %w", err)
	}
	return g, true, nil
}

// close marks a group as done. Its record is stored as long as those of its members.
func (h *followUps) close(ctx context.Context, g schemas.Group) error {
	groups, key := lifecycle.OpenGroups(h.bus), lifecycle.GroupKey(g.Account, g.ID)
	var contest streams.Contest
	for {
		p, err := groups.Get(ctx, key)
		if err == nil && !p.Deleted && !p.Value.Done {
			p.Value.Done = true
			_, err = groups.UpdateFor(ctx, key, p.Value, p.Revision, streams.SettledKept)
		}
		switch {
		case err == nil || errors.Is(err, schemas.ErrNotFound):
			return nil
		case !errors.Is(err, schemas.ErrConflict):
			return fmt.Errorf("close the group: %w", err)
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}
