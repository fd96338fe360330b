package durable

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const quiet schemas.AccountID = "acct_zz_quiet" // of which everything comes last

// TestStreamsAreRemovedInTurnBetweenAccounts: one account has many streams that are over, another has few. Those of the other go in the
// first round, however small it is, and a sweep has as many rounds as it needs.
//
//guarantee:what-one-tenant-can-do-to-another
func TestStreamsAreRemovedInTurnBetweenAccounts(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const many, few, round = 60, 3, 10
		ctx, h := t.Context(), New(Options{Bus: b})
		clean := newCleaning(b, nil)
		clean.round = round
		put := func(a schemas.AccountID, path string, n int) {
			t.Helper()
			ttl := int64(60)
			f := found{Record: Record{ID: streamID(n), Account: a, Path: path, TTL: &ttl, Touched: b.Now()}}
			testwait.Must(h.store.write(ctx, f, 0, state{}, []byte("x")))(t)
			testwait.Must(h.store.records.Create(ctx, recordKey(a, path), f.Record, 0))(t)
		}
		for n := range many {
			put(account, fmt.Sprint("s_", n), n)
		}
		for n := range few {
			put(quiet, fmt.Sprint("s_", n), n)
		}
		left := func() (all, others int) {
			t.Helper()
			names := testwait.Must(h.store.log.Names(ctx))(t)
			for n := range names {
				if n.Account == quiet {
					others++
				}
			}
			return len(names), others
		}
		time.Sleep(5 * time.Minute)
		tried := map[string]bool{}
		more, errs := clean.removeOver(ctx, testwait.Must(clean.records(ctx))(t), tried)
		if all, others := left(); errors.Join(errs...) != nil || !more || all != many+few-round || others != 0 {
			t.Errorf("after a round %d are left, %d of the other account, more %v, %v", all, others, more, errs)
		}
		testwait.OK(t, clean.look(ctx))
		if all, _ := left(); all != 0 {
			t.Errorf("after a look %d are left", all)
		}
		if n := testwait.Must(h.store.log.Count(ctx, account))(t); n > many+few {
			t.Errorf("%d records are left", n)
		}
	})
}

// TestLeftoversAreRemovedInTurnBetweenAccounts: one sweep removes a bounded number of the very many leftovers of one account, and those
// of another among the first. The next sweeps remove the rest.
//
//guarantee:what-one-tenant-can-do-to-another
func TestLeftoversAreRemovedInTurnBetweenAccounts(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const many, few, most = 25, 3, 10
		ctx, h := t.Context(), New(Options{Bus: b})
		clean := newCleaning(b, nil)
		clean.cleanup = most
		for n := range many + few {
			a := account
			if n >= many {
				a = quiet
			}
			f := found{Record: Record{ID: streamID(n), Account: a}}
			testwait.Must(h.store.write(ctx, f, 0, state{}, []byte("x")))(t)
		}
		want := many + few
		for look := range 4 {
			testwait.OK(t, clean.look(ctx))
			if look > 0 { // the first has only seen them
				want = max(want-most, 0)
			}
			names := testwait.Must(h.store.log.Names(ctx))(t)
			others := 0
			for n := range names {
				if n.Account == quiet {
					others++
				}
			}
			if len(names) != want || look > 0 && others != 0 {
				t.Errorf("after look %d %d are left, want %d; %d of the other account", look+1, len(names), want, others)
			}
		}
	})
}

func streamID(n int) string { return fmt.Sprint("ds_", n) }
