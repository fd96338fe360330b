package crashtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// boxMark names the box that a command runs in: the first one in a box makes the name.
const boxMark = `mkdir /tmp/named 2>/dev/null && echo "$RANDOM$RANDOM$RANDOM" > /tmp/name; until [ -s /tmp/name ]; do sleep 0.01; done; cat /tmp/name; `

// TestAKeptBoxIsOneBoxWhateverHappensToItsWorker: two workers share a kept box. All calls come to the worker that has it, and find what
// an earlier call has left running. When that worker is killed, or suspended for longer than it counts as alive, the other one makes a
// new box, and no call runs twice.
//
//guarantee:a-persistent-instance-is-one-box
func TestAKeptBoxIsOneBoxWhateverHappensToItsWorker(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "workers that share a box as processes; inside one process they do so in workers")
	if _, err := exec.LookPath("perl"); err != nil {
		longtest.Missing(t, "missing: perl, to serve in the box")
	}
	s := sizeOf()
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()
	c := startCluster(ctx, t)
	if !canIsolate(ctx, c.program) {
		longtest.Missing(t, "missing: namespaces: without them there are no boxes")
	}
	k := &keptBox{c: c}

	k.serve(ctx, t)
	first := k.visit(ctx, t, 20, true)
	owner := k.owner(ctx, t)

	owner.kill()
	k.serve(ctx, t) // in the new box: the server has gone with its box
	second := k.visit(ctx, t, 20, true)
	if second == first {
		t.Errorf("the box %s has outlived its worker", first)
	}
	c.revive(t, owner)
	if again := k.visit(ctx, t, 20, true); again != second {
		t.Errorf("a worker that came back changed the box: %s and then %s", second, again)
	}

	owner = k.owner(ctx, t)
	inHand := k.begin(ctx, t, 8)
	owner.signal(t, syscall.SIGSTOP)
	results := c.results(ctx, t, inHand)
	third := k.visit(ctx, t, 20, false)
	owner.signal(t, syscall.SIGCONT)
	if third == second {
		t.Errorf("the box %s was reached while its worker stood still", second)
	}
	if last := k.visit(ctx, t, 20, false); last != third {
		t.Errorf("a worker that stood still changed the box when it went on: %s and then %s", third, last)
	}
	later := k.begin(ctx, t, 2)
	maps.Copy(results, c.results(ctx, t, later))
	c.check(ctx, t, slices.Concat(inHand, later), results)
}

// keptBox sends the calls of the test, which all run in one persistent sandbox.
type keptBox struct {
	c    *cluster
	sent int
}

// next returns n new calls that run the command, with ID in it replaced by the call's ID.
func (k *keptBox) next(n int, command string) []wanted {
	calls := make([]wanted, n)
	for i := range calls {
		id := fmt.Sprintf("kept-%04d", k.sent)
		calls[i] = wanted{id: id, conversation: fmt.Sprintf("kept-%d", k.sent%4), command: strings.ReplaceAll(command, "ID", id)}
		k.sent++
	}
	return calls
}

// serve starts a TCP server in the sandbox, which continues to run after its call.
func (k *keptBox) serve(ctx context.Context, t *testing.T) {
	t.Helper()
	const server = `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1:7070", Listen => 64, ReuseAddr => 1) or die "$!";` +
		` while ($c = $s->accept) { print $c "I am here\n"; close $c }' >/dev/null 2>&1 </dev/null &` +
		` until (exec 3<>/dev/tcp/127.0.0.1/7070) 2>/dev/null; do sleep 0.05; done; echo served`
	calls := k.next(1, server)
	if r := k.c.results(ctx, t, k.c.submit(ctx, t, calls))[calls[0].id]; r.Status != schemas.StatusCompleted || r.Output.Stdout != "served\n" {
		t.Fatalf("the server in the box: %+v", r)
	}
}

// visit runs n calls at the same time and returns the name of the sandbox in which they ran. It fails if they ran in several, or if served
// is set and a call cannot reach the server that serve has started.
func (k *keptBox) visit(ctx context.Context, t *testing.T, n int, served bool) string {
	t.Helper()
	look := boxMark
	if served {
		look += `read -r word < /dev/tcp/127.0.0.1/7070; echo "$word"`
	}
	calls := k.next(n, look)
	names := map[string]int{}
	for id, r := range k.c.results(ctx, t, k.c.submit(ctx, t, calls)) {
		if r.Status != schemas.StatusCompleted || r.Output == nil {
			t.Errorf("%s is %s: %s", id, r.Status, r.Text)
			continue
		}
		name, word, _ := strings.Cut(r.Output.Stdout, "\n")
		if names[name]++; served && word != "I am here\n" {
			t.Errorf("%s does not reach the server in its box: %q %q", id, word, r.Output.Stderr)
		}
	}
	if len(names) != 1 {
		t.Fatalf("%d calls were in these boxes, want one: %v\n%s", n, names, k.c.log)
	}
	return slices.Collect(maps.Keys(names))[0]
}

// begin sends n calls that write their mark and then take six seconds, and waits until a worker has started each.
func (k *keptBox) begin(ctx context.Context, t *testing.T, n int) []wanted {
	t.Helper()
	calls := k.c.submit(ctx, t, k.next(n, "echo ID >> "+mark+"; sleep 6; echo done ID"))
	for _, w := range calls {
		for k.startedBy(ctx, t, w) == "" {
			if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
				t.Fatalf("%s does not begin", w.id)
			}
		}
	}
	return calls
}

// startedBy returns the ID of the worker that last started the call; "" if none has.
func (k *keptBox) startedBy(ctx context.Context, t *testing.T, w wanted) (worker string) {
	t.Helper()
	k.c.eachEvent(ctx, t, w.conversation, func(e schemas.Event) {
		var d schemas.StartedData
		if e.Type == schemas.CallStarted && json.Unmarshal(e.Data, &d) == nil && string(d.Call) == w.id {
			worker = d.Worker
		}
	})
	return worker
}

// owner returns the process whose worker runs the calls of the sandbox.
func (k *keptBox) owner(ctx context.Context, t *testing.T) *process {
	t.Helper()
	calls := k.next(1, "true")
	k.c.results(ctx, t, k.c.submit(ctx, t, calls))
	name := k.startedBy(ctx, t, calls[0])
	for _, p := range k.c.roles {
		if name != "" && k.c.log.has(p.name+": ", name) {
			return p
		}
	}
	t.Fatalf("no process has the worker %q\n%s", name, k.c.log)
	return nil
}
