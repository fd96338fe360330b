package modal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/protobuf/proto"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// spoken is the version of the vendor's client whose messages are spoken, as that client says it.
const spoken = "modal-go/0.11.1"

// vendor is the set of operations on Modal. Errors of the service are a [cloud.Error] with the equivalent HTTP status.
type vendor interface {
	// create makes a sandbox and waits until it runs, as long as ctx lets it. Status 409: its name is taken.
	create(ctx context.Context, n newSandbox) (id string, err error)
	// byName is the sandbox that runs under a name. Status 404: there is none.
	byName(ctx context.Context, name string) (id string, err error)
	// tags are those with which a sandbox was made.
	tags(ctx context.Context, id string) (map[string]string, error)
	// running reports whether a sandbox has not ended. Status 404: it was never there, or long ago.
	running(ctx context.Context, id string) (bool, error)
	// list lists the sandboxes of the app that run and have some tags. New ones may come late.
	list(ctx context.Context, tags map[string]string) ([]sandbox, error)
	// end ends a sandbox, and does not wait for that.
	end(ctx context.Context, id string) error
	// volume is the id of a volume, which is made when there is none.
	volume(ctx context.Context, name string) (id string, err error)
	// image says whether the image is there, and asks for nothing to be built. Status 404: it is not.
	image(ctx context.Context) error
	// enter connects to the router of a sandbox. The caller closes what it gets.
	enter(ctx context.Context, id string) (*router, error)
}

// sandbox is a sandbox as a list shows it.
type sandbox struct {
	ID      string
	Created float64 // seconds since 1970, by the service's clock
	Tags    map[string]string
}

// newSandbox describes a create request. Times are in whole seconds.
type newSandbox struct {
	Name    string
	Tags    map[string]string
	Runtime string
	Life    time.Duration
	Idle    time.Duration // 0: it does not end for that
	Block   bool          // the network
	CIDRs   []string      // with Domains: all that is allowed; both nil: everything
	Domains []string
	Volumes []volumeMount
}

type volumeMount struct {
	ID       string
	Path     string
	ReadOnly bool
}

// busy returns the statuses after which a request is retried.
func busy() []int {
	return []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
}

// table returns which requests to the control plane are retried. Requests that make a sandbox are not retried after a broken connection:
// the sandbox is looked up by its name instead.
func table() []cloud.Retry {
	reads := []string{"AuthTokenGet", "AppGetOrCreate", "EnvironmentGetOrCreate", "ImageGetOrCreate", "ImageFromId", "VolumeGetOrCreate",
		"SandboxGet*", "SandboxListV2", "SandboxTagsGetV2", "SandboxWaitV2", "SandboxTerminateV2"}
	var all []cloud.Retry
	for _, r := range reads {
		all = append(all, cloud.Retry{Route: r, On: busy(), Lost: true})
	}
	return append(all, cloud.Retry{Route: "SandboxCreateV2", On: []int{http.StatusServiceUnavailable}, Unsent: true})
}

// client is the vendor's client, over a connection of this package.
type client struct {
	opt    Options
	server *url.URL
	raw    pb.ModalClientClient // what the vendor's client has no method for, or one that hides half of the answer
	sdk    *sdk.Client
	link   *link

	building sync.Mutex // held while the image is asked for, which may take long: one of a worker's callers is enough

	mu    sync.Mutex // held while the app is asked for
	app   *sdk.App
	built *sdk.Image
	known map[string]string // volumes, by name
}

