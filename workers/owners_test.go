package workers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/leases"
)

// host is a provider of one process: only that process reaches its boxes and what is in them.
type host struct {
	name string

	mu    sync.Mutex
	boxes map[string]*[]string // what was written to /tmp of a box, by its epoch
	made  int
}

func (h *host) Profile() providers.Profile {
	return providers.Profile{Name: "fake", Shell: "bash", Persistent: true, JobsEndWithWorker: true}
}

func (h *host) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for epoch := range h.boxes {
		return schemas.Ref{ID: key, Epoch: epoch}, nil // these tests have one key
	}
	h.made++
	epoch := fmt.Sprintf("%s-%d", h.name, h.made)
	h.boxes = map[string]*[]string{epoch: {}}
	return schemas.Ref{ID: key, Epoch: epoch}, nil
}

func (h *host) Release(_ context.Context, ref schemas.Ref) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.boxes, ref.Epoch)
	return nil
}

// Run appends the number of the run to the box and prints how many there are.
func (h *host) Run(_ context.Context, cmd providers.Command) (providers.Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	box := h.boxes[cmd.Sandbox.Epoch]
	if box == nil {
		return providers.Result{}, schemas.OpErrorf(schemas.NotFound, "run", "gone")
	}
	*box = append(*box, "x")
	out := fmt.Sprintf("%s %d", cmd.Sandbox.Epoch, len(*box))
	return providers.Result{Runtime: "fake/L0", Started: true, Stdout: []byte(out), StdoutBytes: int64(len(out)),
		Duration: time.Millisecond}, nil
}

// TestAKeptBoxIsOneBoxForAllWorkers: several workers of a provider whose boxes are their own share a log, and every
// call of a sandbox and workspace finds the same box, until its worker is gone.
//
//guarantee:a-persistent-instance-is-one-box
func TestAKeptBoxIsOneBoxForAllWorkers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		hosts := []*host{{name: "a"}, {name: "b"}, {name: "c"}}
		workers := make([]*employed, len(hosts))
		for i, h := range hosts {
			workers[i] = w.employ(h)
		}
		time.Sleep(10 * time.Second) // all have their leases for long enough
		n := 0
		calls := func(count int) (box string) {
			t.Helper()
			for range count {
				n++
				r := w.want(w.publish(w.call(fmt.Sprintf("call_%d", n), schemas.ToolBash)), schemas.StatusCompleted)
				var at string
				var size int
				if _, err := fmt.Sscanf(r.Output.Stdout, "%s %d", &at, &size); err != nil {
					t.Fatalf("%q: %v", r.Output.Stdout, err)
				}
				if box == "" {
					box = at
				}
				if at != box {
					t.Fatalf("call %d ran in box %s, the one before in %s", n, at, box)
				}
			}
			return box
		}
		first := calls(12)
		// Its owner dies: the next calls share one box of another worker.
		for i, h := range hosts {
			if first[:1] == h.name {
				cut(workers[i].bus)
				workers[i].stop()
				h.mu.Lock()
				h.boxes = nil
				h.mu.Unlock()
			}
		}
		second := calls(12)
		if second[:1] == first[:1] {
			t.Errorf("box %s of a dead worker", second)
		}
	})
}

//guarantee:a-persistent-instance-is-one-box
func TestForeignWorkspacesAreRefused(t *testing.T) {
	now := time.Now()
	mine := leases.Record{Worker: "worker_2", Provider: "local", Started: now, Store: "store_a"}
	for name, tc := range map[string]struct {
		other leases.Record
		want  bool
	}{
		"another store": {leases.Record{Worker: "worker_1", Provider: "local",
			Started: now.Add(-time.Second), Store: "store_b"}, true},
		"another store at the same time": {leases.Record{Worker: "worker_1", Provider: "local", Started: now, Store: "store_b"}, true},
		"one that came later refuses":    {leases.Record{Worker: "worker_3", Provider: "local", Started: now, Store: "store_b"}, false},
		"the same store": {leases.Record{Worker: "worker_1", Provider: "local",
			Started: now.Add(-time.Second), Store: "store_a"}, false},
		"another provider":   {leases.Record{Worker: "worker_1", Provider: "e2b", Started: now.Add(-time.Second), Store: "store_b"}, false},
		"a provider without": {leases.Record{Worker: "worker_1", Provider: "local", Started: now.Add(-time.Second)}, false},
		"itself":             {mine, false},
	} {
		if _, got := foreign(mine, []leases.Record{tc.other}); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// stored is a provider with workspaces somewhere.
type stored struct {
	fake
	store string
}

func (s *stored) WorkspaceStore() string { return s.store }

//guarantee:a-persistent-instance-is-one-box
func TestAWorkerWithForeignWorkspacesDoesNotJoin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&stored{store: "store_a"})
		time.Sleep(5 * time.Second)
		w.employ(&stored{store: "store_a"})
		other := w.employ(&stored{store: "store_b"})
		select {
		case <-other.done:
		case <-time.After(time.Minute):
			t.Fatal("it works beside workers that see other files")
		}
		if schemas.CodeOf(other.err) != schemas.Conflict {
			t.Errorf("it ended with %v", other.err)
		}
		w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusCompleted)
	})
}
