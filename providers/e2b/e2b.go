// Package e2b is the provider that runs commands in sandboxes of E2B, or of a service that speaks as E2B does.
//
// # What is spoken
//
// Two services: the control plane, plain JSON over HTTP, makes, finds, wakes, pauses and ends sandboxes; the daemon in each
// sandbox, envd, starts processes, by Connect with JSON. Both are spoken by hand over package cloud, for there is no client of
// the vendor's in Go.
//
// # Sandboxes
//
// A call of a sandbox that is not persistent gets one of its own, which is killed when the call has ended, and by the service at the end of
// its time where the worker has died. A persistent one is kept: found again by its metadata, paused by the service when it was unused for
// Options.Idle, and woken by the next reservation with its processes where they were.
//
// # Commands
//
// A command is started by the program of package boxrun, which waits for a word before it starts anything, ends all that
// the command has started, and says how it ended: neither a closed connection nor the end of a stream says that here. Its limit
// ends it when the worker has died.
//
// Workspaces are volumes of the team, one each.
//
// # Rules
//
// The provider e2b speaks both by hand, over providers/internal/cloud.
//
//   - Commands are run by the program of boxrun, as in containers: it starts nothing before the word go, ends all that the command has
//     started on a word or when its input ends, and says how the command ended. The daemon's word on the end of a process is not needed. A
//     stream that breaks is not attached to again, because what was printed meanwhile is lost: the command is ended, and is interrupted.
//   - What may have been started is not started again. Start and input have no row in the table of retries. Before go an error says
//     unavailable: a program that waits in vain has nothing to run, and ends. After go it says interrupted.
//   - A create whose answer is lost is looked up by a random number in the sandbox's metadata.
//   - A kept sandbox is found by a digest of account and key in its metadata. Who makes one lists until its own is there; of several
//     that were made at once one is chosen. The number of the create is the epoch; pausing keeps memory and processes, and so the
//     epoch.
//   - Time: a kept sandbox has --e2b-idle from each use, then the service pauses it. Time is set by connect, which only ever extends;
//     timeout could shorten what another call has asked for. A sandbox of one call ends, without a worker, two minutes after its
//     command must have ended.
//   - Workspaces are volumes, one each. Read-only is a mount of the kernel, which root of the sandbox can undo.
//   - Networks: deny-all is the service's switch; restricted denies 0.0.0.0/0 and allows the list, which wins. A list of denials in an
//     allowed range cannot be kept, and is refused.
//   - The double (e2btest) keeps state, runs commands in namespaces, and is held to the vendor's own client for JavaScript by make
//     long-clouds.
//
// # Considered
//
// The daemon's end event alone: a process in the background that holds the outputs keeps it from coming, and nothing ends what left the
// group. Attaching again: it would show output with a hole. A claim in the log: a provider does not know that there is a log.
package e2b

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// What [Options] stand for that say nothing.
const (
	DefaultDomain       = "e2b.app"
	DefaultTemplate     = "base"
	DefaultInstallation = "sandjet"
	MaxInstallation     = 40 // characters of an installation's name
	DefaultSandboxes    = 20
	DefaultIdle         = 15 * time.Minute
	defaultStart        = time.Minute
)

const (
	service    = "E2B"
	endTimeout = 30 * time.Second // of the end of a sandbox, or of what runs in it
	pingEvery  = 10 * time.Second // a stream has a message at least so often
	silence    = 4 * pingEvery    // of a stream that is dead
	spareTime  = 2 * time.Minute  // that a sandbox lives longer than its command may, at least
)

// Options are the settings of [Open]. Key is required.
type Options struct {
	Key        string // the API key: a secret
	Domain     string // of the service; empty: DefaultDomain
	APIURL     string // of the control plane; empty: https://api.<Domain>
	SandboxURL string // of all sandboxes, which a router distinguishes by a header; empty: as the service says
	Template   string // of sandboxes: its id or name; empty: DefaultTemplate
	// Installation is the same for all workers that share sandboxes, and another for others of the same team: letters, digits,
	// dots and dashes. Empty: DefaultInstallation.
	Installation string
	Networks     []schemas.NetworkMode // that the operator allows; empty: deny-all alone
	Sandboxes    int                   // that run at a time, all workers' together; 0: DefaultSandboxes
	Idle         time.Duration         // after which an unused kept sandbox is paused; 0: DefaultIdle
	Start        time.Duration         // that a sandbox may take to be made; 0: a minute
	NoWorkspaces bool                  // the team has no volumes
	HTTP         *http.Client          // nil: one of its own
	Log          *slog.Logger          // nil: nothing is logged
}