// connect prepares connections to the service, without sending a request. Code: invalid.
func connect(o Options) (vendor, func(), error) {
	server, err := cloud.ParseBase("modal-server-url", o.ServerURL)
	if err != nil {
		return nil, nil, err
	}
	c := &client{opt: o, server: server, known: map[string]string{}}
	t := &token{fetch: c.fetchToken}
	credentials := []string{
		"x-modal-client-type", fmt.Sprint(int(pb.ClientType_CLIENT_TYPE_LIBMODAL_GO)), "x-modal-client-version", "1.0.0",
		"x-modal-libmodal-version", spoken, "x-modal-host", server.Hostname(),
		"x-modal-token-id", o.TokenID, "x-modal-token-secret", o.TokenSecret,
	}
	secrets := []string{o.TokenID, o.TokenSecret}
	c.link = &link{
		retries: table(), slow: []string{"SandboxCreateV2", "ImageGetOrCreate"}, log: o.Log,
		sign: func(ctx context.Context, route string, fresh bool) ([]string, []string, error) {
			if route == "AuthTokenGet" || route == "ImageJoinStreaming" {
				return credentials, secrets, nil
			}
			text, err := t.get(ctx, fresh)
			return append(slices.Clone(credentials), "x-modal-auth-token", text), append(slices.Clone(secrets), text), err
		},
	}
	conn, err := c.link.dial(server, server.Scheme == "http")
	if err != nil {
		return nil, nil, schemas.Invalidf("modal-server-url", "%q: %v", schemas.Quotable(o.ServerURL), err)
	}
	c.raw = pb.NewModalClientClient(conn)
	if c.sdk, err = sdkOver(c.raw, o); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return c, func() { _ = conn.Close() }, nil
}

// sdkOver returns the vendor's client over an existing connection. It reads no configuration file of this host.
func sdkOver(raw pb.ModalClientClient, o Options) (*sdk.Client, error) {
	params := sdk.ClientParams{
		TokenID: o.TokenID, TokenSecret: o.TokenSecret, Environment: o.Environment, ControlPlaneClient: raw, Logger: o.Log,
	}
	blank(&params.Config)
	c, err := sdk.NewClientWithOptions(&params)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "open", "the client of Modal cannot be used", err)
	}
	return c, nil
}

// blank sets a pointer to the zero value of a type that has no name here.
func blank[T any](p **T) { *p = new(T) }

func (c *client) fetchToken(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), allTries) // others may wait for it too
	defer cancel()
	said, err := c.raw.AuthTokenGet(ctx, &pb.AuthTokenGetRequest{})
	if err == nil && said.GetToken() == "" {
		err = schemas.OpErrorf(schemas.Unavailable, "ask", "Modal gives no token for the credentials of this worker")
	}
	return said.GetToken(), err
}

// ownApp returns the app with all sandboxes of this installation. Without create the error has status 404 if there is none.
func (c *client) ownApp(ctx context.Context, create bool) (*sdk.App, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.app != nil {
		return c.app, nil
	}
	app, err := c.sdk.Apps.FromName(ctx, c.opt.App, &sdk.AppFromNameParams{Environment: c.opt.Environment, CreateIfMissing: create})
	if err != nil {
		return nil, err
	}
	c.app = app
	return app, nil
}

// ready returns the image, which the service builds with the first sandbox.
func (c *client) ready(ctx context.Context, app *sdk.App) (*sdk.Image, error) {
	if strings.HasPrefix(c.opt.Image, imageID) {
		return &sdk.Image{ImageID: c.opt.Image}, nil
	}
	c.building.Lock()
	defer c.building.Unlock()
	c.mu.Lock()
	known := c.built
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opt.Build) // a build outlives its first caller
	defer cancel()
	built, err := c.sdk.Images.FromRegistry(c.opt.Image, nil).Build(ctx, app, nil)
	if err != nil {
		if failed, ok := errors.AsType[sdk.RemoteError](err); ok {
			return nil, schemas.OpErrorf(schemas.Unsupported, "create", "Modal cannot build the image %s: %s", c.opt.Image,
				cloud.Clean(failed.Exception, c.opt.TokenID, c.opt.TokenSecret))
		}
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.built = built
	return built, nil
}

// imageID is what ids of images begin with.
const imageID = "im-"

