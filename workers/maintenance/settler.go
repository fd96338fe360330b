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
	// DefaultSettlerSlots is the default number of completions that a [Settler] handles at a time.
	DefaultSettlerSlots = 64

	settlerAckWait = 10 * time.Second
	settlerGrace   = 5 * time.Second
	recordAttempts = 5 // before a job without a record is taken to have none
	recordAwaited  = 10 * time.Second
)

// Settler processes the completions of background jobs, each once: it releases the job's concurrency slots, requests a worker to collect
// its artifacts, makes its record final, publishes job.finished on the conversation and to the webhooks, and passes the result on as a
// follow-up, alone or with those of its group.
//
// One Settler per deployment is enough; more share the work. It may crash at any point: the completion is redelivered, and the stream
// recognizes repeated writes. The record becomes final first, so a record that is not final proves that nothing was published yet. This
// keeps the usual case cheap: one read and three writes, of which one is the record.
type Settler struct {
	Bus *streams.Bus
	// Limiter releases the slots of settled jobs. Nil: they expire.
	Limiter limits.Limiter
	// Endpoints returns the webhook endpoints. Nil: there are none.
	Endpoints Endpoints
	// Slots is the maximal number of completions handled at a time. 0: DefaultSettlerSlots.
	Slots   int
	Log     *slog.Logger // nil: silent
	Metrics SettlerMetrics

	// At is called at each stage of a settlement. An error from it stops the handling there: tests simulate crashes by it. Nil: it is not
	// called.
	At func(SettleStage) error
}

// SettlerMetrics are the functions by which a settler reports metrics. Each may be nil. They are called concurrently and must not block.
// After a crash the same value may be reported twice.
type SettlerMetrics struct {
	// Settled is sandjet_jobs_settled_total{state,via} and sandjet_job_settle_seconds: lag is the time since the completion was published.
	Settled  func(s schemas.JobState, v schemas.ReportedBy, lag time.Duration)
	Followed func(results int) // sandjet_followups_total, sandjet_followup_results_total
}

// SettleStage is a point between two effects of a settlement, at which a process may crash.
type SettleStage string

const (
	settleTaken     SettleStage = "taken"     // nothing is done
	settleReleased  SettleStage = "released"  // the slots are released
	settleCollected SettleStage = "collected" // its artifacts are stored and announced, but not in the record
	settleFinal     SettleStage = "final"     // the record is final
	settlePublished SettleStage = "published" // an event is stored, its deliveries are not created
	settleSent      SettleStage = "sent"      // job.finished is stored and its deliveries are created
	settleCounted   SettleStage = "counted"   // the job is counted in its group
	settleClaimed   SettleStage = "claimed"   // a group's results are claimed for the follow-up
	settleHanded    SettleStage = "handed"    // the follow-up is passed to its agent or channel, but not published
	settleFollowed  SettleStage = "followed"  // all is done, but the completion is not acknowledged
)

// SettleStages lists the stages in their order.
func SettleStages() []SettleStage {
	return []SettleStage{
		settleTaken, settleReleased, settleCollected, settleFinal, settlePublished, settleSent, settleCounted, settleClaimed, settleHanded, settleFollowed,
	}
}

// Run settles jobs until ctx is done. It returns nil then, and an error if the stream permanently refuses its consumer.
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

// settling is the state of one Run of a settler.
type settling struct {
	*followUps

	limiter limits.Limiter
	settled func(schemas.JobState, schemas.ReportedBy, time.Duration)
	begun   time.Time // by the stream's clock
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

// handle settles one job. A nil error acknowledges the completion; other errors redeliver or dead-letter it.
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
	// Waiting for a turn also counts as an attempt, so the time is checked too.
	if errors.Is(err, schemas.ErrNotFound) && (d.Attempt < recordAttempts || x.bus.Now().Sub(d.Published) < recordAwaited) {
		return streams.RetryAfter(again, err) // a replica that lags may not have the record yet
	}
	if err != nil {
		return err
	}
	if err := x.at(settleFinal); err != nil {
		return err
	}
	receivers, err := x.receivers(ctx, j.Account)
	if err != nil {
		return streams.RetryAfter(again, err) // whatever is wrong with the endpoints' records, the job must be settled
	}
	if seen { // an earlier handling or another settler may have published; otherwise nothing was published before this handling began
		absent = absent.Since(d.Published)
	}
	if j.State != schemas.JobUnstarted { // an unstarted call has reported that in its result
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

// final makes the record of a job final, and reports whether it was before. For a job without a group, the same write claims its result
// for the follow-up: no call could have read the result before.
func (x *settling) final(ctx context.Context, d streams.Delivery[schemas.Completion]) (j schemas.Job, seen bool, err error) {
	c := d.Value
	jobs, key := lifecycle.OpenJobs(x.bus), schemas.JobKey(c.Account, c.Job)
	var contest streams.Contest
	var collected bool
	for {
		p, err := jobs.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted:
			// A record is created before its job runs and stored for as long as this message, so this job does not belong to this
			// deployment.
			return j, false, schemas.OpErrorf(schemas.NotFound, "settle",
				"the job %s has no record: nothing is known that could follow from its end", c.Job)
		case err != nil:
			return j, false, fmt.Errorf("look up the job: %w", err)
		case p.Value.State.Final() && p.Value.Completion != nil:
			lifecycle.MarkSettled(x.bus, p.Value) // again: the earlier handling may have crashed before
			return p.Value, true, nil
		}
		j = p.Value
		x.release(ctx, j) // before a client can see that the job has ended and start the next one in its slot
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
		if j.Group != nil { // until the group's follow-up contains it
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

// release releases the job's slots. If that fails, they expire.
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

// follow passes the job's result on: alone, or if its group is complete, with those of the group.
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
		if !isSealed { // another member may have completed the group, at any time since its creation
			before = before.Since(g.Created)
		}
		return x.finish(ctx, g, before, receivers)
	case memberAlone:
		return x.alone(ctx, j, absent, receivers)
	case memberWaits, memberDone:
	}
	return nil
}

// alone passes on the result of one job, unless it was read before or the job was not started, which its call's result has reported.
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
