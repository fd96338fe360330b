package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
)

const (
	// DefaultSettlerSlots is how many ends of jobs a [Settler] has in flight at most.
	DefaultSettlerSlots = 64

	settlerAckWait = 10 * time.Second
	settlerGrace   = 5 * time.Second
	recordAttempts = 5 // until a job without a record is believed to have none
	recordAwaited  = 10 * time.Second
)

// Settler draws the consequences of the ends of background jobs, each once: the job's slots under caps are released, a worker collects its
// artifacts, its record becomes final, job.finished is on its conversation and on its way to the webhooks, and its result is passed on as a follow-up: by itself, or with
// those of its group.
//
// One per deployment is enough, more share the work and do no harm. It may die at any line: the end is
// handed out again, and every write is one that the log recognises as a repeat. The record becomes
// final first, so a record that is not final proves that nothing was published yet; that is what makes the
// usual case cheap: one read and three writes, and no second write of the record.
type Settler struct {
	Bus *streams.Bus
	// Limiter gets back the places of settled jobs. Nil: they end by themselves.
	Limiter limits.Limiter
	// Endpoints finds the webhook endpoints. Nil: there are none.
	Endpoints Endpoints
	// Slots is how many ends are in flight at most. 0: DefaultSettlerSlots.
	Slots   int
	Log     *slog.Logger // nil: silent
	Metrics SettlerMetrics

	// At is called at each stage of a settlement, and an error from it ends the handling right there. Nil: nothing is. It
	// is how tests let a settler die between two effects.
	At func(SettleStage) error
}

// SettlerMetrics are the figures of a settler. Each may be nil. They are called from many
// goroutines and must not block. After a crash the same may be reported twice.
type SettlerMetrics struct {
	// sandjet_jobs_settled_total{state,via}, sandjet_job_settle_seconds: since it was reported
	Settled  func(s schemas.JobState, v schemas.ReportedBy, lag time.Duration)
	Followed func(results int) // sandjet_followups_total, sandjet_followup_results_total
}

// SettleStage is a place between two effects of a settlement, where a process may die.
type SettleStage string

const (
	settleTaken     SettleStage = "taken"     // nothing was done
	settleReleased  SettleStage = "released"  // the slots are released
	settleCollected SettleStage = "collected" // its artifacts are stored and announced, no record lists them
	settleFinal     SettleStage = "final"     // the record is final
	settlePublished SettleStage = "published" // an event is on the conversation, its deliveries are not made
	settleSent      SettleStage = "sent"      // job.finished is published and sent to the webhooks
	settleCounted   SettleStage = "counted"   // it is counted in its group
	settleClaimed   SettleStage = "claimed"   // a group's results are claimed for the follow-up
	settleHanded    SettleStage = "handed"    // the follow-up is with its agent or channel, not published
	settleFollowed  SettleStage = "followed"  // all is done, the end is not acknowledged
)

// SettleStages lists the stages in their order.
func SettleStages() []SettleStage {
	return []SettleStage{
		settleTaken, settleReleased, settleCollected, settleFinal, settlePublished, settleSent, settleCounted, settleClaimed, settleHanded, settleFollowed,
	}
}

// Run settles jobs until ctx ends. It returns nil then, and an error when the log refuses its consumer
// for good.
func (s *Settler) Run(ctx context.Context) error {
	x := s.begin()
	err := streams.Completions.Consume(ctx, s.Bus, streams.ConsumeOptions{
		Name: "settler", Slots: cmp.Or(s.Slots, DefaultSettlerSlots), Grace: settlerGrace, AckWait: settlerAckWait, MaxAttempts: maxAttempts,
		Turns: true, MaxPending: streams.ManyPending,
	}, x.handle)
	if err != nil {
		return fmt.Errorf("settler: %w", err)
	}
	return nil
}

// settling is one Run of a settler.
type settling struct {
	*followUps

	limiter limits.Limiter
	settled func(schemas.JobState, schemas.ReportedBy, time.Duration)
	begun   time.Time // by the log's clock
}

func (s *Settler) begin() *settling {
	x := &settling{followUps: newFollowUps(s.Bus, s.Endpoints, s.Log), limiter: s.Limiter, settled: s.Metrics.Settled,
		begun: s.Bus.Now()}
	if x.settled == nil {
		x.settled = func(schemas.JobState, schemas.ReportedBy, time.Duration) {}
	}
	if s.Metrics.Followed != nil {
		x.followed = s.Metrics.Followed
	}
	if s.At != nil {
		x.at = s.At
	}
	return x
}

