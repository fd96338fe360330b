package replaytest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// TestTheLogIsRecreated: clients receive one gap, because what they had is gone, and continue in the new log.
//
//guarantee:a-conversation-has-no-holes
func TestTheLogIsRecreated(t *testing.T) {
	t.Parallel()
	role := natsauth.User{Name: "role", Password: "role"}
	s := open(t, natstest.Listen(role))
	s.single()
	operator := natstest.Dial(t, s.log.Server.URL(), role.Name, role.Password)
	convs := names(4) // in both shards
	c := s.crowd()
	c.everyWay(pick(3, 1), convs...)
	// Before the second time not all may have seen all: what they have not is lost with the log.
	next, rounds := 0, pick(150, 30)
	for time := range 2 {
		s.write(convs, next, next+rounds)
		if time == 0 {
			c.reached()
		}
		operator.DeleteStream(t, "EVENTS_00")
		operator.DeleteStream(t, "EVENTS_01")
		s.bus = s.log.Open()
		s.write(convs, next+rounds, next+2*rounds)
		next += 2 * rounds
		c.reached()
	}
	c.caughtUp()
	c.judge()
	for _, tr := range c.all {
		gaps := tr.Gaps()
		if len(gaps) == 0 || len(gaps) > 2 {
			t.Errorf("%s of %s was told the gaps %v, want one for each time", tr.Way, tr.Conversation, gaps)
		}
		for _, g := range gaps {
			if g.From.Epoch == g.To.Epoch {
				t.Errorf("%s of %s was told the gap %v, want one to another epoch", tr.Way, tr.Conversation, g)
			}
		}
	}
}

// TestAReaderThatReturnsBehindTheCutIsNotified: retention has removed what follows their cursors.
//
//guarantee:a-conversation-has-no-holes
func TestAReaderThatReturnsBehindTheCutIsNotified(t *testing.T) {
	t.Parallel()
	const kept = 100
	s := open(t)
	old := s.single()
	convs := names(2)
	early := s.crowd()
	early.everyWay(pick(4, 2), convs...)
	s.write(convs, 0, 150)
	early.reached()
	early.leave()
	old.stop() // with what it still has in memory
	s.write(convs, 150, 400)
	stop := background(t, (&streams.Retention{Bus: s.log.Open(), Count: kept, Every: 20 * time.Millisecond}).Run)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(s.held(convs[0])) > kept || len(s.held(convs[1])) > kept {
		if ctx.Err() != nil {
			t.Fatal("nothing was removed")
		}
	}
	stop() // removing while clients read is the next test's

	s.single()
	c := s.crowd()
	c.rejoin(early.all...)
	fresh := map[*replaytest.Transcript]bool{}
	for way, follow := range c.ways(0) {
		for _, tr := range c.join("new "+way, follow(), convs...) {
			fresh[tr] = true
		}
	}
	s.write(convs, 400, 450)
	c.caughtUp()
	for _, tr := range c.all {
		held := s.held(tr.Conversation)
		ever := s.ever[tr.Conversation]
		if fresh[tr] { // what was removed before they came is not missed
			ever = held
		}
		faults, err := tr.Judge(ever, held)
		if err != nil || len(faults) > 0 {
			t.Errorf("%s: %v, faults %v", tr.Way, err, faults[:min(len(faults), 3)])
		}
		if fresh[tr] != (len(tr.Gaps()) == 0) || len(tr.Gaps()) > 1 {
			t.Errorf("%s of %s was told the gaps %v", tr.Way, tr.Conversation, tr.Gaps())
		}
	}
}

// TestRetentionUnderway: while events are removed as fast as they come, each client has seen what was there, or received a gap.
//
//guarantee:a-conversation-has-no-holes
func TestRetentionUnderway(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.single(func(o *gateway.Options) { o.ReplayBytes = 1 }) // nearly nothing is remembered: it is read when it may be gone
	s.proxy.Set(cuts())
	convs := names(3)
	background(t, (&streams.Retention{Bus: s.log.Open(), Count: 10, Every: 10 * time.Millisecond}).Run)
	c := s.crowd()
	c.everyWay(pick(3, 1), convs...)
	for round := range pick(20, 5) { // so that some are behind
		s.write(convs, 60*round, 60*(round+1))
	}
	c.caughtUp()
	gaps := 0
	for _, tr := range c.all {
		ever := s.ever[tr.Conversation]
		if at := tr.First(); at > 0 { // who begins at the beginning begins with what is there
			ever = ever[slices.IndexFunc(ever, func(e streamcheck.Seen) bool { return seq(t, e) >= at }):]
		}
		faults, err := tr.Judge(ever, s.held(tr.Conversation))
		if err != nil || len(faults) > 0 {
			t.Errorf("%s of %s: %v, %d faults: %v; gaps %v", tr.Way, tr.Conversation, err, len(faults), faults[:min(len(faults), 3)], tr.Gaps())
		}
		gaps += len(tr.Gaps())
	}
	t.Logf("%d readers were told %d gaps", len(c.all), gaps)
}

func seq(t *testing.T, s streamcheck.Seen) uint64 {
	t.Helper()
	c, err := schemas.ParseCursor(s.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	return c.Seq
}
