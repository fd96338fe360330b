package streams

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// TestAListLeavesRoomForOthers: however many conversations of one account are due, those of others are listed, the list is no longer than it
// may be, and what was left out is found by the next ones.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAListLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var all []*trimming
		for n := range r.IntN(500) { // of which each account has half as many as the one before
			a := 0
			for a < 5 && r.IntN(2) == 0 {
				a++
			}
			account := schemas.AccountID(fmt.Sprint("acct_", a))
			all = append(all, &trimming{account: account, subject: fmt.Sprint(account, ".", n), at: uint64(n + 1)})
		}
		most, handled := 8+r.IntN(100), map[string]bool{}
		for from := uint64(0); ; {
			l := &dueList{most: most, each: most, of: map[schemas.AccountID][]*trimming{}, listed: map[string]bool{}, seen: handled}
			there := map[schemas.AccountID]bool{}
			for range 2 { // each has some messages
				for _, c := range all {
					if c.at >= from && !handled[c.subject] {
						there[c.account] = true
						l.add(c)
					}
				}
			}
			due := l.inTurn()
			if len(due) > most || len(due) != l.n {
				t.Fatalf("seed %d: %d are listed, at most %d; counted %d", seed, len(due), most, l.n)
			}
			accounts := len(there)
			for i, c := range due {
				if handled[c.subject] {
					t.Fatalf("seed %d: %s is due again", seed, c.subject)
				}
				if handled[c.subject] = true; i < accounts {
					delete(there, c.account)
				}
			}
			if len(there) > 0 {
				t.Fatalf("seed %d: of %v nothing is among the first", seed, there)
			}
			if !l.leftOut {
				break
			}
			if l.next <= from {
				t.Fatalf("seed %d: what was left out begins at %d, where the walk began", seed, l.next)
			}
			from = l.next
		}
		if len(handled) != len(all) {
			t.Fatalf("seed %d: %d of %d", seed, len(handled), len(all))
		}
	}
}

// TestSoManyConversationsAreHalfReadAtATime: one that takes more than a slice waits while other accounts have as many as may be. Small ones of
// its account and of others do not, and it is read from its beginning when it may.
//
//guarantee:what-one-tenant-can-do-to-another
func TestSoManyConversationsAreHalfReadAtATime(t *testing.T) {
	t.Parallel()
	b := openBus(t)
	ctx := t.Context()
	const pages = readsOfSlice + 2
	publish := func(a schemas.AccountID, conversation schemas.ConversationID, events int) {
		t.Helper()
		var last Future
		for n := range events {
			c := schemas.Call{ID: schemas.CallID(fmt.Sprint("call_", n)), Account: a, Conversation: conversation}
			f, err := Events.PublishAsync(ctx, b, schemas.NewEvent(c, schemas.Message, fmt.Sprint(conversation, n), b.Now(), struct{}{}))
			if err != nil {
				t.Fatal(err)
			}
			last = f
		}
		if err := last.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	publish("acct_1", "c_large", pages*direct.PageMessages)
	publish("acct_1", "c_small", 1)
	publish("acct_2", "c_other", 1)
	large := &largeOnes{of: map[schemas.AccountID]*trimming{}}
	for n := range mostLargeOnes {
		large.take(&trimming{account: schemas.AccountID(fmt.Sprint("acct_busy_", n))})
	}
	shard := subjects.ShardOf("c_large", b.Shards())
	s := newSweep(b, b.log, subjects.EventStream(shard), subjects.EventsOf(shard)+"*.*", nil)
	s.now, s.large = b.Now(), large
	s.begin = func(_ context.Context, _ jetstream.StreamState) error {
		s.lists = append(s.lists, s.listOld)
		return nil
	}
	for range 2 {
		if left, err := s.round(ctx); err != nil || !left {
			t.Fatalf("while others are read: left %v, %v", left, err)
		}
		info, err := b.reader.Info(ctx, s.stream)
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs != pages*direct.PageMessages || len(s.due) != 1 || s.due[0].state != nil {
			t.Errorf("%d events are left of %d, %d conversations, %+v", info.State.Msgs, pages*direct.PageMessages, len(s.due), s.due[0].reading)
		}
	}
	delete(large.of, "acct_busy_0")
	for left := true; left; {
		var err error
		if left, err = s.round(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := b.reader.Info(ctx, s.stream); err != nil || info.State.Msgs != 0 {
		t.Errorf("%d events are left, %v", info.State.Msgs, err)
	}
	if len(large.of) != mostLargeOnes-1 {
		t.Errorf("%d are half read, and %d of others", len(large.of), mostLargeOnes-1)
	}
}