func (c *client) image(ctx context.Context) error {
	if !strings.HasPrefix(c.opt.Image, imageID) {
		return nil
	}
	_, err := c.raw.ImageFromId(ctx, pb.ImageFromIdRequest_builder{ImageId: c.opt.Image}.Build())
	return err
}

// forget drops the cached app and image, because the service no longer knows one of them.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.app, c.built, c.known = nil, nil, map[string]string{}
}

func (c *client) create(ctx context.Context, n newSandbox) (string, error) {
	app, err := c.ownApp(ctx, true)
	if err != nil {
		return "", err
	}
	image, err := c.ready(ctx, app)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.Start)
	defer cancel()
	p := sdk.SandboxCreateParams{
		Name: n.Name, Tags: n.Tags, Runtime: sdk.SandboxRuntime(n.Runtime), Timeout: n.Life, IdleTimeout: n.Idle, Regions: c.opt.Regions,
		CPU: c.opt.CPUs, CPULimit: c.opt.CPUs, MemoryMiB: c.opt.Memory, MemoryLimitMiB: c.opt.Memory, BlockNetwork: n.Block,
		Volumes: map[string]*sdk.Volume{},
	}
	if n.CIDRs != nil || n.Domains != nil {
		p.OutboundCIDRAllowlist, p.OutboundDomainAllowlist = &sdk.Allowlist{Entries: n.CIDRs}, &sdk.Allowlist{Entries: n.Domains}
	}
	for _, m := range n.Volumes {
		v := &sdk.Volume{VolumeID: m.ID}
		p.Volumes[m.Path] = v.WithMountOptions(&sdk.VolumeMountOptionsParams{ReadOnly: &m.ReadOnly})
	}
	box, err := c.sdk.Sandboxes.ExperimentalCreate(ctx, app, image, &p)
	if cloud.StatusOf(err) == http.StatusNotFound {
		c.forget()
	}
	if err != nil {
		return "", err
	}
	return box.SandboxID, nil
}

func (c *client) byName(ctx context.Context, name string) (string, error) {
	said, err := c.raw.SandboxGetFromNameV2(ctx, pb.SandboxGetFromNameRequest_builder{
		SandboxName: name, AppName: c.opt.App, EnvironmentName: c.opt.Environment,
	}.Build())
	return said.GetSandboxId(), err
}

func (c *client) tags(ctx context.Context, id string) (map[string]string, error) {
	said, err := c.raw.SandboxTagsGetV2(ctx, pb.SandboxTagsGetRequest_builder{SandboxId: id}.Build())
	return tagsOf(said.GetTags()), err
}

func tagsOf(all []*pb.SandboxTag) map[string]string {
	tags := map[string]string{}
	for _, t := range all {
		tags[t.GetTagName()] = t.GetTagValue()
	}
	return tags
}

