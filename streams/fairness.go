package streams

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
)

// fairness lets a consumer take turns between accounts. The log hands messages out in one order, whoever
// they are of. As long as one account alone has some waiting, that is their order. When others have too, what
// an account has above its share goes back to come again later, and the next messages are looked at: so others are
// found behind any number of messages. One account has a share of the slots at most while others were active in the
// last minutes, see [sharing]. It is safe for concurrent use.
type fairness struct {
	slots int
	ahead int          // messages beyond the slots that are looked at while others wait
	aside bool         // what goes back may wait on the log, instead of in hand
	now   clockFunc    // the log's
	free  *slots       // places that messages are asked for
	spawn func(func()) // begins something beside
	turns *turns[*turn]
	late  *turns[*turn] // those that are overdue: they need no slot, and the large ones among them wait for each other

	mu       sync.Mutex
	sharing  sharing
	latest   latest
	crowded  bool // the consumer has little room for what waits for its next try
	active   int  // accounts of which something is here or was handed back, about
	held     int  // messages here, in hand or waiting for a slot
	wasFull  bool // since the last look they were as many as there are slots
	accounts map[schemas.AccountID]*inTurn
}

type clockFunc func() time.Time

// turn is a message that waits for its slot: exactly one of its functions is called.
type turn struct {
	account     schemas.AccountID
	seq         uint64    // its first place on the log
	due         time.Time // by the log's clock: from then on it needs no slot, for it is only to be ended; zero: never
	begin, drop func()
	inHand      bool
	wentBack    bool // its handler has put it back
	heavy       int  // bytes, of a large one: see [MaxLargeInProgress]
	lateHeavy   int  // bytes, of one that is large among those that are overdue
}

// inTurn is what a consumer knows of one account.
type inTurn struct {
	held    int
	waiting int           // of those held
	back    int           // handed back and not seen again
	aside   int           // put aside on the log and not seen again
	seen    time.Time     // when one of its messages came
	took    time.Duration // between two ends of its messages, about
	ended   time.Time     // of the last one

	first, before uint64    // the oldest that was seen since, and in the time before that: all that wait in hand are seen in it
	since         time.Time //
	last          uint64    // the newest

	ends, endsBefore int // of its messages, since and in the time before that
}

// see notes how old the messages of an account are.
func (a *inTurn) see(seq uint64, now time.Time) {
	if now.Sub(a.since) > backMost {
		a.before, a.first, a.since = a.first, seq, now
		a.endsBefore, a.ends = a.ends, 0
	}
	a.first, a.last = min(a.first, seq), max(a.last, seq)
}

// putBack says when a message that has no place now is to come again.
type putBack struct {
	after time.Duration
	aside bool // it waits on the log, and not among those in hand
}

// cameAs is what a delivery is to the account's count of those handed back.
type cameAs int

const (
	cameNew cameAs = iota
	cameBack
	cameFromAside
)

const (
	leastAhead    = 16                     // messages beyond the slots, where there are few slots
	backStep      = 100 * time.Millisecond // what is handed back comes again in steps: the server looks through all of it each time
	backMost      = time.Minute            //
	backFirst     = time.Millisecond       // between two ends, as long as nothing is known
	tookMost      = 50 * time.Millisecond  // is believed: nothing waits for long after a place is there
	mostBack      = 4096                   // messages of one account that wait among those in hand
	asideLeast    = 5 * time.Second        //
	asideMost     = 10 * time.Minute       //
	askEvery      = 200 * time.Millisecond // whether others wait, while all slots are taken
	askLeast      = 2 * time.Second        // that often even if the answer takes long
	looksToBeSure = 3
)

// MaxLargeInProgress is how many bytes the large messages have together that a consumer handles at the same time, where it has few slots.
// What is made of a message takes some times as much. Of many slots each adds [largeOfSlot].
const (
	MaxLargeInProgress = 24 << 20
	largeOfSlot        = 128 << 10
)

// Those that are overdue share as many bytes of their own: what runs, which may take minutes, holds none of them up. They may be as many
// as there are places, so that much less makes one of them large.

// mostLarge is how many bytes of large messages a consumer of n slots handles at the same time.
func mostLarge(n int) int { return max(MaxLargeInProgress, n*largeOfSlot) }

// heavyOf is what a message of so many bytes takes of [mostLarge]. One that is not above an even share of it takes nothing: of these
// there are no more than slots.
func heavyOf(size, slots int) int {
	const share, of = 3, 4 // of all, at most: the largest message must find room, too
	if most := mostLarge(slots); size > most/slots {
		return min(size, most/of*share)
	}
	return 0
}

