package modal

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

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
	defer p.Close() //nolint:errcheck // it has nothing
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
