package crashtest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/replaytest"
	"github.com/sandjet/sandjet/schemas"
)

// links are the connections between the roles and the NATS server: one fault proxy for each role.
type links struct {
	byRole map[string]*faultproxy.Proxy
	target string
}

// behindProxies makes every role but the server connect to the server through a fault proxy.
func behindProxies(c *cluster, worker []string) []string {
	c.links = &links{byRole: map[string]*faultproxy.Proxy{}}
	return worker
}

// lead starts a fault proxy for a role and changes the role's arguments so that it connects to the server through it. The server must be
// running.
func (l *links) lead(ctx context.Context, t *testing.T, c *cluster, p *process, server string) {
	t.Helper()
	role := c.credential(t)
	proxy, err := faultproxy.Listen(ctx, server, uint64(len(l.byRole)), faultproxy.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() {
		if err := proxy.Run(running); err != nil {
			t.Errorf("proxy of %s: %v", p.name, err)
		}
	})
	t.Cleanup(func() { stop(); done.Wait() })
	l.target = server
	l.byRole[p.name] = proxy
	p.args = append(p.args, "--nats-url", "nats://"+proxy.Addr(), "--nats-user", role.User, "--nats-password", role.Password)
}

// fault is one thing that goes wrong with a role for a time.
type fault struct {
	name string
	// strikes causes the fault, waits as long as it lasts and ends it.
	strikes func(ctx context.Context, t *testing.T, c *cluster, p *process, lasts time.Duration)
}

// faultsOf returns the faults that are possible for a role: all, or only those of processes if it has no proxy, as the server.
func faultsOf(c *cluster, p *process) []fault {
	all := []fault{{"SIGSTOP", standStill}, {"kill -9", killAndRevive}}
	if c.links.byRole[p.name] == nil {
		return all
	}
	return append(all, fault{"connections cut", cutOff}, fault{"partition", partition}, fault{"slow network", slowDown})
}

// It stops a process with SIGSTOP for the time, as a suspended machine or a migration does. Its connections stay open.
func standStill(ctx context.Context, t *testing.T, _ *cluster, p *process, lasts time.Duration) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	defer p.signal(t, syscall.SIGCONT)
	pause(ctx, lasts)
}

// killAndRevive kills a role with SIGKILL and starts it again after at most two seconds.
func killAndRevive(ctx context.Context, t *testing.T, c *cluster, p *process, lasts time.Duration) {
	t.Helper()
	p.kill()
	pause(ctx, min(lasts, 2*time.Second))
	c.revive(t, p)
}

func cutOff(_ context.Context, _ *testing.T, c *cluster, p *process, _ time.Duration) {
	c.links.byRole[p.name].CutAll()
}

// partition cuts the role's connections to the server and accepts no new ones for the time.
func partition(ctx context.Context, _ *testing.T, c *cluster, p *process, lasts time.Duration) {
	proxy := c.links.byRole[p.name]
	proxy.Aim() // nowhere
	proxy.CutAll()
	pause(ctx, lasts)
	proxy.Aim(c.links.target)
}

// slowDown makes the role connect again through a proxy that delivers small pieces, each with a delay, and stalls each connection once.
func slowDown(ctx context.Context, _ *testing.T, c *cluster, p *process, lasts time.Duration) {
	proxy := c.links.byRole[p.name]
	proxy.Set(faultproxy.Faults{
		Delay: faultproxy.Span{Max: 40 * time.Millisecond}, Slice: 4 << 10, Stall: faultproxy.Span{Min: time.Second, Max: 4 * time.Second},
	})
	proxy.CutAll()
	pause(ctx, lasts)
	proxy.Set(faultproxy.Faults{})
	proxy.CutAll()
}

// signal sends a signal to the process itself, but not to its children.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		t.Errorf("%s does not run: no %v", p.name, s)
		return
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Errorf("%v to %s: %v", s, p.name, err)
	}
}

// faultSize is how much a run of faults does.
type faultSize struct {
	batch   int // calls at a time
	most    int // faults, chosen by chance; 0: each fault of each role once
	longest time.Duration
	busy    int // loops that take processor time from everybody
	ends    time.Duration
}

func faultSizeOf(t *testing.T) faultSize {
	t.Helper()
	if sizeOf().kills > 1 {
		return faultSize{batch: 24, longest: 12 * time.Second, busy: 1, ends: 9 * time.Minute}
	}
	return faultSize{batch: 12, most: 8, longest: 4 * time.Second, ends: 8 * time.Minute}
}

// pauseAndCut has the faults happen to the roles in an order by chance, one after the other; now and then two at once.
func (c *cluster) pauseAndCut(ctx context.Context, t *testing.T, s faultSize, r *rand.Rand) {
	t.Helper()
	type card struct {
		p *process
		f fault
	}
	var cards []card
	for _, p := range c.roles {
		for _, f := range faultsOf(c, p) {
			cards = append(cards, card{p, f})
		}
	}
	r.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	if s.most > 0 {
		cards = cards[:s.most]
	}
	for len(cards) > 0 && ctx.Err() == nil {
		n := 1
		if len(cards) > 1 && cards[0].p != cards[1].p && r.IntN(4) == 0 {
			n = 2
		}
		var now sync.WaitGroup
		for _, k := range cards[:n] {
			lasts := time.Second + time.Duration(r.Int64N(int64(s.longest-time.Second)))
			c.log.note(fmt.Sprintf("--- %s: %s for %s", k.p.name, k.f.name, lasts.Round(time.Millisecond)))
			now.Go(func() { k.f.strikes(ctx, t, c, k.p, lasts) })
		}
		now.Wait()
		cards = cards[n:]
		pause(ctx, time.Duration(r.Int64N(int64(time.Second))))
	}
}