func (c *client) running(ctx context.Context, id string) (bool, error) {
	said, err := c.raw.SandboxWaitV2(ctx, pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
	if err != nil {
		return false, err
	}
	return said.GetResult().GetStatus() == pb.GenericResult_GENERIC_STATUS_UNSPECIFIED, nil
}

func (c *client) list(ctx context.Context, tags map[string]string) ([]sandbox, error) {
	app, err := c.ownApp(ctx, false)
	if isNotFound(err) {
		return nil, nil // without an app there are none
	}
	if err != nil {
		return nil, err
	}
	var want []*pb.SandboxTag
	for name, value := range tags {
		want = append(want, pb.SandboxTag_builder{TagName: name, TagValue: value}.Build())
	}
	var all []sandbox
	before := 0.0
	pages := cloud.Pages{Route: "SandboxListV2"}
	for {
		said, err := c.raw.SandboxListV2(ctx, pb.SandboxListRequest_builder{AppId: app.AppID, BeforeTimestamp: before, Tags: want}.Build())
		if cloud.StatusOf(err) == http.StatusNotFound {
			c.forget()
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if err := pages.Read(int64(proto.Size(said))); err != nil {
			return nil, err
		}
		page := said.GetSandboxes()
		if len(page) == 0 {
			return all, nil
		}
		for _, s := range page {
			all = append(all, sandbox{ID: s.GetId(), Created: s.GetCreatedAt(), Tags: tagsOf(s.GetTags())})
		}
		last := page[len(page)-1].GetCreatedAt()
		if before != 0 && last >= before { // it would never end
			return nil, schemas.OpErrorf(schemas.Unavailable, "list", "Modal lists sandboxes in no order")
		}
		before = last
	}
}

// isNotFound reports whether err is a 404 of the service or the vendor client's own not-found error.
func isNotFound(err error) bool {
	_, ok := errors.AsType[sdk.NotFoundError](err)
	return ok || cloud.StatusOf(err) == http.StatusNotFound
}

func (c *client) end(ctx context.Context, id string) error {
	_, err := c.raw.SandboxTerminateV2(ctx, pb.SandboxTerminateRequest_builder{SandboxId: id}.Build())
	return err
}

func (c *client) volume(ctx context.Context, name string) (string, error) {
	c.mu.Lock()
	id := c.known[name]
	c.mu.Unlock()
	if id != "" {
		return id, nil
	}
	v, err := c.sdk.Volumes.FromName(ctx, name, &sdk.VolumeFromNameParams{
		Environment: c.opt.Environment, CreateIfMissing: true, Version: volumeVersion,
	})
	if wrong, ok := errors.AsType[sdk.InvalidError](err); ok {
		return "", schemas.OpErrorf(schemas.Unsupported, "create", "the volume of a workspace on Modal cannot be used: %s", wrong.Exception)
	}
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= mostVolumes {
		c.known = map[string]string{}
	}
	c.known[name] = v.VolumeID
	return v.VolumeID, nil
}

const (
	mostVolumes   = 10_000 // that a worker remembers
	volumeVersion = 2      // of volumes: what was written is kept when "sync" says so
)

// enter requests the address and the credentials of a sandbox's router. Credentials that are refused are requested again.
func (c *client) enter(ctx context.Context, id string) (*router, error) {
	said, err := c.raw.SandboxGetTaskIdV2(ctx, pb.SandboxGetTaskIdRequest_builder{SandboxId: id}.Build())
	switch {
	case err != nil:
		return nil, err
	case said.GetTaskResult() != nil:
		return nil, gone(nil)
	case said.GetTaskId() == "":
		return nil, schemas.OpErrorf(schemas.Unavailable, "run", "the sandbox is not on a machine yet")
	}
	access := func(ctx context.Context) (*pb.SandboxGetCommandRouterAccessResponse, error) {
		return c.raw.SandboxGetCommandRouterAccess(ctx, pb.SandboxGetCommandRouterAccessRequest_builder{SandboxId: &id}.Build())
	}
	first, err := access(ctx)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(first.GetUrl())
	if err != nil || at.Scheme != "https" || at.Hostname() == "" { // the token goes nowhere else
		return nil, schemas.OpErrorf(schemas.Unavailable, "run", "Modal says no address under which the sandbox is reached")
	}
	t := &token{text: first.GetJwt(), got: time.Now(), fetch: func(ctx context.Context) (string, error) {
		again, err := access(ctx)
		return again.GetJwt(), err
	}}
	l := &link{retries: routerTable(), slow: []string{"TaskExecWait"}, log: c.opt.Log,
		sign: func(ctx context.Context, _ string, fresh bool) ([]string, []string, error) {
			text, err := t.get(ctx, fresh)
			return []string{"authorization", "Bearer " + text}, []string{text}, err
		}}
	conn, err := l.dial(at, c.server.Scheme == "http")
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "run", "the machine of the sandbox cannot be reached", err)
	}
	return &router{conn: conn, rpc: pb.NewTaskCommandRouterClient(conn), task: said.GetTaskId(), token: t}, nil
}