func newFairness(n int, now clockFunc, spawn func(func())) *fairness {
	f := &fairness{slots: n, ahead: max(n, leastAhead), now: now, spawn: spawn, free: newSlots(n),
		accounts: map[schemas.AccountID]*inTurn{}, active: 1}
	shares := Shares{Slots: n, Waiting: f.places(), WaitingBytes: f.places() * (embedded.MaxPayload + costOfOneRequest)}
	f.turns = newTurns[*turn](shares)
	f.turns.weigh, f.turns.mostHeavy = func(t *turn) int { return t.heavy }, mostLarge(n)
	shares.Slots = f.places()
	f.late = newTurns[*turn](shares)
	f.late.weigh, f.late.mostHeavy = func(t *turn) int { return t.lateHeavy }, mostLarge(f.places())
	f.late.narrow(false)
	f.turns.narrow(false) // until a second account is seen
	return f
}

// places is how many messages are here at most.
func (f *fairness) places() int { return f.slots + f.ahead }

// most is how many messages one account may have here while others want some and all slots are taken.
func (f *fairness) most() int { return max(min(f.slots, (f.slots+f.ahead)/(f.active+1)), 1) }

// take has the turn begin when it is its turn, or dropped, when no turn comes any more: start is to be called then. Without
// a place for it it reports false, and when the message should come again.
func (f *fairness) take(t *turn, size int, came cameAs, now time.Time) (putBack, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.accounts[t.account]
	if a == nil {
		a = &inTurn{took: backFirst}
		f.accounts[t.account] = a
	}
	a.seen = now
	a.see(t.seq, now)
	f.noteActive(t.account, now)
	switch came {
	case cameNew:
	case cameBack:
		a.back = max(a.back-1, 0)
	case cameFromAside:
		a.aside = max(a.aside-1, 0)
	}
	into, waits := f.turns, true
	if f.overdue(t) {
		into, waits = f.late, !f.late.lets(t.lateHeavy)
	}
	// Also when a search has ended: what was asked for in it comes later, and would take the places of the next one.
	if waits && f.sharing.narrow && f.held >= f.slots && a.held >= f.most() {
		return f.back(a, t, now), false
	}
	f.hold(a, t)
	if err := into.put(t.account, size, t, now); err != nil { // the process stops, or it is larger than all that may wait
		f.drop(a, t)
		return f.back(a, t, now), false
	}
	return putBack{}, true
}

// careful reports whether a message that comes now may have to wait.
func (f *fairness) careful() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sharing.narrow || f.held >= f.slots
}

// noteActive notes that a message of an account comes or ends. Slots are left to others from the second account on: the next look
// would be too late for them, since the first account may take all slots before it.
func (f *fairness) noteActive(a schemas.AccountID, now time.Time) {
	if f.latest.note(a, now) && !f.sharing.narrow {
		f.share(sharing{until: f.sharing.until, search: f.sharing.search, narrow: true})
	}
}

func (f *fairness) overdue(t *turn) bool { return !t.due.IsZero() && !f.now().Before(t.due) }

func (f *fairness) hold(a *inTurn, t *turn) {
	f.held++
	a.held++
	a.waiting++
	f.wasFull = f.wasFull || f.held >= f.slots
	t.inHand = false
}

func (f *fairness) drop(a *inTurn, t *turn) {
	f.held--
	a.held--
	if !t.inHand {
		a.waiting--
	}
}

// back says when a message comes again: about when there is a place for it, and at its end at the latest.
func (f *fairness) back(a *inTurn, t *turn, now time.Time) putBack {
	after := a.patience(t)
	aside := f.aside && (a.back >= mostBack || f.crowded)
	if aside {
		a.aside++
		after = min(max(after, asideLeast), asideMost)
	} else {
		a.back++
		after = untilNext(now, min(after, backMost))
	}
	if left := t.due.Sub(f.now()); !t.due.IsZero() && left > 0 { // what is overdue stays away like others: it would come again without a pause
		after = min(after, left)
	}
	return putBack{max(after, 0), aside}
}

// noteBack counts a message that its handler has put back, and says where it is to wait.
func (f *fairness) noteBack(t *turn, after time.Duration) putBack {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.wentBack = true
	a := f.accounts[t.account]
	switch {
	case a == nil: // it is in hand, so this cannot be
	case f.aside && after > 0 && (a.back >= mostBack || f.crowded):
		a.aside++
		return putBack{min(max(after, a.patience(t), asideLeast), asideMost), true}
	default:
		a.back++
		if f.aside {
			after = max(after, min(a.patience(t), backMost))
		}
	}
	return putBack{after: after}
}

// patience is how long one more message of an account stays away: half as long as what is older than it takes, so
// that some are there when there is a place. How many are older is guessed from where it lies among those that were seen, of
// which the oldest are those that have ended. Were these counted too, the next ones would stay away while slots are free.
func (a *inTurn) patience(t *turn) time.Duration {
	const least = 2 * backStep
	oldest, part, ended := min(a.first, t.seq), 1.0, a.ends
	if a.before > 0 {
		oldest, ended = min(oldest, a.before), ended+a.endsBefore
	}
	if all := a.last - oldest; all > 0 {
		part = float64(t.seq-oldest) / float64(all)
	}
	older := part*float64(a.held+a.back+a.aside+1+ended) - float64(ended)
	return max(least, time.Duration(older*float64(a.took)/2))
}

