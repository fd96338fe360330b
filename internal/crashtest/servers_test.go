package crashtest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/internal/streamcheck"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// ordeal is what happens to one of three servers of the log while calls run.
type ordeal struct {
	name string
	do   func(ctx context.Context, servers *natstest.Cluster, i int)
}

func ordeals(long bool) []ordeal {
	const still = 3 * time.Second
	killed := ordeal{"kill -9", func(ctx context.Context, s *natstest.Cluster, i int) {
		s.Kill(i)
		pause(ctx, still/3)
		s.Restart(i)
	}}
	cut := ordeal{"cut off", func(ctx context.Context, s *natstest.Cluster, i int) {
		s.Cut(i)
		pause(ctx, still)
		s.Join(i)
	}}
	lost := ordeal{"its disk lost", func(ctx context.Context, s *natstest.Cluster, i int) {
		s.Kill(i)
		if err := os.RemoveAll(s.Dir(i)); err != nil {
			panic(err)
		}
		pause(ctx, still/3)
		s.Restart(i)
	}}
	if !long {
		return []ordeal{killed, cut, lost}
	}
	paused := func(d time.Duration) ordeal {
		return ordeal{"kill -STOP for " + d.String(), func(ctx context.Context, s *natstest.Cluster, i int) {
			s.Pause(i)
			pause(ctx, d)
			s.Continue(i)
		}}
	}
	upgraded := ordeal{"restarted in order", func(ctx context.Context, s *natstest.Cluster, i int) {
		s.Stop(i)
		pause(ctx, still/3)
		s.Restart(i)
	}}
	return []ordeal{killed, paused(still), cut, upgraded, killed, lost, paused(5 * still), upgraded, upgraded, killed}
}

// TestEveryCallOnceOnThreeServers holds Sandjet to its promises on a log of three servers, while these are killed,
// cut off, stopped, restarted and robbed of their disks, one after the other and mostly the one that leads. Each
// call has one result and has run at most once, each reader has seen the log, and no store has failed.
//
//guarantee:pauses-cuts-and-full-disks
//guarantee:what-can-be-lost-by-durability
func TestEveryCallOnceOnThreeServers(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "calls in spite of kills once more, with three servers; the copies themselves are in internal/clustertest")
	size, seed := sizeOf(), longtest.Seed(t)
	long := size.kills > 1
	t.Logf("%d calls", size.calls)
	ctx, cancel := context.WithTimeout(t.Context(), size.ends)
	defer cancel()
	servers := natstest.StartCluster(t, natstest.ClusterOptions{Processes: true, SyncAlways: true})
	c := startOnServers(ctx, t, servers)
	conversations := []schemas.ConversationID{"crash-0", "crash-1"}

	readers, leave := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	var all []*replaytest.Transcript
	for way, follow := range c.ways(readers, t, &clients) {
		for _, conv := range conversations {
			tr := replaytest.NewTranscript(conv, way)
			all = append(all, tr)
			clients.Go(func() {
				if err := tr.Write(readers, follow); err != nil {
					t.Error(err)
				}
			})
		}
	}

	random := rand.New(rand.NewPCG(seed, 1))
	todo := ordeals(long)
	calls := newCalls(size, random)
	each := (len(calls) + len(todo)) / (len(todo) + 1)
	results := map[string]schemas.Result{}
	for n, batch := range slices.Collect(slices.Chunk(calls, each)) {
		accepted := make(chan []wanted, 1)
		go func() { accepted <- c.submit(ctx, t, batch) }()
		if n < len(todo) {
			victim := servers.Leader("EVENTS_00")
			if victim < 0 || random.IntN(3) == 0 {
				victim = random.IntN(natstest.Members)
			}
			c.log.note(fmt.Sprintf("--- server %d: %s", victim, todo[n].name))
			todo[n].do(ctx, servers, victim)
			servers.AwaitReady()
			c.log.note("--- the servers are well")
		}
		maps.Copy(results, c.results(ctx, t, <-accepted))
	}
	c.check(ctx, t, calls, results)

	log := readBus(ctx, t, servers.Open(), conversations)
	for _, tr := range all {
		ever := seenOf(log[tr.Conversation])
		end := log[tr.Conversation][len(ever)-1].at
		if err := tr.Until(ctx, func(last schemas.Cursor, _ int) bool { return last == end }); err != nil {
			t.Errorf("%v; the end is %s", err, end)
		}
		faults, err := tr.Judge(ever, ever)
		if err != nil || len(faults) > 0 || len(tr.Gaps()) > 0 {
			t.Errorf("%s of %s: %v, gaps %v, %d faults: %v", tr.Way, tr.Conversation, err, tr.Gaps(), len(faults), faults[:min(len(faults), 3)])
		}
	}
	for name, n := range servers.Replicas() {
		if n != natstest.Members {
			t.Errorf("%s has %d copies", name, n)
		}
	}
	for i := range natstest.Members {
		if lines := servers.Critical(i); len(lines) > 0 {
			t.Errorf("the store of server %d has failed, %d lines: %s", i, len(lines), lines[0])
		}
	}
}

// readBus reads conversations past the gateway.
func readBus(ctx context.Context, t *testing.T, bus *streams.Bus,
	conversations []schemas.ConversationID) map[schemas.ConversationID][]logged {
	t.Helper()
	all := map[schemas.ConversationID][]logged{}
	for _, conv := range conversations {
		for e, err := range streams.Events.Replay(ctx, bus, "acct_crash/"+string(conv), schemas.Cursor{}) {
			if err != nil {
				t.Fatal(err)
			}
			digest, err := replaytest.Digest(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			all[conv] = append(all[conv], logged{e.Value.ID, e.Cursor, streamcheck.Seen{
				Conversation: string(conv), Cursor: e.Cursor.String(), Digest: digest,
			}})
		}
		if len(all[conv]) == 0 {
			t.Fatalf("%s is empty", conv)
		}
	}
	return all
}
