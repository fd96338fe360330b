package modaltest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// control implements the control plane.
type control struct {
	pb.UnimplementedModalClientServer
	s *Service
}

// creates reports whether a missing object is to be created.
func creates(t pb.ObjectCreationType) bool {
	return t == pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING
}

func (c *control) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return pb.AuthTokenGetResponse_builder{Token: c.s.token("client")}.Build(), nil
}

func (c *control) EnvironmentGetOrCreate(_ context.Context, r *pb.EnvironmentGetOrCreateRequest) (
	*pb.EnvironmentGetOrCreateResponse, error,
) {
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-" + random(), Metadata: pb.EnvironmentMetadata_builder{
			Name: cmp.Or(r.GetDeploymentName(), "main"), Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: "2025.06"}.Build(),
		}.Build(),
	}.Build(), nil
}

func (c *control) AppGetOrCreate(_ context.Context, r *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	id := c.s.apps[r.GetAppName()]
	if id == "" {
		if !creates(r.GetObjectCreationType()) {
			return nil, status.Errorf(codes.NotFound, "App '%s' not found", r.GetAppName())
		}
		id = "ap-" + random()
		c.s.apps[r.GetAppName()] = id
	}
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

// ImageGetOrCreate returns the image of a recipe. A new one is built when a client waits for it.
func (c *control) ImageGetOrCreate(_ context.Context, r *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	recipe := strings.Join(r.GetImage().GetDockerfileCommands(), "\n")
	sum := sha256.Sum256([]byte(recipe))
	id := "im-" + hex.EncodeToString(sum[:11])
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	built, known := c.s.images[id]
	if !known {
		c.s.images[id] = false
	}
	answer := pb.ImageGetOrCreateResponse_builder{ImageId: id}
	switch {
	case strings.Contains(recipe, "FROM none"):
		answer.Result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: "no such image"}.Build()
	case built:
		answer.Result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
	}
	return answer.Build(), nil
}

func (c *control) ImageJoinStreaming(r *pb.ImageJoinStreamingRequest, out grpc.ServerStreamingServer[pb.ImageJoinStreamingResponse]) error {
	c.s.mu.Lock()
	_, known := c.s.images[r.GetImageId()]
	if known {
		c.s.images[r.GetImageId()] = true
	}
	c.s.mu.Unlock()
	if !known {
		return status.Errorf(codes.NotFound, "Image %s not found", r.GetImageId())
	}
	if err := out.Send(pb.ImageJoinStreamingResponse_builder{EntryId: "1-0"}.Build()); err != nil {
		return err
	}
	return out.Send(pb.ImageJoinStreamingResponse_builder{
		EntryId: "2-0", Eof: true, Result: pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build(),
	}.Build())
}

func (c *control) ImageFromId(_ context.Context, r *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.s.images[r.GetImageId()] {
		return nil, status.Errorf(codes.NotFound, "Image %s not found", r.GetImageId())
	}
	return pb.ImageFromIdResponse_builder{ImageId: r.GetImageId()}.Build(), nil
}