// handle settles one job. Its return value is the verdict for the log.
func (x *settling) handle(ctx context.Context, d streams.Delivery[schemas.Completion]) error {
	if d.Account != d.Value.Account {
		return schemas.OpErrorf(schemas.Invalid, "settle", "the end of a job of %s came as one of %s",
			schemas.Quotable(string(d.Value.Account)), d.Account)
	}
	absent := x.bus.Absent()
	if err := x.at(settleTaken); err != nil {
		return err
	}
	j, seen, err := x.final(ctx, d)
	// waiting for its turn counts as an attempt
	if errors.Is(err, schemas.ErrNotFound) && (d.Attempt < recordAttempts || x.bus.Now().Sub(d.Published) < recordAwaited) {
		return streams.RetryAfter(again, err) // a replica that is behind may not know it yet
	}
	if err != nil {
		return err
	}
	if err := x.at(settleFinal); err != nil {
		return err
	}
	receivers, err := x.receivers(ctx, j.Account)
	if err != nil {
		return streams.RetryAfter(again, err) // whatever is wrong with the records, the job must be settled
	}
	if seen { // an earlier handling may have published, or another settler; else no process could before this one began
		absent = absent.Since(d.Published)
	}
	if j.State != schemas.JobUnstarted { // else its call's result has said so
		e := schemas.NewJobEvent(j, schemas.JobFinished, schemas.JobFinishedID(j.Account, j.ID), j.Completion.Finished,
			schemas.JobResultOf(j, *j.Completion))
		if err := x.publish(ctx, e, absent.Cautiously(), receivers); err != nil {
			return err
		}
		if err := x.at(settleSent); err != nil {
			return err
		}
	}
	if err := x.follow(ctx, j, absent, receivers); err != nil {
		return err
	}
	if !seen {
		x.settled(j.State, j.Completion.ReportedBy, x.bus.Now().Sub(d.Published))
	}
	return x.at(settleFollowed)
}

// final makes the record of a job final, and reports whether it was before. A job without a group has its follow-up claimed in the same
// write: no call could have read its result.
func (x *settling) final(ctx context.Context, d streams.Delivery[schemas.Completion]) (j schemas.Job, seen bool, err error) {
	c := d.Value
	jobs, key := lifecycle.OpenJobs(x.bus), schemas.JobKey(c.Account, c.Job)
	var contest streams.Contest
	var collected bool
	for {
		p, err := jobs.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted:
			// Records are made before anything runs and kept for as long as this message: so it is not a job of this log.
			return j, false, schemas.OpErrorf(schemas.NotFound, "settle",
				"the job %s has no record: nothing is known that could follow from its end", c.Job)
		case err != nil:
			return j, false, fmt.Errorf("look up the job: %w", err)
		case p.Value.State.Final() && p.Value.Completion != nil:
			lifecycle.MarkSettled(x.bus, p.Value) // once more: it may have died before
			return p.Value, true, nil
		}
		j = p.Value
		x.release(ctx, j) // before a client can see that the job is over, and start the next in its slot
		if err := x.at(settleReleased); err != nil {
			return j, false, err
		}
		if !collected && asksForArtifacts(j, c) {
			if c.JobArtifacts, err = x.collect(ctx, j, d); err != nil {
				return j, false, err
			}
			if err := x.at(settleCollected); err != nil {
				return j, false, err
			}
			collected = true
		}
		j = lifecycle.Settled(j, c)
		if j.Group == nil && c.State != schemas.JobUnstarted {
			j.FollowUp = string(schemas.MakeFollowUpID(j.Account, "", j.ID))
		}
		kept := streams.SettledKept
		if j.Group != nil { // until its group takes it
			kept = groupKept
		}
		if _, err = jobs.UpdateFor(ctx, key, j, p.Revision, kept); err == nil {
			lifecycle.MarkSettled(x.bus, j)
			return j, false, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return j, false, fmt.Errorf("settle the job: %w", err)
		}
		if err := contest.Again(ctx); err != nil {
			return j, false, err
		}
	}
}

// release releases the job's slots. If that fails they expire by themselves.
func (x *settling) release(ctx context.Context, j schemas.Job) {
	if x.limiter == nil || len(j.Places) == 0 {
		return
	}
	places := make([]limits.Lease, len(j.Places))
	for i, p := range j.Places {
		places[i] = limits.Lease{Key: p.Key, Holder: j.Key(), Token: p.Token}
	}
	if err := x.limiter.Release(ctx, places...); err != nil && ctx.Err() == nil {
		x.log.Warn("slots of a job not released, they expire", "job", j.ID, "error", err)
	}
}

// follow takes the job's result on: by itself, or when its group is complete.
func (x *settling) follow(ctx context.Context, j schemas.Job, absent streams.Absence, receivers []schemas.Endpoint) error {
	if j.Group == nil {
		return x.alone(ctx, j, absent, receivers)
	}
	before := x.bus.Absent()
	g, step, isSealed, err := x.join(ctx, j)
	if err != nil {
		return err
	}
	if err := x.at(settleCounted); err != nil {
		return err
	}
	switch step {
	case memberEnds:
		if !isSealed { // any member may have made it complete, at any time
			before = before.Since(g.Created)
		}
		return x.finish(ctx, g, before, receivers)
	case memberAlone:
		return x.alone(ctx, j, absent, receivers)
	case memberWaits, memberDone:
	}
	return nil
}

// alone hands on the result of one job, unless it was read before or its call's result has said all there is.
func (x *settling) alone(ctx context.Context, j schemas.Job, absent streams.Absence, receivers []schemas.Endpoint) error {
	if j.State == schemas.JobUnstarted {
		if j.Group != nil {
			return x.rest(ctx, j.Account, j.ID)
		}
		return nil
	}
	id := schemas.MakeFollowUpID(j.Account, "", j.ID)
	if j.FollowUp != string(id) {
		claimed, mine, err := x.claim(ctx, j.Account, j.ID, id, func(schemas.Job) bool { return true })
		if err != nil || !mine {
			return err
		}
		j = claimed
	}
	return x.handOn(ctx, jobFollowUp(j), absent, receivers)
}
