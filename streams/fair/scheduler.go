package fair

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// Scheduler shares the slots of one consumer between accounts. The log delivers messages in one order, whichever account they belong to.
// As long as a single account has messages waiting, that order holds. When others have some too, the messages of an account beyond its
// share are nak'ed to be delivered again later, and the ones behind them are read: so messages of other accounts are found behind
// any number of messages. While others were active in the last minutes, one account has a share of the slots at most, see [sharing].
// Its methods may be called concurrently.
type Scheduler struct {
	slots     int
	ahead     int              // messages beyond the slots that are read while others wait
	schedules bool             // see [Options.Schedules]
	now       func() time.Time // the log's
	free      *Slots           // for which messages are pulled
	spawn     func(func())
	turns     *Queue[*Message] // messages that wait for a slot
	late      *Queue[*Message] // overdue messages: they need no slot, but large ones wait for each other

	mu       sync.Mutex
	sharing  sharing
	latest   latest
	crowded  bool // the consumer has little room for pending messages
	active   int  // accounts with messages here or nak'ed, about
	held     int  // messages here, running or waiting for a slot
	wasFull  bool // since the last look as many as there are slots were here
	accounts map[schemas.AccountID]*account
}

// Message is one delivered message. Exactly one of Begin and Drop is called, once.
type Message struct {
	Account schemas.AccountID
	Seq     uint64 // its first position on the log
	// Due is when the message is overdue, by the log's clock: from then on it needs no slot, because all that is left is to end it. The zero
	// time: never.
	Due time.Time
	// Handled is how many bytes the message has while it is handled, with its payload. Large ones share [MaxLargeInProgress].
	Handled int
	// Begin handles the message and returns when that is done. Drop abandons it: the process stops.
	Begin, Drop func()

	begun     bool
	requeued  bool // by its handler
	heavy     int  // bytes of a large message; 0: it is not large
	lateHeavy int  // the same among overdue messages
}

// account is what a scheduler knows of one account.
type account struct {
	held      int
	waiting   int           // of those held
	back      int           // nak'ed and not seen since
	scheduled int           // stored for later and not seen since
	seen      time.Time     // when one of its messages came
	took      time.Duration // between two ends of its messages, about
	ended     time.Time     // of the last one

	first, before uint64    // the oldest seen since, and in the period before that: every pending message is seen once in a period
	since         time.Time // when the period began
	last          uint64    // the newest

	ends, endsBefore int // of its messages, in this period and in the one before
}

// see adds a sequence to the range seen of an account's messages. After [MaxRedeliveryDelay] a new range begins, and the former one is
// kept beside it.
func (a *account) see(seq uint64, now time.Time) {
	if now.Sub(a.since) > MaxRedeliveryDelay {
		a.before, a.first, a.since = a.first, seq, now
		a.endsBefore, a.ends = a.ends, 0
	}
	a.first, a.last = min(a.first, seq), max(a.last, seq)
}

// Redelivery says when a message without a slot is to be delivered again.
type Redelivery struct {
	After    time.Duration
	Schedule bool // it is to be stored for later, instead of being pending
}

// Origin classifies a delivery.
type Origin int

// The origins of deliveries.
const (
	New          Origin = iota
	Redelivered         // it was nak'ed, or its consumer died
	FromSchedule        // it was stored for later
)

const (
	leastAhead    = 16                     // messages beyond the slots, where there are few slots
	backStep      = 100 * time.Millisecond // deliveries of messages that were nak'ed are grouped: the server scans all of them each time
	backFirst     = time.Millisecond       // between two ends, as long as nothing is known
	tookMost      = 50 * time.Millisecond  // between two ends at most: a free slot is used soon
	mostBack      = 4096                   // pending messages of one account
	asideLeast    = 5 * time.Second        // that a message is stored for later, at least
	asideMost     = 10 * time.Minute       // and at most
	askEvery      = 200 * time.Millisecond // between two checks of the queue while all slots are taken
	askLeast      = 2 * time.Second        // and at most, however long a check takes
	looksToBeSure = 3
)

// MaxRedeliveryDelay is how long a message that is nak'ed stays pending at most.
const MaxRedeliveryDelay = time.Minute

// MaxLargeInProgress is how many bytes the large messages have together that a consumer with few slots handles at the same time. Decoded,
// a message takes several times as much. Where there are many slots, each adds [largeOfSlot].
const (
	MaxLargeInProgress = 24 << 20
	largeOfSlot        = 128 << 10
)

