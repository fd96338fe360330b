package local_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// TestABoxThatEndsBeforeItAnswers: where the box took a command and ended before it answered, the command may
// have run. The result must say so, or a worker would run it again.
func TestABoxThatEndsBeforeItAnswers(t *testing.T) {
	t.Parallel()
	program := plainProgram(t)
	p := open(t, "L0", func(o *local.Options) { o.AllowUnisolated, o.Box = true, program })
	for wait := 10 * time.Millisecond; wait < 3*time.Second; wait *= 2 {
		cmd := kept(t, p, "box", nil)
		cmd.Script = "echo $PPID"
		res, err := p.Run(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		box, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
		if err != nil || box <= 1 {
			t.Fatalf("%q is no process: %v", res.Stdout, err)
		}
		signalBox(t, box, syscall.SIGSTOP)
		type end struct {
			res providers.Result
			err error
		}
		done := make(chan end, 1)
		go func() {
			res, err := p.Run(t.Context(), cmd)
			done <- end{res, err}
		}()
		time.Sleep(wait) // the command is in the socket of the box soon; nothing shows when
		signalBox(t, box, syscall.SIGKILL)
		e := <-done
		if code := schemas.CodeOf(e.err); e.res.Started != (code == schemas.Interrupted) {
			t.Fatalf("started %v, error %v", e.res.Started, e.err)
		} else if e.res.Started {
			return
		}
		t.Logf("%s was too short: %v", wait, e.err)
	}
	t.Error("no command of a box that ended before it answered was interrupted")
}

func signalBox(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}
