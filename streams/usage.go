package streams

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// usageClass is what bytes on the log are kept for.
type usageClass int

const (
	usageCalls   usageClass = iota // calls, requests that wait, requests for an end, and their payloads
	usageEvents                    // conversations and what follows from them: deliveries, follow-ups, jobs, approvals, dead letters
	usageDurable                   // durable streams, and their records
	usageClasses
)

// usage is what an account keeps, by class.
type usage [usageClasses]schemas.Amount

// logBytes are those that count against the quota of the log.
func (u usage) logBytes() int64 { return u[usageCalls].Bytes + u[usageEvents].Bytes }

func (u usage) plus(v usage) usage {
	for i := range u {
		u[i].Bytes, u[i].Messages = max(u[i].Bytes+v[i].Bytes, 0), max(u[i].Messages+v[i].Messages, 0)
	}
	return u
}

// add is plus of what may be less than nothing: what was removed.
func (u usage) add(v usage) usage {
	for i := range u {
		u[i].Bytes, u[i].Messages = u[i].Bytes+v[i].Bytes, u[i].Messages+v[i].Messages
	}
	return u
}

func (u usage) minus(v usage) usage {
	for i := range u {
		u[i].Bytes, u[i].Messages = u[i].Bytes-v[i].Bytes, u[i].Messages-v[i].Messages
	}
	return u
}

// usageRecord is a value of the bucket [usageRecords]: what an account keeps, by the last count and what was written since.
// Removals show at the next count, but those of timers that have fired, see [meter.fired].
type usageRecord struct {
	Usage   usage         `json:"usage"`
	Fired   usage         `json:"fired,omitzero"`   // taken off since that count, for timers that have fired
	Counted time.Time     `json:"counted,omitzero"` // when it was counted last
	Took    time.Duration `json:"took,omitzero"`    // how long that took
}

const (
	usageFlush    = 10 * time.Second // after which what a process has written is on record
	usageLarge    = 16 << 20         // bytes of an account that are recorded sooner, if its quota is no reason
	usageRead     = 10 * time.Second // that the record is believed
	usageIdle     = 10 * time.Minute // after which an account is forgotten of which nothing waits
	usagePatience = 3 * time.Second  // that who would be refused waits for a count
	countPause    = time.Minute      // between two counts of an account, at least
	countShare    = 20               // of the time that the last count took
	countFrom     = 90               // percent of a quota from which on an account is counted before it is met
)

// Quotas are the most bytes that an account may keep. 0: a quarter of the log's room, if that is bounded; less: any number.
type Quotas struct {
	Log     int64 // its calls, conversations and what follows from them
	Durable int64 // its durable streams
	// Exempt is the account of the operator, for which there is none.
	Exempt schemas.AccountID
}