// Overdue messages share as many bytes of their own, so that a running one, which may take minutes, does not delay them. There may be as
// many of them as the capacity, so a smaller size makes one of them large.

// mostLarge returns how many bytes of large messages a consumer of n slots handles at the same time.
func mostLarge(n int) int { return max(MaxLargeInProgress, n*largeOfSlot) }

// heavyOf returns how much of [mostLarge] a message of a size takes. A message not above an even share takes nothing, because no more of
// these are in progress than there are slots.
func heavyOf(size, slots int) int {
	const share, of = 3, 4 // of all, at most: the largest message must fit
	if most := mostLarge(slots); size > most/slots {
		return min(size, most/of*share)
	}
	return 0
}

// Options are those of [NewScheduler].
type Options struct {
	Slots   int // messages that are handled at the same time, at least 1
	Largest int // bytes of the largest message
	// Schedules says that a message without a place may be stored to be delivered later, instead of being pending meanwhile.
	Schedules bool
	Now       func() time.Time // the log's clock
	Go        func(func())     // runs a function in a goroutine; it does not block
}

// NewScheduler returns the scheduler of a consumer. [Scheduler.Run] starts the messages that wait.
func NewScheduler(o Options) *Scheduler {
	n := o.Slots
	f := &Scheduler{slots: n, ahead: max(n, leastAhead), schedules: o.Schedules, now: o.Now, spawn: o.Go, free: NewSlots(n),
		accounts: map[schemas.AccountID]*account{}, active: 1}
	shares := Shares{Slots: n, Waiting: f.capacity(), WaitingBytes: f.capacity() * (o.Largest + costOfOneRequest)}
	f.turns = NewQueue[*Message](shares)
	f.turns.weigh, f.turns.mostHeavy = func(t *Message) int { return t.heavy }, mostLarge(n)
	shares.Slots = f.capacity()
	f.late = NewQueue[*Message](shares)
	f.late.weigh, f.late.mostHeavy = func(t *Message) int { return t.lateHeavy }, mostLarge(f.capacity())
	f.late.narrow(false)
	f.turns.narrow(false) // until a second account is seen
	return f
}

// capacity returns how many messages are pulled at most.
func (f *Scheduler) capacity() int { return f.slots + f.ahead }

// Slots returns the slots for which the consumer pulls messages: those of the scheduler, and while it searches those beyond them.
func (f *Scheduler) Slots() *Slots { return f.free }

// most returns how many pulled messages one account may have while other accounts have some and all slots are taken.
func (f *Scheduler) most() int { return max(min(f.slots, (f.slots+f.ahead)/(f.active+1)), 1) }

// Admit queues a message of size bytes and reports true; the caller then calls [Scheduler.Start]. Begin is called at the account's turn,
// or Drop if the scheduler ends before. If the account has too many messages here, Admit reports false and when the message is to be
// redelivered. It does not block.
func (f *Scheduler) Admit(t *Message, size int, came Origin, now time.Time) (Redelivery, bool) {
	t.heavy, t.lateHeavy = heavyOf(t.Handled, f.slots), heavyOf(t.Handled, f.capacity())
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.accounts[t.Account]
	if a == nil {
		a = &account{took: backFirst}
		f.accounts[t.Account] = a
	}
	a.seen = now
	a.see(t.Seq, now)
	f.noteActive(t.Account, now)
	switch came {
	case New:
	case Redelivered:
		a.back = max(a.back-1, 0)
	case FromSchedule:
		a.scheduled = max(a.scheduled-1, 0)
	}
	into, waits := f.turns, true
	if f.overdue(t) {
		into, waits = f.late, !f.late.lets(t.lateHeavy)
	}
	// Also after a search has ended: messages that it pulled arrive later, and would take the room of the next one.
	if waits && f.sharing.narrow && f.held >= f.slots && a.held >= f.most() {
		return f.back(a, t, now), false
	}
	f.hold(a, t)
	if err := into.put(t.Account, size, t, now); err != nil { // the process stops, or it is larger than all that may wait
		f.drop(a, t)
		return f.back(a, t, now), false
	}
	return Redelivery{}, true
}

// Contended reports whether a message that arrives now may have to wait. It is cheap.
func (f *Scheduler) Contended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sharing.narrow || f.held >= f.slots
}