// TestEveryCallOnceInSpiteOfPausesAndCuts: while calls are in flight and clients follow them, each role is paused, cut off, slowed down
// and killed. At the end each accepted call has one result, none has run twice (each appends its id to a file that is read without
// Sandjet's help), fewer than half are interrupted, and each client has seen the log whole and in order.
//
//guarantee:one-result-for-every-accepted-call
//guarantee:pauses-cuts-and-full-disks
//guarantee:side-effects-are-started-at-most-once
func TestEveryCallOnceInSpiteOfPausesAndCuts(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "calls in spite of pauses, cuts and partitions beside those in spite of kills")
	s, seed := faultSizeOf(t), longtest.Seed(t)
	t.Logf("%+v", s)
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()
	c := startCluster(ctx, t, behindProxies)

	reading, leave := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	followed := []schemas.ConversationID{"crash-0", "crash-1"}
	transcripts := c.transcribe(reading, t, &clients, followed)

	busy, rest := context.WithCancel(ctx)
	defer rest()
	for range s.busy {
		clients.Go(func() {
			for busy.Err() == nil { // in this process, so that it ends with it
			}
		})
	}

	over := make(chan struct{})
	go func() {
		defer close(over)
		c.pauseAndCut(ctx, t, s, rand.New(rand.NewPCG(seed, 2)))
	}()
	calls, results := c.callsUntil(ctx, t, over, s.batch, rand.New(rand.NewPCG(seed, 1)))
	rest()
	c.startMissing(ctx, t)

	c.check(ctx, t, calls, results)
	c.judgeMarks(t, calls, results)
	log := c.readLog(ctx, t, followed)
	for _, tr := range transcripts {
		judgeTranscript(ctx, t, tr, log[tr.Conversation])
	}
}

// callsUntil sends calls, some at a time, until over is closed: there is work all the time.
func (c *cluster) callsUntil(ctx context.Context, t *testing.T, over <-chan struct{}, batch int,
	r *rand.Rand) ([]wanted, map[string]schemas.Result) {
	t.Helper()
	var calls []wanted
	results := map[string]schemas.Result{}
	for goesOn := true; goesOn && ctx.Err() == nil; {
		select {
		case <-over:
			goesOn = false // after one batch more
		default:
		}
		all := newCalls(size{calls: len(calls) + batch, naps: 2 * time.Second}, r)
		now := all[len(calls):]
		calls = append(calls, now...)
		maps.Copy(results, c.results(ctx, t, c.submit(ctx, t, now)))
	}
	return calls, results
}

// transcribe has one client of each kind follow each conversation.
func (c *cluster) transcribe(ctx context.Context, t *testing.T, clients *sync.WaitGroup,
	conversations []schemas.ConversationID) []*replaytest.Transcript {
	t.Helper()
	var all []*replaytest.Transcript
	for way, follow := range c.ways(ctx, t, clients) {
		for _, conv := range conversations {
			tr := replaytest.NewTranscript(conv, way)
			all = append(all, tr)
			clients.Go(func() {
				if err := tr.Write(ctx, follow); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return all
}

// judgeTranscript waits until a client has seen the end of its conversation and compares what it saw with the log.
func judgeTranscript(ctx context.Context, t *testing.T, tr *replaytest.Transcript, log []logged) {
	t.Helper()
	ever, end := seenOf(log), log[len(log)-1].at
	if err := tr.Until(ctx, func(last schemas.Cursor, _ int) bool { return last == end }); err != nil {
		t.Errorf("%s: %v; the end is %s", tr.Way, err, end)
	}
	found, err := tr.Judge(ever, ever)
	if err != nil || len(found) > 0 || len(tr.Gaps()) > 0 {
		t.Errorf("%s of %s: %v, gaps %v, %d faults: %v", tr.Way, tr.Conversation, err, tr.Gaps(), len(found), found[:min(len(found), 3)])
	}
}

// judgeMarks counts the effects in the files of the workspace, as they are on the disk, and bounds how many calls may be interrupted:
// what goes wrong may cost the calls that run at the time, and not those that wait.
func (c *cluster) judgeMarks(t *testing.T, calls []wanted, results map[string]schemas.Result) {
	t.Helper()
	ran := c.marks(t)
	if len(ran) == 0 {
		t.Fatal("there are no marks")
	}
	interrupted := 0
	for _, w := range calls {
		if ran[w.id] > 1 {
			t.Errorf("%s ran %d times by the file", w.id, ran[w.id])
		}
		if results[w.id].Status == schemas.StatusInterrupted {
			interrupted++
		}
	}
	if interrupted > len(calls)/2 {
		t.Errorf("%d of %d calls are interrupted", interrupted, len(calls))
	}
}

// marks counts how often each call has left its mark, by the files of the workspaces as they are on the disk.
func (c *cluster) marks(t *testing.T) map[string]int {
	t.Helper()
	ran := map[string]int{}
	files, err := filepath.Glob(filepath.Join(c.data, "workspaces", "*", mark))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range lines(string(b)) {
			ran[strings.TrimSpace(id)]++
		}
	}
	return ran
}