func (c *control) VolumeGetOrCreate(_ context.Context, r *pb.VolumeGetOrCreateRequest) (*pb.VolumeGetOrCreateResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	id := c.s.volumes[r.GetDeploymentName()]
	switch {
	case c.s.opt.NoVolumes:
		return nil, status.Error(codes.PermissionDenied, "Volumes may not be used with this token")
	case id == "" && !creates(r.GetObjectCreationType()):
		return nil, status.Errorf(codes.NotFound, "Volume '%s' not found", r.GetDeploymentName())
	case id == "":
		id = "vo-" + random()
		if _, err := c.s.folder("volumes", id); err != nil {
			return nil, status.Errorf(codes.Internal, "%v", err)
		}
		c.s.volumes[r.GetDeploymentName()] = id
	}
	return pb.VolumeGetOrCreateResponse_builder{VolumeId: id, Metadata: pb.VolumeMetadata_builder{
		Name: r.GetDeploymentName(), Version: pb.VolumeFsVersion_VOLUME_FS_VERSION_V2,
	}.Build()}.Build(), nil
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9\-_.]{1,64}$`)

// check refuses what the service does not take.
func check(r *pb.SandboxCreateV2Request) error {
	d := r.GetDefinition()
	bad := func(format string, args ...any) error { return status.Errorf(codes.InvalidArgument, format, args...) }
	if n := d.GetName(); n != "" && !namePattern.MatchString(n) {
		return bad("Invalid Sandbox name %q", n)
	}
	if t := d.GetTimeoutSecs(); t == 0 || t > 24*3600 {
		return bad("timeout must be between 1 and 86400 seconds, not %d", t)
	}
	for _, t := range r.GetTags() {
		if !namePattern.MatchString(t.GetTagName()) || !namePattern.MatchString(t.GetTagValue()) {
			return bad("Invalid tag %q=%q", t.GetTagName(), t.GetTagValue())
		}
	}
	for _, text := range d.GetNetworkAccess().GetAllowedCidrs() {
		if _, err := netip.ParsePrefix(text); err != nil {
			return bad("Invalid CIDR %q", text)
		}
	}
	return nil
}

func (c *control) SandboxCreateV2(_ context.Context, r *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	if err := check(r); err != nil {
		return nil, err
	}
	s := c.s
	s.mu.Lock()
	if !slices.Contains(slices.Collect(maps.Values(s.apps)), r.GetAppId()) {
		s.mu.Unlock()
		return nil, status.Errorf(codes.NotFound, "App %s not found", r.GetAppId())
	}
	if !s.images[r.GetDefinition().GetImageId()] {
		s.mu.Unlock()
		return nil, status.Errorf(codes.NotFound, "Image %s not found", r.GetDefinition().GetImageId())
	}
	running := 0
	for _, b := range s.boxes {
		if b.result != nil {
			continue
		}
		running++
		if n := r.GetDefinition().GetName(); n != "" && b.name() == n && b.request.GetAppId() == r.GetAppId() {
			s.mu.Unlock()
			return nil, status.Errorf(codes.AlreadyExists, "Sandbox with name '%s' already exists", n)
		}
	}
	if running >= s.opt.MaxRunning {
		s.mu.Unlock()
		return nil, status.Errorf(codes.ResourceExhausted, "the workspace has reached its limit of %d sandboxes", s.opt.MaxRunning)
	}
	b := newBox(s, r)
	s.boxes[b.id] = b // it counts, and has its name, from now on
	s.made++
	s.mu.Unlock()
	if err := b.boot(); err != nil {
		s.ends(b.id, pb.GenericResult_GENERIC_STATUS_INIT_FAILURE)
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return pb.SandboxCreateV2Response_builder{SandboxId: b.id, TaskId: b.task, CommandRouterAccess: pb.CommandRouterAccess_builder{
		Jwt: s.token(b.task), Url: "https://" + s.address,
	}.Build()}.Build(), nil
}

// with finds a sandbox and calls found with the lock held.
func (c *control) with(id string, found func(b *box) error) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	b := c.s.boxes[id]
	if b == nil {
		return status.Errorf(codes.NotFound, "Sandbox %s not found", id)
	}
	return found(b)
}

func (c *control) SandboxGetFromNameV2(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, b := range c.s.boxes {
		if b.result == nil && b.name() == r.GetSandboxName() && b.request.GetAppId() == c.s.apps[r.GetAppName()] {
			return pb.SandboxGetFromNameResponse_builder{SandboxId: b.id}.Build(), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "Sandbox with name '%s' not found", r.GetSandboxName())
}

// SandboxGetFromName looks among the sandboxes of the former kind, of which there are none.
func (c *control) SandboxGetFromName(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return nil, status.Errorf(codes.NotFound, "Sandbox with name '%s' not found", r.GetSandboxName())
}

func (c *control) SandboxTagsGetV2(_ context.Context, r *pb.SandboxTagsGetRequest) (answer *pb.SandboxTagsGetResponse, err error) {
	return answer, c.with(r.GetSandboxId(), func(b *box) error {
		answer = pb.SandboxTagsGetResponse_builder{Tags: b.tags}.Build()
		return nil
	})
}

func (c *control) SandboxWaitV2(ctx context.Context, r *pb.SandboxWaitRequest) (answer *pb.SandboxWaitResponse, err error) {
	var over <-chan struct{}
	if err := c.with(r.GetSandboxId(), func(b *box) error { over = b.gone; return nil }); err != nil {
		return nil, err
	}
	select {
	case <-over:
	case <-time.After(time.Duration(r.GetTimeout() * float32(time.Second))):
	case <-ctx.Done():
	}
	return answer, c.with(r.GetSandboxId(), func(b *box) error {
		answer = &pb.SandboxWaitResponse{}
		select {
		case <-b.gone:
			answer.SetResult(b.result)
		default:
		}
		return nil
	})
}

func (c *control) SandboxTerminateV2(_ context.Context, r *pb.SandboxTerminateRequest) (answer *pb.SandboxTerminateResponse, err error) {
	return answer, c.with(r.GetSandboxId(), func(b *box) error {
		answer = pb.SandboxTerminateResponse_builder{ExistingResult: b.result}.Build()
		b.terminate(pb.GenericResult_GENERIC_STATUS_TERMINATED)
		return nil
	})
}

func (c *control) SandboxGetTaskIdV2(_ context.Context, r *pb.SandboxGetTaskIdRequest) (answer *pb.SandboxGetTaskIdResponse, err error) {
	return answer, c.with(r.GetSandboxId(), func(b *box) error {
		answer = pb.SandboxGetTaskIdResponse_builder{TaskId: &b.task, TaskResult: b.result}.Build()
		return nil
	})
}

func (c *control) SandboxGetCommandRouterAccess(_ context.Context, r *pb.SandboxGetCommandRouterAccessRequest) (
	answer *pb.SandboxGetCommandRouterAccessResponse, err error,
) {
	return answer, c.with(r.GetSandboxId(), func(b *box) error {
		if b.result != nil {
			return status.Errorf(codes.FailedPrecondition, "Sandbox %s has ended", b.id)
		}
		answer = pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: c.s.token(b.task), Url: "https://" + c.s.address}.Build()
		return nil
	})
}

// SandboxListV2 lists what runs, the newest first, in pages of three.
func (c *control) SandboxListV2(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	const page = 3
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	var all []*pb.SandboxInfo
	for _, b := range c.s.boxes {
		if b.result != nil && !r.GetIncludeFinished() || b.request.GetAppId() != r.GetAppId() || !b.hasTags(r.GetTags()) {
			continue
		}
		if b.hidden > 0 {
			if r.GetBeforeTimestamp() == 0 {
				b.hidden--
			}
			continue
		}
		if before := r.GetBeforeTimestamp(); before != 0 && b.created >= before {
			continue
		}
		all = append(all, pb.SandboxInfo_builder{
			Id: b.id, CreatedAt: b.created, AppId: b.request.GetAppId(), Tags: b.tags, Name: b.name(),
		}.Build())
	}
	slices.SortFunc(all, func(a, b *pb.SandboxInfo) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	return pb.SandboxListResponse_builder{Sandboxes: all[:min(len(all), page)]}.Build(), nil
}

// SandboxTagsSetV2 replaces the tags of a sandbox.
func (c *control) SandboxTagsSetV2(_ context.Context, r *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, c.with(r.GetSandboxId(), func(b *box) error {
		b.tags = r.GetTags()
		return nil
	})
}
