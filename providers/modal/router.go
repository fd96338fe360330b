package modal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

const (
	inputChunk  = 256 << 10        // bytes of input in one message
	deadFor     = 90 * time.Second // that output is asked for again when nothing comes of it
	mostSaid    = 64 << 10         // bytes that are kept of what a short command prints
	tryAgainMax = 2 * time.Second
)

// router starts processes in one sandbox. Its methods are safe for concurrent use.
type router struct {
	conn  *grpc.ClientConn
	rpc   pb.TaskCommandRouterClient
	task  string
	token *token
}

// routerTable is [table] for routers. A start names the process by an id, for which the service starts only one process; the program also
// waits for a start message. Input is sent with its offset, so it can be repeated.
func routerTable() []cloud.Retry {
	var all []cloud.Retry
	for _, r := range []string{"TaskExecStart", "TaskExecStdinWrite", "TaskExecWait", "TaskReloadVolumes"} {
		all = append(all, cloud.Retry{Route: r, On: busy(), Lost: true, Tries: 6})
	}
	return all
}

func (r *router) close() { _ = r.conn.Close() }

// start starts a process, which the service ends after limit, and returns its id.
func (r *router) start(ctx context.Context, limit time.Duration, args []string) (exec string, err error) {
	t := cloud.Random()
	exec = t[:8] + "-" + t[8:12] + "-" + t[12:16] + "-" + t[16:20] + "-" + t[20:] // the form that Modal's own clients give them
	seconds := uint32(limit.Seconds()) + 1
	_, err = r.rpc.TaskExecStart(ctx, pb.TaskExecStartRequest_builder{
		TaskId: r.task, ExecId: exec, CommandArgs: args, TimeoutSecs: &seconds,
		StdoutConfig: pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE, StderrConfig: pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE,
	}.Build())
	return exec, err
}

// aliveAfter is how long a reading has lasted that has reached the service: what does not reach it fails at once, but for the first one
// after the network is gone.
const aliveAfter = 15 * time.Second

// read passes an output of a process to take, from its beginning until it has ended. If the connection breaks it resumes at the same
// position. A silent process is no error.
func (r *router) read(ctx context.Context, exec string, fd pb.TaskExecStdioFileDescriptor, take func([]byte) error) error {
	again := wait.Backoff{First: 50 * time.Millisecond, Most: tryAgainMax}
	var offset uint64
	failed, last, fresh := 0, time.Now(), false
	for {
		one, cancel := context.WithCancel(ctx)
		begun := time.Now()
		stream, err := r.rpc.TaskExecStdioRead(one, pb.TaskExecStdioReadRequest_builder{
			TaskId: r.task, ExecId: exec, Offset: offset, FileDescriptor: fd,
		}.Build())
		for err == nil {
			var m *pb.TaskExecStdioReadResponse
			if m, err = stream.Recv(); err == nil {
				offset += uint64(len(m.GetData()))
				failed, fresh = 0, false
				if err := take(m.GetData()); err != nil {
					cancel()
					return err
				}
				last = time.Now() // taking may take long
			}
		}
		cancel()
		if time.Since(begun) >= aliveAfter {
			failed, last = 0, time.Now()
		}
		failed++
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case cloud.StatusOf(err) == http.StatusUnauthorized && !fresh:
			fresh = true
			if _, err := r.token.get(ctx, true); err != nil {
				return err
			}
			continue
		case !repeatable(err) || time.Since(last) > deadFor && failed > 1:
			return err
		}
		if !again.Sleep(ctx, failed) {
			return ctx.Err()
		}
	}
}

// repeatable reports whether a read that failed with err may be resumed.
func repeatable(err error) bool {
	code := cloud.StatusOf(err)
	return code == 0 || slices.Contains(busy(), code)
}

