package modal

import (
	"context"
	"fmt"
	"testing"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// endless is a service whose every list of sandboxes has one that is older.
type endless struct {
	pb.ModalClientClient

	asked int
}

func (e *endless) SandboxListV2(_ context.Context, _ *pb.SandboxListRequest, _ ...grpc.CallOption) (*pb.SandboxListResponse, error) {
	e.asked++
	return pb.SandboxListResponse_builder{
		Sandboxes: []*pb.SandboxInfo{pb.SandboxInfo_builder{Id: fmt.Sprint("sb-", e.asked), CreatedAt: -float64(e.asked)}.Build()},
	}.Build(), nil
}

// TestListsEnd: a list without an end is an error, and not a part of it.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	service := &endless{}
	c := &client{raw: service, app: &sdk.App{AppID: "ap-1"}}
	all, err := c.list(t.Context(), nil)
	if cloud.KindOf(err) != cloud.KindTooLong || len(all) > 0 || service.asked > cloud.MaxListPages+1 {
		t.Errorf("%d sandboxes of %d pages, %v", len(all), service.asked, err)
	}
}