var (
	keyPattern          = regexp.MustCompile(`^e2b_[0-9a-f]+$`)
	installationPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,39}$`)
)

// Provider runs commands in sandboxes. Its methods are safe for concurrent use.
type Provider struct {
	*sandboxes

	chosen cloud.Known // ids of kept sandboxes that are those of their keys
	making inflight.Locks
}

// sandboxes makes and ends sandboxes, and counts those that run.
type sandboxes struct {
	*api

	workspaces *workspaces
	room       *cloud.Room
	work       inflight.Work
}

// workspaces makes the volumes of workspaces, and mounts them in sandboxes.
type workspaces struct {
	*api

	volumes   cloud.Known // that are there
	furnished cloud.Known // births of sandboxes whose workspace is prepared
}

// api gives access to the service, and holds the settings.
type api struct {
	opt     Options
	log     *slog.Logger
	control *cloud.Client
	boxes   *url.URL // of all sandboxes; nil: each has its own
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Pauser   = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// table returns which requests are retried. Requests that make a sandbox or start a process are not: their outcome is looked up instead.
func table() []cloud.Retry {
	busy := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
	return []cloud.Retry{
		{Route: "GET *", On: busy, Lost: true},
		{Route: "DELETE /sandboxes/{id}", On: busy, Lost: true},
		{Route: "POST /sandboxes/{id}/connect", On: append(busy, http.StatusConflict), Lost: true},
		{Route: "POST /sandboxes/{id}/pause", On: busy, Lost: true},
		{Route: "POST /volumes", On: []int{http.StatusTooManyRequests}, Unsent: true},
		{Route: "POST /sandboxes", On: []int{http.StatusServiceUnavailable}, Unsent: true}, // no node has room for it
	}
}

// Open checks the options and returns a provider. It sends no request to the service: see [Diagnose]. The caller closes the provider.
// Code: invalid.
func Open(o Options) (*Provider, error) {
	o.Domain, o.Template = cmp.Or(o.Domain, DefaultDomain), cmp.Or(o.Template, DefaultTemplate)
	o.Installation, o.Sandboxes = cmp.Or(o.Installation, DefaultInstallation), cmp.Or(o.Sandboxes, DefaultSandboxes)
	o.Idle, o.Start = cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.Start, defaultStart)
	if len(o.Networks) == 0 {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	switch {
	case o.Key == "":
		return nil, schemas.Invalidf("e2b-api-key", "is missing: set E2B_API_KEY, or --e2b-api-key")
	case !keyPattern.MatchString(o.Key):
		return nil, schemas.Invalidf("e2b-api-key", "is not a key of E2B: they are e2b_ and hexadecimal digits")
	case !installationPattern.MatchString(o.Installation):
		return nil, schemas.Invalidf("e2b-installation", "%q: use up to 40 letters, digits, dots and dashes", schemas.Quotable(o.Installation))
	case o.Sandboxes < 0:
		return nil, schemas.Invalidf("e2b-sandboxes", "%d is out of range: at least 1", o.Sandboxes)
	case o.Idle < time.Minute || o.Idle > 24*time.Hour:
		return nil, schemas.Invalidf("e2b-idle", "%s is out of range: 1m to 24h", o.Idle)
	}
	base, err := cloud.ParseBase("e2b-api-url", cmp.Or(o.APIURL, "https://api."+o.Domain))
	if err != nil {
		return nil, err
	}
	a := &api{opt: o, log: o.Log}
	p := &Provider{sandboxes: &sandboxes{api: a, workspaces: &workspaces{api: a}}}
	p.room = &cloud.Room{Most: o.Sandboxes, Service: service, Flag: "--e2b-sandboxes", List: p.running}
	if o.SandboxURL != "" {
		if p.boxes, err = cloud.ParseBase("e2b-sandbox-url", o.SandboxURL); err != nil {
			return nil, err
		}
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.opt.HTTP == nil {
		transport := &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true,
		}
		p.opt.HTTP = &http.Client{Transport: transport}
	}
	p.control = &cloud.Client{
		Base: base, Auth: http.Header{"X-Api-Key": {o.Key}}, Header: http.Header{"User-Agent": {"sandjet"}}, Retries: table(),
		HTTP: p.opt.HTTP, Log: p.log,
	}
	return p, nil
}

// Close waits until the sandboxes of ended runs are killed. Persistent ones stay.
func (p *Provider) Close() error {
	p.work.Close()
	p.opt.HTTP.CloseIdleConnections()
	return nil
}

// hostOf returns the URL at which a sandbox is reached.
func (p *api) hostOf(id, domain string) *url.URL {
	domain = cmp.Or(domain, p.opt.Domain)
	switch {
	case p.boxes != nil:
		return p.boxes
	case slices.Contains([]string{"e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"}, strings.ToLower(domain)): // the vendor's have a router
		return &url.URL{Scheme: "https", Host: "sandbox." + domain}
	default:
		return &url.URL{Scheme: "https", Host: daemonPort + "-" + id + "." + domain}
	}
}