// shortly runs a short command and returns its exit code and both its outputs. The command must be idempotent.
func (r *router) shortly(ctx context.Context, args ...string) (code int, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	whole := append([]string{"env", "PATH=" + carry.SearchPath, "bash", "-c", `exec "$@" 2>&1 </dev/null`, "sandjet"}, args...)
	exec, err := r.start(ctx, endTimeout, whole)
	if err != nil {
		return 0, "", err
	}
	var out strings.Builder
	err = r.read(ctx, exec, pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT, func(b []byte) error {
		out.Write(b[:min(len(b), mostSaid-out.Len())])
		return nil
	})
	if err != nil {
		return 0, "", err
	}
	end, err := r.rpc.TaskExecWait(ctx, pb.TaskExecWaitRequest_builder{TaskId: r.task, ExecId: exec}.Build())
	switch {
	case err != nil:
		return 0, "", err
	case end.HasCode():
		return int(end.GetCode()), strings.TrimSpace(out.String()), nil
	case end.HasSignal():
		return 128 + int(end.GetSignal()), strings.TrimSpace(out.String()), nil
	}
	return 0, "", schemas.OpErrorf(schemas.Unavailable, "run", "Modal does not say how a command ended")
}

// reload makes changes by other writers of the sandbox's volumes visible in it. The service refuses that while files are open there; the
// view then stays as it is.
func (r *router) reload(ctx context.Context) error {
	_, err := r.rpc.TaskReloadVolumes(ctx, pb.TaskReloadVolumesRequest_builder{TaskId: r.task}.Build())
	switch cloud.StatusOf(err) {
	case http.StatusPreconditionFailed, http.StatusConflict:
		return nil
	}
	return err
}

// process is a running boxrun program in a sandbox, with its standard input and outputs. It implements boxrun.Stream.
type process struct {
	router *router
	exec   string
	leave  bool                    // the sandbox ends with it
	ctx    context.Context         //nolint:containedctx // its output's life is its own
	cancel context.CancelCauseFunc // of ctx, with what failed first
	once   sync.Once

	mu     sync.Mutex // of the input
	offset uint64
	err    error // why something was not written

	taking sync.Mutex // of the outputs
}

// program starts the boxrun program. After an error it may be running; it then waits for a start message that never arrives. Leave says
// that the sandbox ends with the program.
func (r *router) program(ctx context.Context, limit time.Duration, leave bool, args []string) (*process, error) {
	p := &process{router: r, leave: leave}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	p.exec, err = r.start(ctx, limit, args)
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// Write writes to the program's standard input.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for done < len(b) {
		n := min(len(b)-done, inputChunk)
		if err := p.write(p.ctx, b[done:done+n], false); err != nil {
			p.cancel(err)              // it is unknown what has arrived: readers need not wait
			err = context.Cause(p.ctx) // an output may have failed before, and ended this
			if p.err == nil {
				p.err = err
			}
			return done, err
		}
		done += n
	}
	return done, nil
}

// write sends a piece of the input, or its end. The lock is held.
func (p *process) write(ctx context.Context, b []byte, end bool) error {
	_, err := p.router.rpc.TaskExecStdinWrite(ctx, pb.TaskExecStdinWriteRequest_builder{
		TaskId: p.router.task, ExecId: p.exec, Offset: p.offset, Data: b, Eof: end,
	}.Build())
	if err == nil {
		p.offset += uint64(len(b))
	}
	return err
}

// failed returns why a write failed; nil if none did.
func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Copy copies the program's outputs until both have ended.
func (p *process) Copy(stdout, stderr io.Writer) error {
	var both sync.WaitGroup
	var errs [2]error
	for i, to := range []io.Writer{stdout, stderr} {
		both.Go(func() {
			fd := pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT
			if i == 1 {
				fd = pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR
			}
			errs[i] = p.router.read(p.ctx, p.exec, fd, func(b []byte) error {
				p.taking.Lock()
				defer p.taking.Unlock()
				_, err := to.Write(b)
				return err
			})
			if errs[i] != nil {
				p.cancel(errs[i]) // the other alone says nothing
			}
		})
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

// Close ends Copy and Write, and also the program and its command if they have not ended.
func (p *process) Close() error {
	p.once.Do(func() {
		p.cancel(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.leave {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), endTimeout)
		defer cancel()
		_ = p.write(ctx, nil, true) // it may have ended
	})
	return nil
}

// commit stores what was written to a workspace, which makes it visible to other sandboxes.
func (r *router) commit(ctx context.Context, path string) error {
	code, said, err := r.shortly(ctx, "sync", path)
	if err == nil && code != 0 {
		err = fmt.Errorf("sync failed with %d: %s", code, excerpt(said))
	}
	return err
}

func excerpt(text string) string { return cloud.Clean(text) }