// noteActive records that a message of an account arrives or ends. As soon as a second account is active, slots are reserved for others:
// until the next check the first account could take all of them.
func (f *Scheduler) noteActive(a schemas.AccountID, now time.Time) {
	if f.latest.note(a, now) && !f.sharing.narrow {
		f.share(sharing{until: f.sharing.until, search: f.sharing.search, narrow: true})
	}
}

func (f *Scheduler) overdue(t *Message) bool { return !t.Due.IsZero() && !f.now().Before(t.Due) }

func (f *Scheduler) hold(a *account, t *Message) {
	f.held++
	a.held++
	a.waiting++
	f.wasFull = f.wasFull || f.held >= f.slots
	t.begun = false
}

func (f *Scheduler) drop(a *account, t *Message) {
	f.held--
	a.held--
	if !t.begun {
		a.waiting--
	}
}

// back returns when a message is to be redelivered: about when a slot will be free for it, and at the latest when it is due.
func (f *Scheduler) back(a *account, t *Message, now time.Time) Redelivery {
	after := a.patience(t)
	schedule := f.schedules && (a.back >= mostBack || f.crowded)
	if schedule {
		a.scheduled++
		after = min(max(after, asideLeast), asideMost)
	} else {
		a.back++
		after = untilNext(now, min(after, MaxRedeliveryDelay))
	}
	if left := t.Due.Sub(f.now()); !t.Due.IsZero() && left > 0 { // an overdue message waits as others do: else it would be redelivered in a loop
		after = min(after, left)
	}
	return Redelivery{max(after, 0), schedule}
}

// Nak records that a handler nak'ed a message with a delay, and returns where the message waits until then. It is called before
// [Scheduler.Release].
func (f *Scheduler) Nak(t *Message, after time.Duration) Redelivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.requeued = true
	a := f.accounts[t.Account]
	switch {
	case a == nil: // impossible while the message is held
	case f.schedules && after > 0 && (a.back >= mostBack || f.crowded):
		a.scheduled++
		return Redelivery{min(max(after, a.patience(t), asideLeast), asideMost), true}
	default:
		a.back++
		if f.schedules {
			after = max(after, min(a.patience(t), MaxRedeliveryDelay))
		}
	}
	return Redelivery{After: after}
}

// patience is how long a message of an account waits before it is delivered again: half as long as the older messages of the account take,
// so that some have arrived when a slot is free. How many are older is estimated from its position among those that were seen; the oldest of
// them are those that have ended. If these counted too, the next messages would wait while slots are free.
func (a *account) patience(t *Message) time.Duration {
	const least = 2 * backStep
	oldest, part, ended := min(a.first, t.Seq), 1.0, a.ends
	if a.before > 0 {
		oldest, ended = min(oldest, a.before), ended+a.endsBefore
	}
	if all := a.last - oldest; all > 0 {
		part = float64(t.Seq-oldest) / float64(all)
	}
	older := part*float64(a.held+a.back+a.scheduled+1+ended) - float64(ended)
	return max(least, time.Duration(older*float64(a.took)/2))
}

// untilNext returns the time until the first step that is at least d away.
func untilNext(now time.Time, d time.Duration) time.Duration {
	return now.Add(d).Truncate(backStep).Add(backStep).Sub(now)
}

// Start starts the next messages: an overdue one, and one for which there is a slot.
func (f *Scheduler) Start() {
	f.startOf(f.late)
	f.startOf(f.turns)
}

func (f *Scheduler) startOf(of *Queue[*Message]) {
	if t, l := of.next(); l != nil {
		f.spawn(func() { f.work(of, t, l) })
	}
}

// work handles a message that has a slot, and then, in the same goroutine, the messages that get the slot after it.
func (f *Scheduler) work(of *Queue[*Message], t *Message, l *lane[*Message]) {
	for l != nil {
		f.begin(t)
		of.lighten(l, t)
		t, l = of.after(l)
	}
}

// begin handles a message that has a slot.
func (f *Scheduler) begin(t *Message) {
	f.mu.Lock()
	f.accounts[t.Account].waiting--
	t.begun = true
	f.mu.Unlock()
	t.Begin()
}

// Release frees what a message occupied that has ended or was dropped. Begin and Drop call it.
func (f *Scheduler) Release(t *Message, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.accounts[t.Account]
	f.drop(a, t)
	f.noteActive(t.Account, now)
	if t.requeued || !t.begun {
		return
	}
	a.ends++
	// How fast slots become free is measured while there is work for them.
	if busy := a.waiting+a.back > 0 || a.held >= f.slots-1; !busy {
		a.ended = time.Time{}
		return
	}
	const weight = 8
	if !a.ended.IsZero() {
		a.took = min(max(a.took+(now.Sub(a.ended)-a.took)/weight, time.Microsecond), tookMost)
	}
	a.ended = now
}