// of is the quota of an account for a class; 0: none. It is pure.
func (q Quotas) of(a schemas.AccountID, c usageClass, room int64) int64 {
	const share = 4
	n := q.Log
	if c == usageDurable {
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

// meter counts what accounts write, and holds them to their quotas. It is safe for concurrent use.
type meter struct {
	bus    *Bus
	wake   chan struct{}                                  // something waits to be recorded
	urgent chan struct{}                                  // much does
	count  func(context.Context, schemas.AccountID) error // countDue, but in tests
	wanted changed                                        // notified when a count is wanted

	mu  sync.Mutex
	of  map[schemas.AccountID]*metered
	due []wantedCount // in the order in which they were wanted
}

// metered is what is known of one account.
type metered struct {
	record usageRecord
	read   time.Time // of the record; zero: never
	since  usage     // written by this process and not in the record
	moving usage     // likewise, and being recorded: by one write of the record, however many want that
	fired  fired     // timers that this process has seen fire, and that are not recorded
	// reserved is what this process is about to write, of calls and conversations. It is counted once more as it is written, until it is
	// released.
	reserved int64
	touched  time.Time
	counted  changed   // notified when a count has ended
	asked    bool      // a count, or a read, is wanted
	slow     bool      // a count took longer than quickWithin
	failed   time.Time // when a count has failed last
}

// fired is what timers held that have fired since a time of the log's clock: their messages are gone.
type fired struct {
	held  usage
	since time.Time
}

// and is both.
func (f fired) and(g fired) fired {
	switch {
	case f.held == usage{}:
		return g
	case g.held == usage{}:
		return f
	}
	if g.since.Before(f.since) {
		f.since = g.since
	}
	return fired{f.held.add(g.held), f.since}
}

// without is the record without what timers held that have fired. A count that ended after the first of them has fired may have found
// them gone, so nothing is taken off it: the record then says too much until the next count. It is pure.
func (r usageRecord) without(f fired) usageRecord {
	if r.Counted.Before(f.since) {
		r.Usage, r.Fired = r.Usage.plus(usage{}.minus(f.held)), r.Fired.add(f.held)
	}
	return r
}

func newMeter(b *Bus) *meter {
	m := &meter{bus: b, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), of: map[schemas.AccountID]*metered{}}
	m.count = m.countDue
	return m
}

// sum is what an account keeps as far as it is known. The lock is held.
func (e *metered) sum() usage { return e.record.Usage.plus(e.moving.add(e.since)) }

// account is what is known of an account. The lock is held.
func (m *meter) account(a schemas.AccountID) *metered {
	e := m.of[a]
	if e == nil {
		e = &metered{}
		m.of[a] = e
	}
	e.touched = time.Now()
	return e
}

// usageOf finds whose a message is, and for what; no account: nobody's. It is pure.
func usageOf(subject string) (schemas.AccountID, usageClass) {
	subject = targetOf(subject)
	switch {
	case strings.HasPrefix(subject, prefixBucket):
		return usageOfValue(subject)
	case strings.HasPrefix(subject, prefixDurable):
		if t := strings.Split(strings.TrimPrefix(subject, prefixDurable), "."); len(t) == 3 { // account, id, writer
			return schemas.AccountID(t[0]), usageDurable
		}
		return "", usageDurable
	case strings.HasPrefix(subject, prefixCalls), strings.HasPrefix(subject, prefixWaiting), strings.HasPrefix(subject, prefixCancels):
		return accountOf(subject), usageCalls
	}
	return accountOf(subject), usageEvents
}

// wrote counts a message that was written, or a payload of one.
func (m *meter) wrote(subject string, n int64) {
	m.changed(subject, schemas.Amount{Bytes: n, Messages: 1})
}

// changed counts by how much there is more, or less, below a subject.
func (m *meter) changed(subject string, by schemas.Amount) {
	a, class := usageOf(subject)
	if a == "" {
		return
	}
	m.mu.Lock()
	e := m.account(a)
	e.since[class].Bytes += by.Bytes
	e.since[class].Messages += by.Messages
	large := int64(usageLarge)
	if q := m.bus.quota(a, class); q > 0 {
		large = min(large, q/100) // a hundredth
	}
	signal := m.wake
	if e.since[class].Bytes >= large {
		signal = m.urgent
	}
	m.mu.Unlock()
	select {
	case signal <- struct{}{}:
	default:
	}
}

// fired counts that a timer has fired at a time of the log's clock. Its message is gone, and another lies where it was for, in the place of
// the one that was put aside there.
func (m *meter) fired(subject string, n int64, at time.Time) {
	a, class := usageOf(subject)
	if a == "" {
		return
	}
	f := fired{since: at}
	f.held[class] = schemas.Amount{Bytes: n, Messages: 1}
	m.mu.Lock()
	e := m.account(a)
	e.fired = e.fired.and(f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// quota is an account's quota for a class of bytes, 0 for none.
func (b *Bus) quota(a schemas.AccountID, c usageClass) int64 {
	if b.options.Quotas == nil {
		return 0
	}
	return b.options.Quotas.of(a, c, b.room.limit())
}

// allow says whether an account may keep n bytes more. Code exhausted: its quota is used up, by a count that may be some minutes
// old. Wait: who would be refused waits for a count if one is due.
func (m *meter) allow(ctx context.Context, a schemas.AccountID, c usageClass, n int64, wait bool) error {
	quota := m.bus.quota(a, c)
	if quota <= 0 || a == "" {
		return nil
	}
	m.mu.Lock()
	stale := time.Since(m.account(a).read) > usageRead
	m.mu.Unlock()
	if stale {
		if wait {
			m.reread(ctx, a)
		} else {
			m.ask(a, false)
		}
	}
	used, counted, isDue := m.used(a, c)
	// That a timer has fired may have been seen twice, by a queue that was made again: what was taken off for it must not put off a count.
	if isDue && used+m.takenOff(a, c)+n > quota/100*countFrom {
		m.ask(a, wait && used+n > quota)
		if wait && used+n > quota {
			t := time.NewTimer(usagePatience)
			defer t.Stop()
			select {
			case <-counted:
			case <-t.C:
			case <-ctx.Done():
			}
			used, _, _ = m.used(a, c)
		}
	}
	if used+n <= quota {
		return nil
	}
	return errQuota(c, used, quota)
}

func errQuota(c usageClass, used, quota int64) error {
	what, remedy := "calls and conversations", "they go with their age"
	if c == usageDurable {
		what, remedy = "durable streams", "delete some"
	}
	return schemas.Errorf(schemas.Exhausted, "publish",
		"the account keeps %d bytes of %s, and may keep %d: %s, or ask the operator for more", used, what, quota, remedy)
}

// reserve is allow for n bytes that are written over a while, until release is called with the same number.
func (m *meter) reserve(ctx context.Context, a schemas.AccountID, n int64) error {
	if err := m.allow(ctx, a, usageEvents, n, true); err != nil {
		return err
	}
	quota := m.bus.quota(a, usageEvents)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	if used := e.sum().logBytes() + e.reserved; quota > 0 && used+n > quota { // others were faster
		return errQuota(usageEvents, used, quota)
	}
	e.reserved += n
	return nil
}

// release ends a reservation.
func (m *meter) release(a schemas.AccountID, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(a).reserved -= n
}

// used is what an account keeps, and whether it may be counted now.
func (m *meter) used(a schemas.AccountID, c usageClass) (n int64, counted <-chan struct{}, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	sum := e.sum()
	if n = sum.logBytes() + e.reserved; c == usageDurable {
		n = sum[usageDurable].Bytes
	}
	return n, e.counted.next(), e.record.dueAt(m.bus.Now()) && time.Since(e.failed) > countPause
}

// takenOff is what was taken off the record of an account since its last count.
func (m *meter) takenOff(a schemas.AccountID, c usageClass) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	off := m.account(a).record.Fired
	if c == usageDurable {
		return off[usageDurable].Bytes
	}
	return off.logBytes()
}

// dueAt reports whether it is time for another count. A count of the future was stamped before the log's clock was set back.
func (r usageRecord) dueAt(now time.Time) bool {
	age := now.Sub(r.Counted)
	return age < -ClocksApart || age > max(countPause, countShare*r.Took)
}

// reread reads an account's record. What cannot be read stays as it was known.
func (m *meter) reread(ctx context.Context, a schemas.AccountID) {
	p, err := OpenBucket[usageRecord](m.bus, usageRecords).Get(ctx, string(a))
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	e.record, e.read = p.Value, time.Now()
}

// run records what was written, until ctx ends.
func (m *meter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.urgent:
		case <-m.wake:
			t := time.NewTimer(usageFlush)
			select {
			case <-ctx.Done():
			case <-m.urgent:
			case <-t.C:
			}
			t.Stop()
		}
		m.flush(ctx)
	}
}

