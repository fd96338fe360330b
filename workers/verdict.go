package workers

import "time"

// facts is all that decides what becomes of a delivered call. It is filled in two steps: what the
// delivery itself shows, and, when the verdict is look, what the conversation shows.
type facts struct {
	left        time.Duration // until the call's deadline; ≤ 0: it has passed
	sideEffects bool          // a second run could do harm
	doubt       bool          // this may not be the first delivery, or more may have happened on the log than this worker saw
	inFlight    bool          // this process holds the same call already
	cancelled   bool          // its end was asked for

	looked bool // the rest has been read
	// forgotten says that nothing of it is on the conversation, that retention may have removed it, and that this may not be the
	// first delivery: it may have been run.
	forgotten bool
	young     bool // it was published so recently that its acceptance may not be on the conversation yet
	finished  bool // its result is on the conversation
	starts    int  // so are so many proofs of a start
	alive     bool // one of the workers that started it may live
}

// maxStarts is how often a call without side effects is started. A worker that stops in order counts
// too, so it stands above the deploys that such a call may meet.
const maxStarts = 10

// verdict is what to do with a delivered call.
type verdict string

const (
	toLook      verdict = "look"        // read the conversation, then decide again
	toRun       verdict = "run"         // start it
	toWait      verdict = "wait"        // another worker may be running it: redeliver it later
	toAck       verdict = "done"        // its result exists: acknowledge, no more
	toInterrupt verdict = "interrupted" // it was started or may have been, its worker is gone: say that its outcome is unknown
	toCancel    verdict = "cancelled"   // it was not started and must not be
	toExpire    verdict = "expired"     // likewise
	toAbandon   verdict = "abandoned"   // every worker that started it died: it may be what kills them
)

// decide is the whole rule of "exactly one result, started at most once". It asks for a read only
// where a delivery leaves doubt, so that the usual call costs no read.
//
// The order matters: a result that exists beats everything; a proof of a start beats a request for
// the end and the deadline, because what was started may have had its effect. So may what is forgotten: only retention, which
// removes nothing of a call before its worker has acknowledged it, or the log's own limits can have made it so. One without side
// effects is run as if it had been started.
func decide(f facts) verdict {
	switch {
	case f.inFlight:
		return toWait
	case !f.looked && (f.doubt || f.cancelled || f.left <= 0): // the CallExpirer may have ended an overdue call
		return toLook
	case f.finished:
		return toAck
	case f.starts > 0 && f.sideEffects && f.alive:
		return toWait
	case f.forgotten && f.young && f.sideEffects:
		return toWait
	case (f.starts > 0 || f.forgotten) && f.sideEffects:
		return toInterrupt
	case f.cancelled:
		return toCancel
	case f.left <= 0:
		return toExpire
	case f.starts >= maxStarts:
		return toAbandon
	}
	return toRun
}
