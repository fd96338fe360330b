package usage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	flushAfter     = 10 * time.Second // after which what a process has written is on record
	largeWrite     = 16 << 20         // bytes of an account that are recorded sooner, if its quota is no reason
	recordBelieved = 10 * time.Second // how long a record that was read counts
	idleAfter      = 10 * time.Minute // after which an account is forgotten of which nothing waits to be recorded
	patience       = 3 * time.Second  // how long a request that would be refused waits for a count
	countFrom      = 90               // percent of a quota from which on an account is counted before it is met
	countWithin    = 30 * time.Minute // a count of one account; one with very much is counted rarely
)

// Log counts what accounts keep, and keeps their records for all processes.
type Log interface {
	// Now is the log's time.
	Now() time.Time
	// Count counts what an account keeps, by reading all of it.
	Count(ctx context.Context, a schemas.AccountID) (Amounts, error)
	// Record reads the record of an account: the zero one if there is none.
	Record(ctx context.Context, a schemas.AccountID) (Record, error)
	// Change changes the record of an account by compare and set, and returns the last result of f. It may call f several times. Where f
	// reports false the record stays as it is.
	Change(ctx context.Context, a schemas.AccountID, f func(Record) (next Record, changes bool)) (Record, error)
}

// Options are the collaborators and bounds of a [Meter].
type Options struct {
	Log Log
	// Quotas hold accounts to what they may keep. Nil: no account is limited, but what it writes is counted.
	Quotas *Quotas
	// Room returns the most bytes that the log may keep; 0: there is no bound.
	Room func() int64
	// ClocksApart is how far the clocks of the log's servers may differ.
	ClocksApart time.Duration
	Logger      *slog.Logger
}

// Meter counts what accounts write, and holds them to their quotas. It is safe for concurrent use.
type Meter struct {
	o      Options
	wake   chan struct{}                                  // something waits to be recorded
	urgent chan struct{}                                  // much does
	count  func(context.Context, schemas.AccountID) error // countDue, but in tests
	wanted wait.Broadcast                                 // notified when a count is wanted

	mu  sync.Mutex
	of  map[schemas.AccountID]*metered
	due []wantedCount // in the order in which they were wanted
}

// metered is what is known of one account.
type metered struct {
	record Record
	read   time.Time // of the record; zero: never
	since  Amounts   // written by this process and not in the record
	moving Amounts   // likewise, and being recorded: by one write of the record, however many want that
	fired  fired     // timers that this process has seen fire, and that are not recorded
	// reserved is what this process is about to write, of calls and conversations. It is counted once more as it is written, until it is
	// released.
	reserved int64
	touched  time.Time
	counted  wait.Broadcast // notified when a count has ended
	asked    bool           // a count, or a read, is wanted
	slow     bool           // a count took longer than quickWithin
	failed   time.Time      // when a count has failed last
}

// NewMeter makes a meter, which records nothing and counts no account before [Meter.Run].
func NewMeter(o Options) *Meter {
	m := &Meter{o: o, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), of: map[schemas.AccountID]*metered{}}
	m.count = m.countDue
	return m
}

// Run records what this process writes, and counts accounts, until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	var counts sync.WaitGroup
	for _, kind := range []countKind{largeCounts, quickCounts} {
		counts.Go(func() { m.runCounts(ctx, kind) })
	}
	m.runRecords(ctx)
	counts.Wait()
}

// sum is what an account keeps as far as it is known. The lock is held.
func (e *metered) sum() Amounts { return e.record.Usage.plus(e.moving.add(e.since)) }

// account is what is known of an account. The lock is held.
func (m *Meter) account(a schemas.AccountID) *metered {
	e := m.of[a]
	if e == nil {
		e = &metered{}
		m.of[a] = e
	}
	e.touched = time.Now()
	return e
}

