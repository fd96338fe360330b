// Package modal is the provider that runs commands in sandboxes of Modal, or of a service that speaks as Modal does.
//
// # What is spoken
//
// Two services, both gRPC: the control plane makes, finds, lists and ends sandboxes; the router of each sandbox's machine starts
// processes in it. The vendor's client for Go makes the requests and knows their messages; it works over connections of this package,
// which say how long a request may take and which is tried again.
//
// # Sandboxes
//
// A call of a sandbox that is not persistent gets one of its own, which is ended when the call has ended, and by the service at the end of
// its time where the worker has died. A persistent one is kept under a name, which the service gives once among those that run. A sandbox
// that has ended does not come back: what was not in a workspace is gone with it. The service ends a kept one that was unused for
// Options.Idle, and any after a day.
//
// # Commands
//
// A command is started by the program of package boxrun, which waits for a word before it starts anything, ends all that the
// command has started, and says how it ended. What it prints is read from where the last reading has ended: a connection that
// breaks loses nothing, and nothing comes twice.
//
// Workspaces are volumes, one each.
//
// # Rules
//
// The provider modal uses the vendor's client and its generated messages, over connections of its own, behind one interface (vendor).
//
//   - One link (link.go) carries all requests: credentials, a time for each try and for all together, tries by the table of cloud,
//     errors as cloud.Error without secrets. The vendor's client finds no status of gRPC in these and so tries nothing again. It is
//     known whether a request was sent, and whether the service has answered or the connection broke.
//   - From the client: apps, images and their building, volumes, the request of a create. From its messages: lists with tags, names,
//     routers. Its Exec is not used: its input has no deadline.
//   - Commands are run by the program of boxrun. It is started under an id of ours, of which the service starts one; input has its
//     place; outputs are read from the byte where the last reading ended. So all three may be repeated, and where the service kept
//     none of that, a second program would run nothing, for the word to start goes to one.
//   - A create whose answer is lost is looked up by its name. Every sandbox has one, given once among those that run; that of a kept
//     one is a digest of account and key, and settles races.
//   - A kept sandbox is refused where a process cannot have the limit by which the processes of a command are known, which is tried
//     once in each. The kernel of gVisor is such a place, so they ask for a virtual machine.
//   - Clocks are not compared. A token is replaced when it is refused, or ten minutes old by this host's own counting.
//   - Workspaces are volumes, one each. After a command sync is run on it, and unless it is confirmed the call is interrupted: a success
//     whose files are gone is none. Before one in a kept sandbox the volumes are reloaded.
//   - The double (modaltest) is a server of the same messages. It is held to the vendor's client for Go as it is, in every run of the
//     tests, and to that for JavaScript by make long-clouds.
//
// # Considered
//
// Snapshots of a file system before the end, and a start from them: a place for their ids would be needed that all workers see, deaths
// without warning leave none, and what is there would be older than the last call. The client as it is: see above; nor could two
// services be spoken to in one process. The messages alone: the client knows the recipes of images, and the service's rules for a
// create. One volume with folders: whether a folder that is not there yet can be mounted is not known.
package modal