// flush records what was written by this process. What cannot be recorded now waits.
func (m *meter) flush(ctx context.Context) {
	m.mu.Lock()
	var with []schemas.AccountID
	for a, e := range m.of {
		switch {
		case e.since != usage{}, e.fired.held != usage{}:
			with = append(with, a)
		case !e.asked && e.reserved == 0 && e.moving == usage{} && time.Since(e.touched) > usageIdle:
			delete(m.of, a)
		}
	}
	m.mu.Unlock()
	for _, a := range with {
		if ctx.Err() != nil {
			return
		}
		if err := m.record(ctx, a); err != nil {
			m.bus.log.Debug("account usage not recorded yet", "account", a, "error", err)
			select {
			case m.wake <- struct{}{}:
			default:
			}
		}
	}
}

// record adds to the record of an account what this process has written, and takes off what it has seen fire.
func (m *meter) record(ctx context.Context, a schemas.AccountID) error {
	m.mu.Lock()
	e := m.account(a)
	since, gone := e.since, e.fired
	e.since, e.moving, e.fired = usage{}, e.moving.add(since), fired{}
	m.mu.Unlock()
	err := m.change(ctx, a, since, func(r usageRecord) (usageRecord, bool) {
		r.Usage = r.Usage.plus(since)
		return r.without(gone), since != usage{} || gone.held != usage{}
	})
	if err != nil {
		m.mu.Lock()
		e.since, e.moving, e.fired = e.since.add(since), e.moving.minus(since), gone.and(e.fired)
		m.mu.Unlock()
	}
	return err
}

// change changes the record of an account by compare and set, and takes from what is being recorded what it then has.
func (m *meter) change(ctx context.Context, a schemas.AccountID, waits usage, f func(usageRecord) (usageRecord, bool)) error {
	bucket := OpenBucket[usageRecord](m.bus, usageRecords)
	var contest Contest
	for {
		p, err := bucket.Get(ctx, string(a))
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		next, changes := f(p.Value)
		if changes {
			if p.Revision == 0 { // also where there was one once
				_, err = bucket.Create(ctx, string(a), next, 0)
			} else {
				_, err = bucket.Update(ctx, string(a), next, p.Revision)
			}
			if errors.Is(err, schemas.ErrConflict) {
				if err := contest.Again(ctx); err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
		}
		m.mu.Lock()
		e := m.account(a)
		e.record, e.read = next, time.Now()
		e.moving = e.moving.minus(waits)
		m.mu.Unlock()
		return nil
	}
}
