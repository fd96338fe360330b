package durable

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// use enters the lane of a stream and leaves it.
func (l *lanes) use(t *testing.T, a schemas.AccountID, id string) *lane {
	t.Helper()
	n, err := l.enter(t.Context(), a, id)
	if err != nil {
		t.Fatal(err)
	}
	l.leave(n)
	return n
}

// Streams of one account leave others their lanes, and what is at rest is forgotten.
func TestLanesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		others := l.use(t, "acct_b", "b")
		for i := range 2 * accountsLanes {
			l.use(t, "acct_a", fmt.Sprint(i))
		}
		if len(l.open["acct_a"]) != accountsLanes || l.all != accountsLanes+1 || l.use(t, "acct_b", "b") != others {
			t.Errorf("%d lanes of one account, %d in all", len(l.open["acct_a"]), l.all)
		}
		for i := range 2 * keptLanes {
			l.use(t, schemas.AccountID(fmt.Sprintf("acct_%d", i/2)), fmt.Sprint(i))
		}
		if l.all != keptLanes || len(l.open["acct_a"]) > 2 {
			t.Errorf("%d lanes in all, %d of the one that has had the most", l.all, len(l.open["acct_a"]))
		}
		held, err := l.enter(t.Context(), "acct_h", "held")
		if err != nil {
			t.Fatal(err)
		}
		gone, end := context.WithCancel(t.Context())
		end()
		if _, err := l.enter(gone, "acct_h", "held"); err == nil {
			t.Error("two are in one lane")
		}
		time.Sleep(laneRest)
		if l.use(t, "acct_c", "c"); l.all != 2 || l.open["acct_h"]["held"] != held || len(l.open) != 2 {
			t.Errorf("%d lanes are left of what rests", l.all)
		}
		l.leave(held)
		time.Sleep(laneRest - time.Second)
		if l.use(t, "acct_c", "c"); l.open["acct_h"]["held"] != held {
			t.Error("a lane was forgotten before its time")
		}
	})
}

// What is remembered of producers is bounded in bytes, whatever their ids.
func TestProducersOfALaneAreBounded(t *testing.T) {
	t.Parallel()
	var n lane
	for i := range 10_000 {
		p := &producer{ID: fmt.Sprintf("%0*d", 1+i%maxName, i)}
		n.reach(p)
		n.reach(p)
		if n.reached[p.ID] != p || n.bytes > keptProducers || n.bytes < len(n.reached)*producerBytes {
			t.Fatalf("%d: %d producers, %d bytes", i, len(n.reached), n.bytes)
		}
	}
	if n.forget(); n.reached != nil || n.bytes != 0 || n.known {
		t.Errorf("%+v", n)
	}
}

// A producer whose append was refused is not remembered, and one that was forgotten is found on the log.
func TestOnlyProducersThatWroteAreRemembered(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		h := New(Options{Bus: b})
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "s", "", "Content-Type", "text/plain"), http.StatusCreated)
		appendAs := func(id, seq string) int {
			return ask(t.Context(), h, http.MethodPost, "s", "x", "Content-Type", "text/plain", "Producer-Id", id, "Producer-Epoch", "0",
				"Producer-Seq", seq).Code
		}
		if code := appendAs("writes", "0"); code != http.StatusOK {
			t.Fatalf("the first append: %d", code)
		}
		for i := range 20 {
			if code := appendAs(strings.Repeat("x", i+1), "7"); code != http.StatusConflict {
				t.Fatalf("an append with a gap: %d", code)
			}
		}
		var known []string
		for _, n := range h.store.lanes.open[account] {
			for id := range n.reached {
				known = append(known, id)
			}
		}
		if len(known) > 1 || len(known) == 1 && known[0] != "writes" {
			t.Errorf("remembered: %q", known)
		}
		time.Sleep(laneRest + sweepLanes)
		wantStatus(t, ask(t.Context(), h, http.MethodPut, "other", "", "Content-Type", "text/plain"), http.StatusCreated)
		if code := appendAs("writes", "0"); code != http.StatusNoContent {
			t.Errorf("an append that is sent again after its producer was forgotten: %d", code)
		}
		if code := appendAs("writes", "1"); code != http.StatusOK {
			t.Errorf("the next one: %d", code)
		}
	})
}
