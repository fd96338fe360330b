package crashtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// size is how much a run of the suite does.
type size struct {
	calls   int
	naps    time.Duration // the longest that a call sleeps
	kills   int           // at least so many of each role
	between time.Duration // the longest pause between two kills
	endless bool          // kills continue until all calls have ended
	ends    time.Duration // when the test fails
}

func sizeOf() size {
	if longtest.Asked() {
		return size{calls: 500, naps: 2 * time.Second, kills: 4, between: 2 * time.Second, endless: true, ends: 8 * time.Minute}
	}
	return size{calls: 30, naps: 300 * time.Millisecond, kills: 1, between: time.Second, ends: 4 * time.Minute}
}

// TestEveryCallOnceInSpiteOfKills holds Sandjet to its first two promises: while calls are in flight, each role is killed with SIGKILL
// and started again, many times. At the end every call has exactly one result, and none has run twice: each appends its id to a file of
// the workspace.
//
//guarantee:one-result-for-every-accepted-call
//guarantee:side-effects-are-started-at-most-once
func TestEveryCallOnceInSpiteOfKills(t *testing.T) {
	t.Parallel()
	s := sizeOf()
	seed := longtest.Seed(t)
	t.Logf("%d calls", s.calls)
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()

	c := startCluster(ctx, t)
	calls := newCalls(s, rand.New(rand.NewPCG(seed, 1)))
	chaos, quiet := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() { c.killAtRandom(chaos, t, s, rand.New(rand.NewPCG(seed, 2))) })
	accepted := c.submit(ctx, t, calls)
	results := c.results(ctx, t, accepted)
	c.awaitKills(ctx, t, s.kills)
	quiet()
	killer.Wait()
	c.startMissing(ctx, t)

	c.check(ctx, t, accepted, results)
}

// wanted is one call of the test.
type wanted struct {
	id           string
	conversation string
	command      string
	sandbox      string // empty: the cluster's
	artifact     string // a file that it leaves; empty: none
}

const mark = "ran.txt"

func newCalls(s size, r *rand.Rand) []wanted {
	calls := make([]wanted, s.calls)
	for i := range calls {
		id := fmt.Sprintf("crash-%04d", i)
		nap := time.Duration(r.Int64N(int64(s.naps)))
		calls[i] = wanted{
			id: id, conversation: fmt.Sprintf("crash-%d", i%10), // some share a conversation
			// Short lines are appended in one write, so they never mix.
			command: fmt.Sprintf("echo %s >> %s; sleep %.3f; echo done %s", id, mark, nap.Seconds(), id),
		}
	}
	return calls
}

// killAtRandom kills a role and starts it again after a while, over and over, until ctx ends. Now
// and then it takes two at once.
func (c *cluster) killAtRandom(ctx context.Context, t *testing.T, s size, r *rand.Rand) {
	t.Helper()
	var next []int // as cards are dealt: by chance, but everybody's turn comes
	for ctx.Err() == nil && (s.endless || c.spared(s.kills) != nil) {
		pause(ctx, time.Duration(r.Int64N(int64(s.between))))
		if ctx.Err() != nil {
			return
		}
		if len(next) == 0 {
			next = r.Perm(len(c.roles))
		}
		victims := []*process{c.roles[next[0]]}
		next = next[1:]
		if r.IntN(4) == 0 {
			if other := c.roles[r.IntN(len(c.roles))]; other != victims[0] {
				victims = append(victims, other)
			}
		}
		for _, p := range victims {
			c.log.note("--- kill -9 " + p.name)
			if !p.alive() {
				t.Errorf("%s had ended by itself", p.name)
			}
			p.kill()
		}
		pause(ctx, time.Duration(r.Int64N(int64(s.between))))
		var up sync.WaitGroup
		for _, p := range victims { // at the same time: one may need the other
			up.Go(func() { c.revive(t, p) })
		}
		up.Wait()
	}
}

// revive starts a killed process again. A role that finds the log unavailable may report that and exit. A supervisor starts it again, and
// so does this test.
func (c *cluster) revive(t *testing.T, p *process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := p.start(ctx)
		if err == nil {
			c.log.note("--- up again: " + p.name)
			p.mu.Lock()
			p.kills++
			p.mu.Unlock()
			return
		}
		p.kill()
		c.log.note("--- not up: " + err.Error())
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Errorf("%s does not come up again: %v", p.name, err)
			return
		}
	}
}

// awaitKills waits until each role was killed often enough, so that no seed makes the test easy.
func (c *cluster) awaitKills(ctx context.Context, t *testing.T, least int) {
	t.Helper()
	for p := c.spared(least); p != nil; p = c.spared(least) {
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%s was not killed %d times", p.name, least)
		}
	}
}

// spared is a role that was killed less often than that; nil: there is none.
func (c *cluster) spared(least int) *process {
	for _, p := range c.roles {
		p.mu.Lock()
		n := p.kills
		p.mu.Unlock()
		if n < least {
			return p
		}
	}
	return nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// lines splits what a command printed.
func lines(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
}
