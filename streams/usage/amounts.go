package usage

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Class is what bytes on the log are kept for.
type Class int

// The classes.
const (
	Calls   Class = iota // calls, requests that wait, requests for an end, and their payloads
	Events               // conversations and what follows from them: deliveries, follow-ups, jobs, approvals, dead letters
	Durable              // durable streams, and their records
	classes
)

// Amounts is what an account keeps, by class.
type Amounts [classes]schemas.Amount

// logBytes are those that count against the quota of the log.
func (u Amounts) logBytes() int64 { return u[Calls].Bytes + u[Events].Bytes }

// bytes are those that count against the same quota as a class.
func (u Amounts) bytes(c Class) int64 {
	if c == Durable {
		return u[Durable].Bytes
	}
	return u.logBytes()
}

func (u Amounts) plus(v Amounts) Amounts {
	for i := range u {
		u[i].Bytes, u[i].Messages = max(u[i].Bytes+v[i].Bytes, 0), max(u[i].Messages+v[i].Messages, 0)
	}
	return u
}

// add is plus of amounts that may be negative: of removals.
func (u Amounts) add(v Amounts) Amounts {
	for i := range u {
		u[i].Bytes, u[i].Messages = u[i].Bytes+v[i].Bytes, u[i].Messages+v[i].Messages
	}
	return u
}

func (u Amounts) minus(v Amounts) Amounts {
	for i := range u {
		u[i].Bytes, u[i].Messages = u[i].Bytes-v[i].Bytes, u[i].Messages-v[i].Messages
	}
	return u
}

// Record is what all processes know of an account: what it keeps, by the last count and what was written since.
// Removals show at the next count, but those of timers that have fired, see [Meter.Fired].
type Record struct {
	Usage   Amounts       `json:"usage"`
	Fired   Amounts       `json:"fired,omitzero"`   // taken off since that count, for timers that have fired
	Counted time.Time     `json:"counted,omitzero"` // when it was counted last
	Took    time.Duration `json:"took,omitzero"`    // how long that took
}

// CountPause is the shortest time between two counts of an account.
const CountPause = time.Minute

const countShare = 20 // a count is due after so many times the time that the last one took

// dueAt reports whether it is time for another count. Apart is how far the clocks of the log's servers may differ: a record counted further
// in the future was stamped before the log's clock was set back. It is pure.
func (r Record) dueAt(now time.Time, apart time.Duration) bool {
	age := now.Sub(r.Counted)
	return age < -apart || age > max(CountPause, countShare*r.Took)
}

// without is the record without what timers held that have fired. A count that ended after the first of them has fired may have found
// them gone, so nothing is taken off it: the record then says too much until the next count. It is pure.
func (r Record) without(f fired) Record {
	if r.Counted.Before(f.since) {
		r.Usage, r.Fired = r.Usage.plus(Amounts{}.minus(f.held)), r.Fired.add(f.held)
	}
	return r
}

// recounted is the record after a count that found an account to keep so much. Before is the record as the count began. What was recorded
// since is added: the count may have missed it. What was taken off since, for timers that have fired, is not: the count may have missed the
// timers already. It is pure.
func (r Record) recounted(found Amounts, before Record, at time.Time, took time.Duration) Record {
	meanwhile := r.Usage.add(r.Fired).minus(before.Usage.add(before.Fired))
	return Record{Usage: found.plus(meanwhile), Counted: at, Took: took}
}

// fired is what timers held that have fired since a time of the log's clock: their messages are gone.
type fired struct {
	held  Amounts
	since time.Time
}

// and is both.
func (f fired) and(g fired) fired {
	switch {
	case f.held == Amounts{}:
		return g
	case g.held == Amounts{}:
		return f
	}
	if g.since.Before(f.since) {
		f.since = g.since
	}
	return fired{f.held.add(g.held), f.since}
}

// Quotas are the most bytes that an account may keep. 0: a quarter of the log's room, if that is bounded; less: any number.
type Quotas struct {
	Log     int64 // its calls, conversations and what follows from them
	Durable int64 // its durable streams
	// Exempt is the account of the operator, for which there is none.
	Exempt schemas.AccountID
}

// of is the quota of an account for a class; 0: none. Room is that of the log. It is pure.
func (q Quotas) of(a schemas.AccountID, c Class, room int64) int64 {
	const share = 4
	n := q.Log
	if c == Durable {
		n = q.Durable
	}
	if n == 0 {
		n = room / share
	}
	if a == q.Exempt || n < 0 {
		return 0
	}
	return n
}
