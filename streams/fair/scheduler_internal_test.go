package fair

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestTurnsByChance: messages arrive, end and are taken out in any order. No more are in flight than there are slots, no account begins
// above its share, no account that may begin is passed over by another twice, and every slot is released.
//
//guarantee:what-one-tenant-can-do-to-another
func TestTurnsByChance(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &turnsModel{turns: NewQueue[string](Shares{Slots: 1 + r.IntN(12), Waiting: 1 + r.IntN(20)}), of: map[schemas.AccountID]int{},
			queued: map[schemas.AccountID][]string{}, passed: map[schemas.AccountID]map[schemas.AccountID]int{}}
		for range 600 {
			if err := m.step(r); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := m.end(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

type turnsModel struct {
	turns  *Queue[string]
	n      int
	queued map[schemas.AccountID][]string
	of     map[schemas.AccountID]int // in flight
	open   []func()
	passed map[schemas.AccountID]map[schemas.AccountID]int // accounts that began since this one could have
}

func (m *turnsModel) step(r *rand.Rand) error {
	a := schemas.AccountID(fmt.Sprint("acct_", r.IntN(5)))
	switch r.IntN(8) {
	case 0, 1, 2:
		m.n++
		v := fmt.Sprint(a, ".", m.n)
		if err := m.turns.Offer(a, r.IntN(100), v, time.Now()); err == nil {
			m.queued[a] = append(m.queued[a], v)
		}
	case 3, 4:
		return m.next()
	case 5, 6:
		if len(m.open) > 0 {
			i := r.IntN(len(m.open))
			m.open[i]()
			m.open[i]() // twice is once
			m.open = append(m.open[:i], m.open[i+1:]...)
		}
	case 7:
		if r.IntN(2) == 0 {
			m.turns.narrow(r.IntN(2) == 0)
			clear(m.passed)
			break
		}
		for _, v := range m.turns.pick(func(v string) bool { return r.IntN(4) == 0 }) {
			if a, _ := m.unqueue(v); len(m.queued[a]) == 0 { // its place among the others is gone
				delete(m.passed, a)
			}
		}
	}
	return m.check()
}

func (m *turnsModel) unqueue(v string) (a schemas.AccountID, first bool) {
	for a, q := range m.queued {
		for i := range q {
			if q[i] == v {
				m.queued[a] = append(q[:i:i], q[i+1:]...)
				return a, i == 0
			}
		}
	}
	return "", false
}

func (m *turnsModel) next() error {
	v, l := m.turns.next()
	all := 0
	for _, n := range m.of {
		all += n
	}
	if l == nil {
		for a, q := range m.queued {
			if len(q) > 0 && all < m.turns.shares.Slots && m.of[a] < m.turns.share {
				return fmt.Errorf("%s has something waiting and room, and does not begin", a)
			}
		}
		return nil
	}
	a, first := m.unqueue(v)
	if !first {
		return fmt.Errorf("%q begins, and is not the first of its account that waits", v)
	}
	if m.of[a]++; m.of[a] > m.turns.share || all+1 > m.turns.shares.Slots {
		return fmt.Errorf("%s has %d in hand of %d, all have %d of %d", a, m.of[a], m.turns.share, all+1, m.turns.shares.Slots)
	}
	for other, q := range m.queued {
		if other == a || len(q) == 0 || m.of[other] >= m.turns.share {
			delete(m.passed, other)
			continue
		}
		if m.passed[other] == nil {
			m.passed[other] = map[schemas.AccountID]int{}
		}
		if m.passed[other][a]++; m.passed[other][a] > 2 { // once behind what was listed before, once more after a share was widened
			return fmt.Errorf("%s began %d times while %s could have", a, m.passed[other][a], other)
		}
	}
	m.open = append(m.open, sync.OnceFunc(func() { m.turns.done(l); m.of[a]-- }))
	return nil
}

// check compares the sums.
func (m *turnsModel) check() error {
	waiting, bytes, inHand := 0, 0, 0
	for a, l := range m.turns.lanes {
		if l.running == 0 && len(l.queue) == 0 {
			return fmt.Errorf("%s has nothing and is remembered", a)
		}
		waiting, inHand = waiting+len(l.queue), inHand+l.running
		for _, w := range l.queue {
			bytes += w.size
		}
		if len(l.queue) != len(m.queued[a]) || l.running != m.of[a] {
			return fmt.Errorf("%s has %d waiting and %d in hand; want %d and %d", a, len(l.queue), l.running, len(m.queued[a]), m.of[a])
		}
	}
	if waiting != m.turns.waiting || bytes != m.turns.bytes || inHand != m.turns.running {
		return fmt.Errorf("the sums are %d, %d, %d; want %d, %d, %d", m.turns.waiting, m.turns.bytes, m.turns.running, waiting, bytes, inHand)
	}
	return nil
}

// end lets everything begin and end.
func (m *turnsModel) end() error {
	m.turns.narrow(false)
	clear(m.passed)
	for {
		before := len(m.open)
		if err := m.next(); err != nil {
			return err
		}
		if len(m.open) > before {
			continue
		}
		for _, f := range m.open {
			f()
		}
		if m.open = nil; before == 0 {
			break
		}
	}
	if err := m.check(); err != nil {
		return err
	}
	if len(m.turns.lanes) > 0 || m.turns.waiting > 0 {
		return fmt.Errorf("%d accounts and %d requests are left", len(m.turns.lanes), m.turns.waiting)
	}
	return nil
}

// TestOneWrongCountIsNoContest: a lone account keeps all slots when one look takes it for two, and shares them when all do.
func TestOneWrongCountIsNoContest(t *testing.T) {
	t.Parallel()
	f := newScheduler(1, time.Now, func(func()) {})
	if _, ok := f.Admit(&Message{Account: "acct_1", Seq: 1}, 1, New, time.Now()); !ok {
		t.Fatal("there is no place")
	}
	for wrong := 1; wrong <= looksToBeSure; wrong++ {
		asked := 0
		f.look(time.Now(), func(schemas.AccountID) (Backlog, error) {
			asked++
			return Backlog{Others: asked <= wrong}, nil
		})
		if f.sharing.search != (wrong == looksToBeSure) {
			t.Errorf("after %d looks that saw others: contested is %v", wrong, f.sharing.search)
		}
	}
}

// TestALoneAccountWithNothingHereIsNoContest: between two messages it has nothing here, and what waits is its own.
func TestALoneAccountWithNothingHereIsNoContest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := newScheduler(1, time.Now, func(func()) {})
	for _, account := range []schemas.AccountID{"acct_0", "acct_2", "acct_1"} {
		v := &Message{Account: account, Seq: 1, Begin: func() {}}
		if _, ok := f.Admit(v, 1, New, now); !ok {
			t.Fatal("there is no place")
		}
		_, l := f.turns.next()
		f.begin(v)
		f.Release(v, now)
		f.turns.done(l)
		now = now.Add(time.Millisecond)
	}
	f.look(now, func(big schemas.AccountID) (Backlog, error) {
		if big != "acct_1" {
			t.Errorf("asked about %q, and not the account whose message came last", big)
		}
		return Backlog{Others: big != "acct_1"}, nil
	})
	if f.sharing.search {
		t.Error("a lone account is taken for two")
	}
}

// TestWhoSendsOneAfterTheOtherKeepsItsShare: an account has nothing waiting when it is checked, because it sends its next message after
// each result. It counts for as long as it keeps sending.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhoSendsOneAfterTheOtherKeepsItsShare(t *testing.T) {
	t.Parallel()
	const slots = 4
	now := time.Now()
	f := newScheduler(slots, time.Now, func(func()) {})
	none := func(schemas.AccountID) (Backlog, error) { return Backlog{}, nil }
	flood := func(seq uint64) bool {
		v := &Message{Account: "acct_flood", Seq: seq, Begin: func() {}}
		_, ok := f.Admit(v, 1, New, now)
		if next, l := f.turns.next(); l != nil {
			f.begin(next)
		}
		return ok
	}
	for seq := range uint64(slots) {
		flood(seq + 1)
	}
	f.look(now, func(schemas.AccountID) (Backlog, error) { return Backlog{Others: true}, nil })
	for seq := range uint64(slots) {
		if flood(slots + seq + 1) {
			t.Fatal("an account has more here than its share while others wait")
		}
	}
	for range 10 {
		v := &Message{Account: "acct_lone", Seq: 100, Begin: func() {}, Drop: func() {}}
		if _, ok := f.Admit(v, 1, New, now); !ok {
			t.Fatal("the other's message is put back")
		}
		for _, waits := range f.turns.pick(func(w *Message) bool { return w == v }) {
			f.Release(waits, now)
		}
		now = now.Add(searchFor - askEvery)
		if f.look(now, none); !f.sharing.search {
			t.Fatal("the other is forgotten between two of its messages")
		}
	}
	now = now.Add(2 * askEvery)
	if f.look(now, none); f.sharing.search {
		t.Error("an account leaves slots to another that has gone")
	}
}

// TestTheOldestThatWaitsComesAgainSoon: thousands of delivered messages wait. The next of them are not delayed because of those that have
// ended: else all would be nak'ed at once, and slots would idle.
func TestTheOldestThatWaitsComesAgainSoon(t *testing.T) {
	t.Parallel()
	const slots, ended, last = 8, 500, 2000
	now := time.Now()
	f := newScheduler(slots, time.Now, func(f func()) { f() })
	seq := uint64(0)
	next := func(came Origin) (Redelivery, bool) {
		v := &Message{Account: "acct_flood", Seq: seq, Begin: func() {}, Drop: func() {}}
		return f.Admit(v, 1, came, now)
	}
	for seq = 1; seq <= ended; seq++ {
		if _, ok := next(New); !ok {
			t.Fatal("an account that is alone waits")
		}
		v, l := f.turns.next()
		f.begin(v)
		if now = now.Add(tookMost); seq%slots == 0 { // so slow that it is believed only just
			now = now.Add(tookMost)
		}
		f.Release(v, now)
		f.turns.done(l)
	}
	for range slots {
		next(New)
		seq++
	}
	f.look(now, func(schemas.AccountID) (Backlog, error) { return Backlog{Others: true}, nil })
	f.accounts["acct_flood"].took = tookMost
	for first := seq; seq <= last; seq++ {
		if back, ok := next(New); ok || seq == first && back.After > 4*backStep {
			t.Fatalf("it has its turn: %v; or stays away for %s", ok, back.After)
		}
	}
	seq = ended + slots + 1
	if back, ok := next(Redelivered); ok || back.After > 4*backStep {
		t.Errorf("the oldest has its turn: %v; or stays away for %s", ok, back.After)
	}
	seq = last
	if back, ok := next(Redelivered); ok || back.After < 30*time.Second {
		t.Errorf("the newest has its turn: %v; or stays away for no more than %s", ok, back.After)
	}
}

// TestFairnessByChance: messages arrive, end, are nak'ed and are overdue in any order. An account that shares with others has no more
// than its share here, a nak'ed message is redelivered within a bound and by its end, and all slots are released.
//
//guarantee:what-one-tenant-can-do-to-another
func TestFairnessByChance(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		now := time.Now()
		f := newScheduler(1+r.IntN(20), func() time.Time { return now }, func(f func()) { f() })
		f.schedules = r.IntN(2) == 0
		free := f.free.n
		var running []*Message
		start := func() {
			for {
				v, l := f.turns.next()
				if l == nil {
					return
				}
				f.mu.Lock()
				f.accounts[v.Account].waiting--
				v.begun = true
				f.mu.Unlock()
				v.Drop = func() { f.turns.done(l) }
				running = append(running, v)
			}
		}
		for range 500 {
			now = now.Add(rand.N(50 * time.Millisecond))
			switch r.IntN(6) {
			case 0, 1, 2:
				v := &Message{Account: schemas.AccountID(fmt.Sprint("acct_", r.IntN(4))), Seq: 1 + r.Uint64N(1000), Begin: func() {}}
				if r.IntN(3) == 0 {
					v.Due = now.Add(time.Duration(1+r.IntN(1000)) * time.Millisecond)
				}
				before, all := 0, f.held
				if a := f.accounts[v.Account]; a != nil {
					before = a.held
				}
				back, ok := f.Admit(v, 100, Origin(r.IntN(3)), now)
				if ok && !f.overdue(v) && f.sharing.search && all >= f.slots && before >= f.most() {
					t.Fatalf("seed %d: an account has %d here and may have %d", seed, before+1, f.most())
				}
				if most := asideMost; !ok && (back.After > most || back.Schedule && !f.schedules || !v.Due.IsZero() && back.After > v.Due.Sub(now)) {
					t.Fatalf("seed %d: it goes back for %v", seed, back)
				}
			case 3, 4:
				if start(); len(running) > 0 {
					i := r.IntN(len(running))
					v := running[i]
					running = append(running[:i], running[i+1:]...)
					if r.IntN(3) == 0 {
						if back := f.Nak(v, time.Duration(r.IntN(20))*time.Second); back.After > asideMost {
							t.Fatalf("seed %d: its handler wants it back, and it stays away for %v", seed, back)
						}
					}
					v.Drop()
					f.Release(v, now)
				}
			case 5:
				others, crowded := r.IntN(2) == 0, r.IntN(4) == 0
				f.look(now, func(schemas.AccountID) (Backlog, error) { return Backlog{others, crowded}, nil })
			}
			held := 0
			for _, a := range f.accounts {
				if held += a.held; a.waiting < 0 || a.back < 0 || a.scheduled < 0 || a.waiting > a.held {
					t.Fatalf("seed %d: an account has %+v", seed, *a)
				}
			}
			if held != f.held || f.sharing.search && f.free.n != free+f.ahead || !f.sharing.search && f.free.n != free {
				t.Fatalf("seed %d: %d are here, counted %d; %d places of %d", seed, held, f.held, f.free.n, free)
			}
		}
		for start(); len(running) > 0; start() {
			running[0].Drop()
			f.Release(running[0], now)
			running = running[1:]
		}
		now = now.Add(time.Hour)
		f.look(now, func(schemas.AccountID) (Backlog, error) { return Backlog{}, nil })
		f.look(now.Add(time.Minute), func(schemas.AccountID) (Backlog, error) { return Backlog{}, nil })
		if f.held != 0 || f.sharing.search || f.free.n != free || len(f.accounts) != 0 {
			t.Fatalf("seed %d: at the end %d are here, %d places of %d, %d accounts", seed, f.held, f.free.n, free, len(f.accounts))
		}
	}
}