// Changed counts by how much an account keeps more, or less, of a class.
func (m *Meter) Changed(a schemas.AccountID, class Class, by schemas.Amount) {
	if a == "" {
		return
	}
	m.mu.Lock()
	e := m.account(a)
	e.since[class].Bytes += by.Bytes
	e.since[class].Messages += by.Messages
	large := int64(largeWrite)
	if q := m.quota(a, class); q > 0 {
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

// Fired counts that a timer of an account has fired at a time of the log's clock. Its message, which held so much, is gone; another was
// written where the timer was for, in the place of the one that was put aside there.
func (m *Meter) Fired(a schemas.AccountID, class Class, held schemas.Amount, at time.Time) {
	if a == "" {
		return
	}
	f := fired{since: at}
	f.held[class] = held
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
func (m *Meter) quota(a schemas.AccountID, c Class) int64 {
	if m.o.Quotas == nil {
		return 0
	}
	return m.o.Quotas.of(a, c, m.o.Room())
}

// Allow returns an error if an account may not keep n bytes more. Code exhausted: its quota is used up, by a count that may be some minutes
// old. With wait, a request that would be refused waits for a count if one is due.
func (m *Meter) Allow(ctx context.Context, a schemas.AccountID, c Class, n int64, wait bool) error {
	quota := m.quota(a, c)
	if quota <= 0 || a == "" {
		return nil
	}
	m.mu.Lock()
	stale := time.Since(m.account(a).read) > recordBelieved
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
			t := time.NewTimer(patience)
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

func errQuota(c Class, used, quota int64) error {
	what, remedy := "calls and conversations", "they go with their age"
	if c == Durable {
		what, remedy = "durable streams", "delete some"
	}
	return schemas.OpErrorf(schemas.Exhausted, "publish",
		"the account keeps %d bytes of %s, and may keep %d: %s, or ask the operator for more", used, what, quota, remedy)
}

// Reserve is Allow for n bytes of events that are written over a while, until release is called.
func (m *Meter) Reserve(ctx context.Context, a schemas.AccountID, n int64) (release func(), err error) {
	if err := m.Allow(ctx, a, Events, n, true); err != nil {
		return nil, err
	}
	quota := m.quota(a, Events)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	if used := e.sum().logBytes() + e.reserved; quota > 0 && used+n > quota { // other requests were faster
		return nil, errQuota(Events, used, quota)
	}
	e.reserved += n
	return func() { m.release(a, n) }, nil
}

func (m *Meter) release(a schemas.AccountID, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(a).reserved -= n
}

// used is what an account keeps, and whether it may be counted now.
func (m *Meter) used(a schemas.AccountID, c Class) (n int64, counted <-chan struct{}, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	if n = e.sum().bytes(c); c != Durable {
		n += e.reserved
	}
	return n, e.counted.Next(), e.record.dueAt(m.o.Log.Now(), m.o.ClocksApart) && time.Since(e.failed) > CountPause
}

// takenOff is what was taken off the record of an account since its last count.
func (m *Meter) takenOff(a schemas.AccountID, c Class) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.account(a).record.Fired.bytes(c)
}

// reread reads an account's record. What cannot be read stays as it was known.
func (m *Meter) reread(ctx context.Context, a schemas.AccountID) {
	r, err := m.o.Log.Record(ctx, a)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	e.record, e.read = r, time.Now()
}

// runRecords records what was written, until ctx ends.
func (m *Meter) runRecords(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.urgent:
		case <-m.wake:
			t := time.NewTimer(flushAfter)
			select {
			case <-ctx.Done():
			case <-m.urgent:
			case <-t.C:
			}
			t.Stop()
		}
		m.Flush(ctx)
	}
}

// Flush records what was written by this process. What cannot be recorded now waits.
func (m *Meter) Flush(ctx context.Context) {
	m.mu.Lock()
	var with []schemas.AccountID
	for a, e := range m.of {
		switch {
		case e.since != Amounts{}, e.fired.held != Amounts{}:
			with = append(with, a)
		case !e.asked && e.reserved == 0 && e.moving == Amounts{} && time.Since(e.touched) > idleAfter:
			delete(m.of, a)
		}
	}
	m.mu.Unlock()
	for _, a := range with {
		if ctx.Err() != nil {
			return
		}
		if err := m.record(ctx, a); err != nil {
			m.o.Logger.Debug("account usage not recorded yet", "account", a, "error", err)
			select {
			case m.wake <- struct{}{}:
			default:
			}
		}
	}
}

// record adds to the record of an account what this process has written, and takes off what it has seen fire.
func (m *Meter) record(ctx context.Context, a schemas.AccountID) error {
	m.mu.Lock()
	e := m.account(a)
	since, gone := e.since, e.fired
	e.since, e.moving, e.fired = Amounts{}, e.moving.add(since), fired{}
	m.mu.Unlock()
	err := m.change(ctx, a, since, func(r Record) (Record, bool) {
		r.Usage = r.Usage.plus(since)
		return r.without(gone), since != Amounts{} || gone.held != Amounts{}
	})
	if err != nil {
		m.mu.Lock()
		e.since, e.moving, e.fired = e.since.add(since), e.moving.minus(since), gone.and(e.fired)
		m.mu.Unlock()
	}
	return err
}

// change changes the record of an account, and takes from what is being recorded what the record then includes.
func (m *Meter) change(ctx context.Context, a schemas.AccountID, waits Amounts, f func(Record) (Record, bool)) error {
	next, err := m.o.Log.Change(ctx, a, f)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	e.record, e.read = next, time.Now()
	e.moving = e.moving.minus(waits)
	return nil
}

// recount counts what an account keeps and puts it on record. What other processes have recorded meanwhile is added: some of that may be in
// the count already, so it errs to more, by what was written in its time.
func (m *Meter) recount(ctx context.Context, a schemas.AccountID) error {
	if err := m.record(ctx, a); err != nil {
		return err
	}
	m.mu.Lock()
	before := m.account(a).record
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	began := time.Now()
	found, err := m.o.Log.Count(ctx, a)
	if err != nil {
		return err
	}
	took := time.Since(began)
	return m.change(ctx, a, Amounts{}, func(r Record) (Record, bool) {
		if !r.Counted.Equal(before.Counted) { // by another process, meanwhile
			return r, false
		}
		return r.recounted(found, before, m.o.Log.Now().UTC(), took), true
	})
}

// Usage is what an account keeps, with its quotas. The account is counted again if that was not done lately; a count that takes long is not
// waited for. Code: unavailable. The error is that of ctx when ctx has ended.
func (m *Meter) Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	m.reread(ctx, a)
	if _, counted, due := m.used(a, Calls); due {
		m.ask(a, true)
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-counted:
		case <-t.C:
		case <-ctx.Done():
			return schemas.Usage{}, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.account(a)
	if e.read.IsZero() {
		return schemas.Usage{}, schemas.OpErrorf(schemas.Unavailable, "count what an account keeps", "the log does not answer: try again")
	}
	sum := e.sum()
	return schemas.Usage{
		Account: a, Calls: sum[Calls], Events: sum[Events], Durable: sum[Durable], Counted: e.record.Counted,
		LogLimit: m.quota(a, Calls), DurableLimit: m.quota(a, Durable),
	}, nil
}
