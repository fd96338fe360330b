package servicetest_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// TestMain prevents sandboxes from inheriting the descriptors that go test has left open.
func TestMain(m *testing.M) {
	servicetest.CloseOnExec()
	os.Exit(m.Run())
}

// A command in a sandbox is paused, resumed and then ended with the sandbox: a caller that waits for the command returns.
func TestACommandEndsAfterItsSandboxStoodStill(t *testing.T) {
	t.Parallel()
	servicetest.Need(t)
	const within = 30 * time.Second
	for name, after := range map[string]func(*servicetest.Box){
		"it goes on":        func(b *servicetest.Box) { b.Signal(syscall.SIGCONT) },
		"the sandbox ends":  func(b *servicetest.Box) { b.End() },
		"both, and at once": func(b *servicetest.Box) { b.Signal(syscall.SIGCONT); b.End() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := servicetest.Boot(servicetest.Options{Dir: t.TempDir(), User: "user"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { b.End(); <-b.Over() }()
			cmd := b.Command("user", "", nil, "bash", "-c", "echo begun; sleep 1")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 16)); err != nil {
				t.Fatal(err)
			}
			b.Signal(syscall.SIGSTOP)
			time.Sleep(200 * time.Millisecond) // processes that would stop themselves because of that do so now
			after(b)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(within):
				_ = cmd.Process.Kill()
				t.Error("its command does not end")
			}
		})
	}
}
