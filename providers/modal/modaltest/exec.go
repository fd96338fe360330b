package modaltest

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// router implements the service that starts processes in sandboxes.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	s *Service
}

// ahead is how much unread output is kept: a process that prints more waits.
const ahead = 1 << 20

// process is a process that was started.
type process struct {
	cmd   *exec.Cmd
	over  chan struct{}    // closed when it has ended
	state *os.ProcessState // from then on

	in      sync.Mutex // held while input is written
	stdin   io.WriteCloser
	written uint64
	closed  bool

	outs [2]*output
}

// output stores the whole output of a process.
type output struct {
	mu      sync.Mutex
	changed *sync.Cond
	text    []byte
	sent    int // of which so many bytes were sent
	ended   bool
}

func newOutput() *output {
	o := &output{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// fill reads a pipe until it has ended.
func (o *output) fill(r io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.Read(buffer)
		o.mu.Lock()
		o.text = append(o.text, buffer[:n]...)
		o.changed.Broadcast()
		for err == nil && len(o.text)-o.sent > ahead && !o.ended {
			o.changed.Wait()
		}
		if err != nil {
			o.ended = true
			o.changed.Broadcast()
		}
		ended := o.ended
		o.mu.Unlock()
		if ended {
			return
		}
	}
}

// end marks the output as complete and wakes all readers.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
}

// next waits for data after an offset and returns it; false at the end.
func (o *output) next(ctx context.Context, offset uint64) ([]byte, bool) {
	stop := context.AfterFunc(ctx, func() { o.mu.Lock(); o.changed.Broadcast(); o.mu.Unlock() })
	defer stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for uint64(len(o.text)) <= offset && !o.ended && ctx.Err() == nil {
		o.changed.Wait()
	}
	if uint64(len(o.text)) <= offset || ctx.Err() != nil {
		return nil, false
	}
	piece := o.text[offset:min(uint64(len(o.text)), offset+32<<10)]
	o.sent = max(o.sent, int(offset)+len(piece))
	o.changed.Broadcast()
	return piece, true
}

// the returns the sandbox of a task.
func (r *router) the(task string) (*box, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, b := range r.s.boxes {
		if b.task == task {
			if b.result != nil || b.running == nil {
				return nil, status.Errorf(codes.NotFound, "Task %s has ended", task)
			}
			return b, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "Task %s not found", task)
}

// proc returns a process of a task.
func (r *router) proc(task, id string) (*process, error) {
	b, err := r.the(task)
	if err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	p := b.execs[id]
	if p == nil {
		return nil, status.Errorf(codes.NotFound, "Exec %s not found", id)
	}
	return p, nil
}

// noMarks keeps processes from having a limit for file locks.
const noMarks = `ulimit -x 1; exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource -- "$@"`

func (r *router) TaskExecStart(_ context.Context, req *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	b, err := r.the(req.GetTaskId())
	if err != nil {
		return nil, err
	}
	size := 0
	for _, a := range req.GetCommandArgs() {
		size += len(a)
	}
	if len(req.GetCommandArgs()) == 0 || size > 64<<10 {
		return nil, status.Error(codes.InvalidArgument, "a command has arguments, and not more than 64 KiB")
	}
	r.s.mu.Lock()
	known := b.execs[req.GetExecId()]
	r.s.mu.Unlock()
	if known != nil && !r.s.opt.StartTwice {
		return &pb.TaskExecStartResponse{}, nil
	}
	env := map[string]string{}
	for _, s := range req.GetSecretSources() {
		maps.Copy(env, s.GetEnv().GetContents())
	}
	args := req.GetCommandArgs()
	if r.s.opt.NoMarks {
		args = append([]string{"bash", "-c", noMarks, "exec"}, args...)
	}
	cmd := b.running.Command("root", req.GetWorkdir(), env, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &process{cmd: cmd, over: make(chan struct{}), outs: [2]*output{newOutput(), newOutput()}}
	p.stdin, err = cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	if err = errors.Join(err, err2, err3); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	r.s.mu.Lock()
	r.s.starts++
	b.execs[req.GetExecId()] = p
	b.active++
	b.touch()
	r.s.mu.Unlock()
	var clock *time.Timer
	if t := req.GetTimeoutSecs(); t > 0 {
		clock = time.AfterFunc(time.Duration(t)*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // it may have ended
	}
	for i, pipe := range []io.Reader{stdout, stderr} {
		r.s.work.Go(func() { p.outs[i].fill(pipe) })
	}
	r.s.work.Go(func() {
		select {
		case <-b.gone: // what holds an output is gone too, except output without a reader
			for _, o := range p.outs {
				o.end()
			}
		case <-p.over:
		}
	})
	r.s.work.Go(func() {
		state, _ := cmd.Process.Wait() // cmd.Wait would close the outputs, which others may hold
		p.state = state
		if clock != nil {
			clock.Stop()
		}
		r.s.mu.Lock()
		b.active--
		b.touch()
		r.s.mu.Unlock()
		close(p.over)
	})
	return &pb.TaskExecStartResponse{}, nil
}

// TaskExecStdinWrite takes input at its place: what has come before is not written again.
func (r *router) TaskExecStdinWrite(_ context.Context, req *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	p, err := r.proc(req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	p.in.Lock()
	defer p.in.Unlock()
	switch {
	case req.GetOffset() > p.written:
		return nil, status.Errorf(codes.OutOfRange, "%d bytes were written, and not %d", p.written, req.GetOffset())
	case p.closed:
		return nil, status.Error(codes.FailedPrecondition, "stdin is closed")
	}
	if skip := p.written - req.GetOffset(); skip < uint64(len(req.GetData())) {
		n, err := p.stdin.Write(req.GetData()[skip:])
		p.written += uint64(n)
		if err != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "stdin: %v", err)
		}
	}
	if req.GetEof() {
		p.closed = true
		_ = p.stdin.Close() // it may have ended
	}
	return &pb.TaskExecStdinWriteResponse{}, nil
}

func (r *router) TaskExecStdioRead(req *pb.TaskExecStdioReadRequest, out grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	p, err := r.proc(req.GetTaskId(), req.GetExecId())
	if err != nil {
		return err
	}
	o := p.outs[0]
	if req.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR {
		o = p.outs[1]
	}
	for offset := req.GetOffset(); ; {
		piece, ok := o.next(out.Context(), offset)
		if !ok {
			return out.Context().Err()
		}
		offset += uint64(len(piece))
		if err := out.Send(pb.TaskExecStdioReadResponse_builder{Data: append([]byte{}, piece...)}.Build()); err != nil {
			return err
		}
	}
}

func (r *router) TaskExecWait(ctx context.Context, req *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	p, err := r.proc(req.GetTaskId(), req.GetExecId())
	if err != nil {
		return nil, err
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var end syscall.WaitStatus
	if p.state != nil {
		end, _ = p.state.Sys().(syscall.WaitStatus)
	}
	if end.Signaled() {
		sig := int32(end.Signal())
		return pb.TaskExecWaitResponse_builder{Signal: &sig}.Build(), nil
	}
	code := int32(end.ExitStatus())
	return pb.TaskExecWaitResponse_builder{Code: &code}.Build(), nil
}

func (r *router) TaskReloadVolumes(_ context.Context, req *pb.TaskReloadVolumesRequest) (*pb.TaskReloadVolumesResponse, error) {
	if _, err := r.the(req.GetTaskId()); err != nil {
		return nil, err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.reloads++
	return &pb.TaskReloadVolumesResponse{}, nil
}
