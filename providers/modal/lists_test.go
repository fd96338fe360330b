package modal

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

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
//
//guarantee:bounds
func TestListsEnd(t *testing.T) {
	t.Parallel()
	service := &endless{}
	c := &client{raw: service, app: &sdk.App{AppID: "ap-1"}}
	all, err := c.list(t.Context(), nil)
	if cloud.KindOf(err) != cloud.KindTooLong || len(all) > 0 || service.asked > cloud.MaxListPages+1 {
		t.Errorf("%d sandboxes of %d pages, %v", len(all), service.asked, err)
	}
}

// TestAges: no clock that is behind makes a sandbox older than it is.
func TestAges(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct{ maker, service, want time.Duration }{
		"all clocks are right":              {20 * time.Minute, 20 * time.Minute, 20 * time.Minute},
		"the maker's is behind":             {5 * time.Hour, 20 * time.Minute, 20 * time.Minute},
		"the service's is behind":           {20 * time.Minute, 5 * time.Hour, 20 * time.Minute},
		"this host's is behind":             {-time.Hour, -time.Hour, 0},
		"the service does not say (a test)": {20 * time.Minute, -1, 20 * time.Minute},
	} {
		s := sandbox{Tags: map[string]string{tagMade: strconv.FormatInt(now.Add(-c.maker).Unix(), 10)}}
		if c.service != -1 {
			s.Created = float64(now.Add(-c.service).UnixMicro()) / 1e6
		}
		if got := ageOf(s, now); got.Round(time.Minute) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
