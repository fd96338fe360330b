package streams

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
)

// TestAServerThatCouldNotWriteIsHealed: writing to files is made impossible for a while, as by a full disk. Confirmed messages are there
// afterwards, health reports the true state all the time, and writing works again without a restart of the process.
//
// It does so in a process of its own: the limit is the process's, and go test writes files too.
//
//guarantee:a-log-that-could-not-write-continues-when-it-can
//guarantee:pauses-cuts-and-full-disks
func TestAServerThatCouldNotWriteIsHealed(t *testing.T) {
	const alone = "SANDJET_TEST_WITHOUT_FILES"
	if os.Getenv(alone) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=3m")
		cmd.Env = append(os.Environ(), alone+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	s, err := StartServer(t.Context(), embedded.Options{DataDir: t.TempDir(), Port: -1}, fair.Shares{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := Open(ctx, Options{Server: s, Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(context.WithoutCancel(ctx)) // the server may be gone
	confirmed := 0
	call := func() error {
		c := schemas.Call{
			ID: schemas.CallID(fmt.Sprintf("c%d", confirmed)), Account: "acct_a", Conversation: "c", Tool: schemas.ToolBash,
			Input:    []byte(`{"command":"true"}`),
			Provider: "fake", Workspace: "ws", Sandbox: "sb", Timeout: schemas.Duration(time.Minute), Accepted: time.Now(),
			Deadline: time.Now().Add(time.Hour),
		}
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond) // a server that cannot write does not answer
		defer cancel()
		err := Calls.Publish(ctx, b, c)
		if err == nil || errors.Is(err, schemas.ErrConflict) {
			confirmed++
			return nil
		}
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	healed := make(chan error, 1)
	nursing, end := context.WithCancel(ctx)
	defer end()
	go func() { healed <- s.Run(nursing) }()

	release := noWrites(t)
	for err = call(); err == nil; err = call() {
	}
	if code := schemas.CodeOf(err); code != schemas.Unavailable {
		t.Errorf("a call was refused with %s (%v), want %s", code, err, schemas.Unavailable)
	}
	for _, err := range []error{b.Ready(ctx), b.Healthy()} {
		if err == nil || !strings.Contains(schemas.Public(err).Message, "file too large") {
			t.Errorf("it cannot write, and says %v", err)
		}
	}
	for s.Refusing() == nil {
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			t.Fatal("it is not noticed")
		}
	}
	if err := call(); !strings.Contains(schemas.Public(err).Message, "file too large") {
		t.Errorf("a call is not refused at once: %v", err)
	}
	if s.Healthy() == nil {
		t.Error("it says that it is well, and cannot write")
	}
	release()

	for call() != nil {
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			t.Fatal("it cannot write though there is room")
		}
	}
	for b.Ready(ctx) != nil {
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			t.Fatalf("it can write and says that it is not ready: %v", b.Ready(context.Background()))
		}
	}
	for n := range confirmed {
		for {
			_, err := b.Calls().Find(ctx, "acct_a", schemas.CallID(fmt.Sprintf("c%d", n)))
			if errors.Is(err, schemas.ErrUnavailable) && wait.Sleep(ctx, 50*time.Millisecond) { // its connection is still on its way
				continue
			}
			if err != nil {
				t.Errorf("call %d was confirmed: %v", n, err)
			}
			break
		}
	}
	end()
	if err := <-healed; err != nil {
		t.Error(err)
	}
}

// noWrites lets every write to a file of this process fail, until release is called.
func noWrites(t *testing.T) (release func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(n uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	release = func() { set(before.Cur) }
	t.Cleanup(func() { release(); signal.Reset(syscall.SIGXFSZ) })
	return release
}
