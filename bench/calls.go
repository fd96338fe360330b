package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/workers"
)

const (
	benchAccount   = schemas.AccountID("acct_bench")
	benchSandbox   = schemas.SandboxID("sb_bench")
	benchWorkspace = schemas.WorkspaceID("ws_bench")
	benchProvider  = "noop"
)

// ours is Sandjet from log to log: an embedded server, the call worker, and a provider that answers at once. It measures everything that
// Sandjet adds to the engine.
type ours struct {
	server *streams.Server
	bus    *streams.Bus
	dir    string
	serial atomic.Int64
	stop   context.CancelFunc
	ended  chan error
}

func openOurs(ctx context.Context) (*ours, error) {
	dir, err := os.MkdirTemp("", "sandjet-bench-")
	if err != nil {
		return nil, fmt.Errorf("ours: make a directory: %w", err)
	}
	o := &ours{dir: dir, ended: make(chan error, 1)}
	if o.server, err = streams.StartServer(ctx, embedded.Options{DataDir: dir, Port: -1}, fair.Shares{}); err != nil {
		return nil, fmt.Errorf("ours: start the server: %w", err)
	}
	if o.bus, err = streams.Open(ctx, streams.Options{Server: o.server}); err != nil {
		o.server.Shutdown()
		return nil, fmt.Errorf("ours: open the log: %w", err)
	}
	return o, nil
}

// work starts a worker with the given slots; done is called for each result that the log has stored.
func (o *ours) work(ctx context.Context, slots int, done func()) {
	ctx, o.stop = context.WithCancel(ctx)
	w := workers.Worker{
		Bus: o.bus, Provider: providertest.Noop{}, Name: benchProvider, Specs: benchSpecs{}, Slots: slots,
		Metrics: workers.Metrics{Finished: finished(done)},
	}
	go func() { o.ended <- w.Run(ctx) }()
}

func (o *ours) close(ctx context.Context) {
	if o.stop != nil {
		o.stop()
		<-o.ended //nolint:errcheck // it was stopped
	}
	_ = o.bus.Close(ctx)
	o.server.Shutdown()
	_ = os.RemoveAll(o.dir)
}

// call returns the next call; each conversation has 100 calls.
func (o *ours) call() schemas.Call {
	const perConversation = 100
	n := o.serial.Add(1)
	now := time.Now()
	return schemas.Call{
		ID: schemas.CallID("call_" + strconv.FormatInt(n, 10)), Account: benchAccount,
		Conversation: schemas.ConversationID("c_" + strconv.FormatInt(n/perConversation, 10)),
		Tool:         schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`), Provider: benchProvider,
		Workspace: benchWorkspace, Sandbox: benchSandbox, Timeout: schemas.Duration(schemas.DefaultTimeout),
		Accepted: now, Deadline: now.Add(schemas.DefaultDeadline), Digest: "bench",
	}
}

// accept writes the two messages of an admission: the call, and its acceptance.
func (o *ours) accept(ctx context.Context) error {
	c := o.call()
	absent := o.bus.Absent()
	if err := streams.Calls.Publish(ctx, o.bus, c); err != nil {
		return err
	}
	_, err := streams.StoreOnce(ctx, o.bus, schemas.AcceptedEvent(c), absent)
	return err
}

// benchSpecs returns the records of the one sandbox and workspace.
type benchSpecs struct{}

func (benchSpecs) Sandbox(context.Context, schemas.AccountID, schemas.SandboxID) (schemas.Sandbox, error) {
	return schemas.Sandbox{ID: benchSandbox, Account: benchAccount, Name: "default", Provider: benchProvider,
		PermissionMode: schemas.PermissionBypass}, nil
}

func (benchSpecs) Workspace(context.Context, schemas.AccountID, schemas.WorkspaceID) (schemas.Workspace, error) {
	return schemas.Workspace{ID: benchWorkspace, Account: benchAccount, Name: "default", Sandbox: benchSandbox}, nil
}

// produce accepts n calls by several concurrent producers and returns the first error.
func produce(n, producers int, accept func() error) error {
	var (
		left  atomic.Int64
		first sync.Once
		err   error
		all   sync.WaitGroup
	)
	left.Store(int64(n))
	for range producers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if e := accept(); e != nil {
					first.Do(func() { err = e })
					return
				}
			}
		})
	}
	all.Wait()
	return err
}

// countdown returns a function to call n times, and a channel that is closed by the last call.
func countdown(n int) (func(), <-chan struct{}) {
	var left atomic.Int64
	left.Store(int64(n))
	c := make(chan struct{})
	return func() {
		if left.Add(-1) == 0 {
			close(c)
		}
	}, c
}

func waitFor(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the last result: %w", ctx.Err())
	}
}

// heap returns the heap and stacks in use after a collection, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) // far below the largest int64
}

// resident returns the process's resident set in bytes.
func resident() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	const pages = 1
	if len(f) <= pages {
		return 0
	}
	n, err := strconv.ParseInt(f[pages], 10, 64)
	if err != nil {
		return 0
	}
	return n * int64(os.Getpagesize())
}

func diskUse(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		i, err := d.Info()
		if err == nil {
			sum += i.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure %s: %w", dir, err)
	}
	return sum, nil
}

// finished adapts done to the worker's metric.
func finished(done func()) func(schemas.Tool, schemas.Status) {
	return func(schemas.Tool, schemas.Status) { done() }
}
