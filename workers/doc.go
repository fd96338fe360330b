// Package workers runs calls: it takes them from the log, runs each on a provider and writes its
// one result.
//
// # The states of a call
//
// A call is in one of these states, as its events on the log say:
//
//   - accepted: it is on the log. Any client may ask for its end.
//   - waiting: it was delivered and nak'ed, because its account is at its cap, or the provider or
//     a record is unavailable. Nothing was started; it comes again.
//   - started: the event call.started names the worker that runs it. For a tool with side effects
//     this proof is on the log before anything runs, for the others it may follow.
//   - finished: the event call.finished carries its result. Nothing changes after that.
//
// A result has one of the statuses of [schemas.Status]. From accepted and waiting a call may go
// straight to cancelled, expired (its deadline passed), or failed (it cannot be run: no such
// sandbox, or it became a dead letter). From started it goes to completed, failed, cancelled (its
// processes were killed) or interrupted (its worker died, and how far it came is unknown).
//
// # Exactly one result, started at most once
//
// The first delivery of a call costs no read. Every other one, and every one that leaves a doubt,
// begins with a read of the conversation; [decide] in verdict.go is the whole rule. What backs it:
//
//   - Each worker keeps a lease on the log, renewed each second, gone after three. A call with side
//     effects that was started is interrupted only when no worker that started it has a lease, seen
//     by a worker that kept its own long enough to know a death from an outage of the log.
//   - The proof of a start and the result have ids that do not change, so the log recognises a
//     second one. That also covers a log that was killed and forgot what it had delivered.
//   - A worker that may have been taken for dead looks before it writes a result. It does not kill
//     what it runs: the outcome is unknown to others, and that is what they have said.
//
// A call that is out of deliveries is a dead letter; the [github.com/sandjet/sandjet/workers/maintenance.CallExpirer]
// gives it its result.
//
// # Background jobs
//
// A background call launches a job and ends. What keeps a job from being started twice is the call's
// proof of a start; what keeps it from being forgotten is its record, which says launching before the
// provider is asked. A worker that gets a call whose worker died reads the record: a waiting job gets this
// worker's name in it, which fences off launching, and a job that may run is left to be found.
//
// Each worker has a job manager ([github.com/sandjet/sandjet/workers/jobs.Manager]), which manages the jobs
// of this worker and takes over those of workers that are gone. It also serves the control of its jobs
// ([lifecycle.ControlJob]). The first completion on the log counts; the
// [github.com/sandjet/sandjet/workers/maintenance.Settler] draws the consequences,
// and the [github.com/sandjet/sandjet/workers/maintenance.JobRescuer] sees to the jobs that no worker manages. async_status
// needs none of them for what is on record, so any worker carries it out.
package workers
