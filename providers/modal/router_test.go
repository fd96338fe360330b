package modal

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// deaf is a service that does not let the outputs of a process be read, and takes no input meanwhile.
type deaf struct {
	pb.TaskCommandRouterClient

	writing chan struct{}
}

func (*deaf) TaskExecStart(context.Context, *pb.TaskExecStartRequest, ...grpc.CallOption) (*pb.TaskExecStartResponse, error) {
	return &pb.TaskExecStartResponse{}, nil
}

func (d *deaf) TaskExecStdinWrite(
	ctx context.Context, _ *pb.TaskExecStdinWriteRequest, _ ...grpc.CallOption,
) (*pb.TaskExecStdinWriteResponse, error) {
	close(d.writing)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (d *deaf) TaskExecStdioRead(
	context.Context, *pb.TaskExecStdioReadRequest, ...grpc.CallOption,
) (grpc.ServerStreamingClient[pb.TaskExecStdioReadResponse], error) {
	<-d.writing
	return nil, &cloud.Error{Status: http.StatusNotFound}
}

// An output that cannot be read ends the input, too: what failed first is the reason of both.
func TestTheOutputsErrorIsTheInputs(t *testing.T) {
	t.Parallel()
	r := &router{rpc: &deaf{writing: make(chan struct{})}}
	p, err := r.program(t.Context(), 0, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	copied := make(chan error, 1)
	go func() { copied <- p.Copy(io.Discard, io.Discard) }()
	_, err = p.Write([]byte("x"))
	for what, err := range map[string]error{"write": err, "input": p.failed(), "copy": <-copied} {
		if cloud.StatusOf(err) != http.StatusNotFound {
			t.Errorf("%s: %v, want what the service said of the output", what, err)
		}
	}
	if errors.Is(err, context.Canceled) {
		t.Errorf("write: %v: our own end of it is no reason", err)
	}
}

// breaking is a service whose readings of an output last for a while, without a word, and break. The last one has what was printed.
type breaking struct {
	pb.TaskCommandRouterClient

	lasts []time.Duration
	reads int
}

func (b *breaking) TaskExecStdioRead(
	ctx context.Context, _ *pb.TaskExecStdioReadRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[pb.TaskExecStdioReadResponse], error) {
	b.reads++
	if b.reads > len(b.lasts) {
		return &reading{ctx: ctx, data: [][]byte{[]byte("done")}, end: io.EOF}, nil
	}
	return &reading{ctx: ctx, lasts: b.lasts[b.reads-1], end: &cloud.Error{Status: http.StatusServiceUnavailable}}, nil
}

type reading struct {
	grpc.ServerStreamingClient[pb.TaskExecStdioReadResponse]

	ctx   context.Context //nolint:containedctx // it is a stream's
	lasts time.Duration
	data  [][]byte
	end   error
}

func (r *reading) Recv() (*pb.TaskExecStdioReadResponse, error) {
	if len(r.data) > 0 {
		m := pb.TaskExecStdioReadResponse_builder{Data: r.data[0]}.Build()
		r.data = r.data[1:]
		return m, nil
	}
	if !wait.Sleep(r.ctx, r.lasts) {
		return nil, r.ctx.Err()
	}
	return nil, r.end
}

// TestSilenceIsNoDeath: the connection of a command that prints nothing may break again and again. A connection that reaches no server is
// abandoned.
func TestSilenceIsNoDeath(t *testing.T) {
	t.Parallel()
	away := make([]time.Duration, 10_000)
	for name, c := range map[string]struct {
		lasts []time.Duration
		good  bool
	}{
		"after a minute each":       {[]time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}, true},
		"away for a moment between": {[]time.Duration{time.Minute, 0, 0, time.Minute, 0, 0, time.Minute}, true},
		"away":                      {away, false},
		"away after a minute":       {append([]time.Duration{time.Minute}, away...), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &router{rpc: &breaking{lasts: c.lasts}}
				var got []byte
				err := r.read(t.Context(), "exec", pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT, func(b []byte) error {
					got = append(got, b...)
					return nil
				})
				if (err == nil) != c.good || c.good && string(got) != "done" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		})
	}
}