import (
	"cmp"
	"log/slog"
	"regexp"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// What [Options] stand for that say nothing.
const (
	DefaultServerURL = "https://api.modal.com:443"
	DefaultApp       = "sandjet"
	MaxApp           = 30 // characters of an app's name
	DefaultImage     = "debian:12"
	DefaultSandboxes = 20
	DefaultIdle      = 15 * time.Minute
	DefaultStart     = 2 * time.Minute
	DefaultBuild     = 15 * time.Minute
)

// The values of [Options.Runtime].
const (
	RuntimeGVisor = "gvisor"
	RuntimeVM     = "vm"
)

const (
	service    = "Modal"
	endTimeout = 30 * time.Second // of the end of a sandbox, or of what runs in it
	spareTime  = 2 * time.Minute  // that a sandbox lives longer than its command may, at least
	longest    = 24 * time.Hour   // that the service lets a sandbox live
)

// Options are the settings of [Open]. TokenID and TokenSecret must be set.
type Options struct {
	TokenID     string // ak-…: a secret
	TokenSecret string // as-…: a secret
	ServerURL   string // of the control plane; empty: DefaultServerURL
	Environment string // of the workspace at Modal; empty: its own default
	// App is the same for all workers that share sandboxes, and another for others of the same environment: letters, digits, dots,
	// dashes and underscores. Empty: DefaultApp.
	App          string
	Image        string                // of sandboxes: a name in a registry, or the id of an image that is there (im-…); empty: DefaultImage
	Runtime      string                // RuntimeGVisor or RuntimeVM; empty: the service's choice for runs, RuntimeVM for kept sandboxes
	Regions      []string              // where sandboxes run; empty: the service's choice
	CPUs         float64               // of each sandbox, wanted and allowed; 0: the service's own
	Memory       int                   // MiB, as CPUs
	Networks     []schemas.NetworkMode // that the operator allows; empty: deny-all alone
	Sandboxes    int                   // that run at a time, all workers' together; 0: DefaultSandboxes
	Idle         time.Duration         // after which the service ends an unused kept sandbox; 0: DefaultIdle
	Start        time.Duration         // that a sandbox may take to be made; 0: DefaultStart
	Build        time.Duration         // that the image may take to be built, once; 0: DefaultBuild
	NoWorkspaces bool                  // volumes are not used
	Log          *slog.Logger          // nil: nothing is logged
}

var appPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,29}$`)

// Provider runs commands in sandboxes. Its methods are safe for concurrent use.
type Provider struct {
	opt    Options
	log    *slog.Logger
	modal  vendor
	cancel func() // of the connections

	room   *cloud.Room
	work   inflight.Work
	marks  cloud.Known // ids of kept sandboxes in which the processes of a command are known by their mark
	making inflight.Locks
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// filled returns the options with defaults for zero values.
func (o Options) filled() Options {
	o.ServerURL, o.App, o.Image = cmp.Or(o.ServerURL, DefaultServerURL), cmp.Or(o.App, DefaultApp), cmp.Or(o.Image, DefaultImage)
	o.Sandboxes, o.Idle = cmp.Or(o.Sandboxes, DefaultSandboxes), cmp.Or(o.Idle, DefaultIdle)
	o.Start, o.Build = cmp.Or(o.Start, DefaultStart), cmp.Or(o.Build, DefaultBuild)
	if len(o.Networks) == 0 {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// check reports the first setting that is out of range. Code: invalid.
func (o Options) check() error {
	const leastMemory = 128
	switch {
	case o.TokenID == "" || o.TokenSecret == "":
		return schemas.Invalidf("modal-token-id", "and modal-token-secret are needed: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET")
	case !appPattern.MatchString(o.App):
		return schemas.Invalidf("modal-app", "%q: use up to 30 letters, digits, dots, dashes and underscores", schemas.Quotable(o.App))
	case !cloud.IsImage(o.Image):
		return schemas.Invalidf("modal-image", "%q is not an image name", schemas.Quotable(o.Image))
	case o.Runtime != "" && o.Runtime != RuntimeGVisor && o.Runtime != RuntimeVM:
		return schemas.Invalidf("modal-runtime", "%q is unknown: use gvisor or vm", schemas.Quotable(o.Runtime))
	case o.CPUs < 0 || o.CPUs > 64 || o.CPUs > 0 && o.CPUs < 0.125:
		return schemas.Invalidf("modal-cpus", "%v is out of range: 0.125 to 64", o.CPUs)
	case o.Memory < 0 || o.Memory > 0 && o.Memory < leastMemory || o.Memory > schemas.MaxMemoryLimit:
		return schemas.Invalidf("modal-memory", "%d is out of range: %d to %d MiB", o.Memory, leastMemory, schemas.MaxMemoryLimit)
	case o.Sandboxes < 0:
		return schemas.Invalidf("modal-sandboxes", "%d is out of range: at least 1", o.Sandboxes)
	case o.Idle < time.Minute || o.Idle > longest:
		return schemas.Invalidf("modal-idle", "%s is out of range: 1m to 24h", o.Idle)
	case o.Start < 0 || o.Start > time.Hour:
		return schemas.Invalidf("modal-start", "%s is out of range: up to 1h", o.Start)
	case o.Build < 0 || o.Build > time.Hour:
		return schemas.Invalidf("modal-build", "%s is out of range: up to 1h", o.Build)
	}
	return nil
}

// Open checks the options and returns a provider. It sends no request to the service: see [Diagnose]. The caller closes the provider.
// Code: invalid.
func Open(o Options) (*Provider, error) {
	o = o.filled()
	if err := o.check(); err != nil {
		return nil, err
	}
	v, stop, err := connect(o)
	if err != nil {
		return nil, err
	}
	p := &Provider{opt: o, log: o.Log, modal: v, cancel: stop}
	p.room = &cloud.Room{Most: o.Sandboxes, Service: service, Flag: "--modal-sandboxes", List: p.running}
	return p, nil
}

// Close waits until the sandboxes of ended runs are ended. Persistent ones stay.
func (p *Provider) Close() error {
	p.work.Close()
	p.cancel()
	return nil
}