// untilNext is the time from now to the first step that is at least d away.
func untilNext(now time.Time, d time.Duration) time.Duration {
	return now.Add(d).Truncate(backStep).Add(backStep).Sub(now)
}

// start begins the turns that are next, an overdue one and one for which there is a slot.
func (f *fairness) start() {
	f.startOf(f.late)
	f.startOf(f.turns)
}

func (f *fairness) startOf(of *turns[*turn]) {
	if t, l := of.next(); l != nil {
		f.spawn(func() { f.work(of, t, l) })
	}
}

// work carries out a turn that has its slot, and those whose turn it is then: nobody has to be woken for them.
func (f *fairness) work(of *turns[*turn], t *turn, l *lane[*turn]) {
	for l != nil {
		f.begin(t)
		of.lighten(l, t)
		t, l = of.after(l)
	}
}

// begin carries out a turn that has its slot.
func (f *fairness) begin(t *turn) {
	f.mu.Lock()
	f.accounts[t.account].waiting--
	t.inHand = true
	f.mu.Unlock()
	t.begin()
}

// release gives the place of a message back that has ended or was dropped.
func (f *fairness) release(t *turn, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.accounts[t.account]
	f.drop(a, t)
	f.noteActive(t.account, now)
	if t.wentBack || !t.inHand {
		return
	}
	a.ends++
	// How fast places become free is seen while there is something to do.
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

// queueLook is what the log says of a consumer's queue.
type queueLook struct {
	others  bool // messages of others than one account were never handed out
	crowded bool // what is in hand or waits for its next try takes half of the room
}

// look finds out whether more than one account waits. Ask is only asked while there are too few slots.
func (f *fairness) look(now time.Time, ask func(big schemas.AccountID) (queueLook, error)) {
	big, g := f.tally(now)
	var q queueLook
	var err error
	if g.full {
		q, err = ask(big)
		f.mu.Lock()
		sure := f.sharing.search
		f.mu.Unlock()
		// The counts are of different moments: a lone account must not be taken for two.
		for n := 1; n < looksToBeSure && !sure && err == nil && q.others; n++ {
			q, err = ask(big)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.crowded = q.crowded
	}
	g.others, g.unknown, g.second = q.others, err != nil, f.latest.second
	f.share(f.sharing.next(g))
}

// tally counts what is known of accounts: the one that has the most here, how many have something waiting, and
// whether there are too few slots. It notes when a message of the others came last: who sends the next one after each
// result has none waiting when it is looked for. What was handed back and came again elsewhere is forgotten.
func (f *fairness) tally(now time.Time) (big schemas.AccountID, g sighting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := -1
	g.now = now
	var latest time.Time
	var lone schemas.AccountID // of which something came last: it may have nothing here for a moment
	f.active = 0
	for id, a := range f.accounts {
		if now.Sub(a.seen) > backMost+askLeast {
			a.back = 0
		}
		if now.Sub(a.seen) > asideMost+askLeast {
			a.aside = 0
		}
		if a.seen.After(latest) {
			latest, lone = a.seen, id
		}
		all := a.held + a.back + a.aside
		if a.waiting+a.back+a.aside > 0 {
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
	if f.active > 1 { // what runs for minutes neither comes nor ends meanwhile
		f.latest.second = now
	}
	g.full = f.wasFull
	f.wasFull = f.held >= f.slots
	if most < 0 {
		big = lone
	}
	return big, g
}

// share has what was decided hold from now on.
func (f *fairness) share(next sharing) {
	before := f.sharing
	f.sharing = next
	if next.narrow != before.narrow {
		f.turns.narrow(next.narrow)
	}
	switch {
	case next.search && !before.search:
		f.free.give(f.ahead)
	case before.search && !next.search:
		f.free.withdraw(f.ahead)
	}
}

// run starts messages turn by turn, and finds out whether more than one account waits, until ctx ends. What
// waits then is dropped.
func (f *fairness) run(ctx context.Context, ask func(ctx context.Context, big schemas.AccountID) (queueLook, error)) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		for every := askEvery; wait.Sleep(ctx, every); {
			const part = 20 // of the time goes into looks
			begun := time.Now()
			f.look(begun, func(big schemas.AccountID) (queueLook, error) { return ask(ctx, big) })
			every = min(max(part*time.Since(begun), askEvery), askLeast)
			f.moveOverdue()
		}
	})
	start := func(t *turn, done func()) {
		f.spawn(func() {
			defer done()
			f.begin(t)
		})
	}
	drop := func(t *turn, _ error) { t.drop() }
	asking.Go(func() { f.late.run(ctx, start, drop) })
	f.turns.run(ctx, start, drop)
}

// moveOverdue moves the turns that became overdue while they waited for a slot to those that need none.
func (f *fairness) moveOverdue() {
	for _, t := range f.turns.pick(f.overdue) {
		if f.late.offer(t.account, 0, t, time.Now()) != nil { // the process stops
			t.drop()
		}
	}
}