// Backlog describes a consumer's queue on the log.
type Backlog struct {
	Others  bool // messages of more than one account were never delivered
	Crowded bool // pending messages take half of the room that the consumer has for them
}

// look checks whether more than one account has messages waiting. It calls ask only while there are too few slots; big is the account with
// the most messages here.
func (f *Scheduler) look(now time.Time, ask func(big schemas.AccountID) (Backlog, error)) {
	big, g := f.tally(now)
	var q Backlog
	var err error
	if g.full {
		q, err = ask(big)
		f.mu.Lock()
		sure := f.sharing.search
		f.mu.Unlock()
		// The counts are of different moments: a single account must not be taken for two.
		for n := 1; n < looksToBeSure && !sure && err == nil && q.Others; n++ {
			q, err = ask(big)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.crowded = q.Crowded
	}
	g.others, g.unknown, g.second = q.Others, err != nil, f.latest.second
	f.share(f.sharing.next(g))
}

// tally finds the account that has the most messages here, how many accounts have some waiting, and whether there are too few slots. It
// notes when a message of another account arrived last, because an account that sends its next message after each result has none waiting
// at most checks. Messages that were nak'ed and delivered to another process since are forgotten.
func (f *Scheduler) tally(now time.Time) (big schemas.AccountID, g sighting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := -1
	g.now = now
	var latest time.Time
	var lone schemas.AccountID // whose message arrived last: it may have none here for a moment
	f.active = 0
	for id, a := range f.accounts {
		if now.Sub(a.seen) > MaxRedeliveryDelay+askLeast {
			a.back = 0
		}
		if now.Sub(a.seen) > asideMost+askLeast {
			a.scheduled = 0
		}
		if a.seen.After(latest) {
			latest, lone = a.seen, id
		}
		all := a.held + a.back + a.scheduled
		if a.waiting+a.back+a.scheduled > 0 {
			g.waiting++
		} else if a.seen.After(g.came) {
			g.came = a.seen
		}
		if all == 0 {
			if len(f.accounts) > mostPacedAccounts || now.Sub(a.seen) > asideMost {
				delete(f.accounts, id)
			}
			continue
		}
		f.active++
		if all > most || all == most && id < big {
			most, big = all, id
		}
	}
	if f.active > 1 { // a message that runs for minutes neither arrives nor ends meanwhile
		f.latest.second = now
	}
	g.full = f.wasFull
	f.wasFull = f.held >= f.slots
	if most < 0 {
		big = lone
	}
	return big, g
}

// share applies a decision of [sharing.next].
func (f *Scheduler) share(next sharing) {
	before := f.sharing
	f.sharing = next
	if next.narrow != before.narrow {
		f.turns.narrow(next.narrow)
	}
	switch {
	case next.search && !before.search:
		f.free.Give(f.ahead)
	case before.search && !next.search:
		f.free.withdraw(f.ahead)
	}
}

// Run starts messages, accounts in turn, and checks whether more than one account has some waiting, until ctx ends. Messages that wait then
// are dropped. Ask returns the backlog on the log; others are accounts other than big.
func (f *Scheduler) Run(ctx context.Context, ask func(ctx context.Context, big schemas.AccountID) (Backlog, error)) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		for every := askEvery; wait.Sleep(ctx, every); {
			const part = 20 // of the time goes into checks
			begun := time.Now()
			f.look(begun, func(big schemas.AccountID) (Backlog, error) { return ask(ctx, big) })
			every = min(max(part*time.Since(begun), askEvery), askLeast)
			f.moveOverdue()
		}
	})
	start := func(t *Message, done func()) {
		f.spawn(func() {
			defer done()
			f.begin(t)
		})
	}
	drop := func(t *Message, _ error) { t.Drop() }
	asking.Go(func() { f.late.Run(ctx, start, drop) })
	f.turns.Run(ctx, start, drop)
}

// moveOverdue moves messages that became overdue while they waited for a slot to those that need none.
func (f *Scheduler) moveOverdue() {
	for _, t := range f.turns.pick(f.overdue) {
		if f.late.Offer(t.Account, 0, t, time.Now()) != nil { // the process stops
			t.Drop()
		}
	}
}
