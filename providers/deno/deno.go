// Package deno is the provider that runs commands in sandboxes of Deno Deploy (Deno Sandbox), or of a service that speaks as it does.
//
// # What is spoken
//
// Two services: the console's API lists sandboxes and makes volumes, plain JSON over HTTP; the API of sandboxes makes one by opening a
// WebSocket, over which JSON-RPC starts processes in it and writes files. Both are spoken by hand over package cloud, for there is no
// client of the vendor's in Go.
//
// # Sandboxes
//
// A call of a sandbox that is not persistent gets one of its own, which is killed when the call has ended, and by the service at
// the end of its time where the worker has died. A persistent one is kept: found again by its labels, for half an hour from each
// use. The service has no pause: then it ends, and what is not in a workspace ends with it.
//
// # Commands
//
// A command is started by the program of package boxrun, which waits for a word before it starts anything, ends all that the command has
// started, and says how it ended. What it prints is kept in the sandbox until the worker has it (package spool): a connection that breaks
// is made again, and the command continues meanwhile.
//
// Workspaces are volumes, one each, which are in one sandbox at a time.
//
// # Rules
//
// The provider deno speaks both by hand, over providers/internal/cloud, which opens WebSockets now as it sends requests: with the same
// table of retries, and without secrets in errors. The library is gorilla/websocket, which is here already.
//
//   - Nothing of a command depends on a connection. What Daytona needed for want of a stream is a package of its own now,
//     providers/internal/spool: short commands start the program of boxrun, write its input, and fetch what it has printed in numbered
//     pieces. On Deno each is a spawn, its streams and its end. A connection that breaks is made again, and requests are repeated if they
//     may be.
//   - Input is taken once. Each part of it leaves a mark in the sandbox before it is written, so that the word to start may be sent again
//     if it is unknown whether it arrived. Starting the program itself is never tried again: a program that waits in vain is ended by its
//     name, which its starter has chosen.
//   - A create whose answer is lost is looked up by a random number in the labels.
//   - A kept sandbox is found by a digest of account and key in its labels. Of several that were made at once one is chosen, as on
//     E2B. The number of the create is the epoch. There is no disk that outlives it: root volumes would be one, but nothing lists what
//     belongs to whom when no sandbox runs, for volumes have no labels.
//   - Time is said in the service's clock, which its answers show in Date. A kept sandbox has half an hour from each use, always the
//     same, so that no use shortens what another has asked for. What is granted is read, and a run that may take longer is not
//     started.
//   - Workspaces are volumes. That one is in one sandbox at a time is a fact of the profile, exclusive_workspaces: calls of others
//     wait. The suite of providers asks for sharing only where the profile does not say so.
//   - Networks: an empty list of hosts denies all, no list allows all. A name without a port opens 80 and 443, as elsewhere here, and
//     not all. Ranges are refused.
//   - Variables that are bound to hosts are the service's secrets. What stands for them is read in the sandbox, and given to commands
//     in place of the values; a digest of the values is a rule of a kept sandbox.
//   - The double (denotest) keeps state, runs commands in namespaces, and is held to the vendor's own client for JavaScript by make
//     long-clouds. That asks for Node.js 24 and runs on 20, since it brings its own WebSocket (ws) and nothing is written with await
//     using.
//
// # Considered
//
// One process with streams for its life: less to send, but a connection that breaks would lose what is printed meanwhile, and one that is
// read slowly holds up its own pings. processWait from a second connection: it is not documented to work. Sandboxes that end with the
// connection that made them: nothing would be left of a dead worker, and a connection that breaks would end a command. The client for
// JavaScript in a process beside the worker: a runtime to ship, and it tries things again by itself.
package deno

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// What [Options] stand for that say nothing.
const (
	DefaultAPIURL       = "https://console.deno.com"
	DefaultDomain       = "sandbox-api.deno.net"
	DefaultRegion       = "ord"
	DefaultMemory       = 1280 // MiB
	DefaultInstallation = "sandjet"
	MaxInstallation     = 40 // characters of an installation's name
	DefaultSandboxes    = 20
	DefaultStart        = time.Minute
	DefaultVolume       = 1 << 30 // bytes
)

// What the service allows.
const (
	leastMemory, mostMemory = 768, 4096 // MiB
	leastToken, mostToken   = 8, 1000   // characters
	mostHost                = 251       // characters, without a port
	leastVolume, mostVolume = 300_000_000, 20 << 30
	mostLife                = 30 * time.Minute // that the end of a sandbox's time is put off at a time
	mostLabel               = 128              // bytes
	mostConfig              = 8 << 10          // bytes of the header that makes a sandbox: more is no service's promise
)

const (
	service    = "Deno"
	endTimeout = 30 * time.Second // of the end of a sandbox, or of what runs in it
	killEach   = 10 * time.Second // of one try of that: the vendor says that it hangs at times
	spareTime  = 2 * time.Minute  // that a sandbox lives longer than its command may, at least
)

// Options are the settings of [Open]. Token must be set.
type Options struct {
	Token        string // a secret: one of an organization (ddo_…), or of a person
	Organization string // its slug, which a person's token needs
	APIURL       string // of the console; empty: DefaultAPIURL
	SandboxURL   string // of all sandboxes; empty: https://<region>.<Domain>
	Domain       string // empty: DefaultDomain
	Region       string // where sandboxes and volumes are made: ord or ams; empty: DefaultRegion
	Root         string // a bootable snapshot that is the root of sandboxes: its slug or id; empty: the service's own image
	Memory       int    // MiB of a sandbox; 0: DefaultMemory
	// Installation is the same for all workers that share sandboxes, and another for others of the same organization: letters,
	// digits, dots and dashes. Empty: DefaultInstallation.
	Installation string
	Networks     []schemas.NetworkMode // that the operator allows; empty: deny-all alone
	Sandboxes    int                   // that run at a time, all workers' together; 0: DefaultSandboxes
	Start        time.Duration         // that a sandbox may take to be made; 0: DefaultStart
	Volume       int64                 // bytes of the volume of a new workspace; 0: DefaultVolume
	NoWorkspaces bool                  // the organization has no volumes
	HTTP         *http.Client          // nil: one of its own
	Log          *slog.Logger          // nil: nothing is logged
}

var (
	tokenPattern        = regexp.MustCompile(`^[!-~]+$`)
	regionPattern       = regexp.MustCompile(`^[a-z]{2,16}$`)
	installationPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,39}$`)
	domainPattern       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?$`)
	slugPattern         = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	sandboxPattern      = regexp.MustCompile(`^sbx_([a-z]{2,16})_[A-Za-z0-9]{1,64}$`)
)

// Provider runs commands in sandboxes. Its methods are safe for concurrent use.
type Provider struct {
	*sandboxes

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

	volumes cloud.Known // that are there
	places  places
}

// api gives access to the service, and holds the settings.
type api struct {
	opt     Options
	log     *slog.Logger
	console *cloud.Client
	sandbox *url.URL     // of all sandboxes; nil: each region has its own
	ahead   atomic.Int64 // nanoseconds that the service's clock is before this host's
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// busy returns the statuses after which a request is retried.
func busy() []int {
	return []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
}

// table returns which requests are retried. Requests that make a sandbox are not retried after a broken connection: their outcome is
// looked up instead. Connecting to a sandbox has no effect on it and is retried.
func table() []cloud.Retry {
	return []cloud.Retry{
		{Route: "GET " + routeCreate, On: []int{http.StatusServiceUnavailable}, Unsent: true},
		{Route: "GET *", On: busy(), Lost: true},
		{Route: "PATCH *", On: busy(), Lost: true},
		{Route: "DELETE *", On: busy(), Lost: true},
		{Route: "POST /api/v2/volumes", On: []int{http.StatusTooManyRequests}, Unsent: true},
	}
}

// Open checks the options and returns a provider. It sends no request to the service: see [Diagnose]. The caller closes the provider.
// Code: invalid.
func Open(o Options) (*Provider, error) {
	o.Domain, o.Region, o.Memory = cmp.Or(o.Domain, DefaultDomain), cmp.Or(o.Region, DefaultRegion), cmp.Or(o.Memory, DefaultMemory)
	o.Installation, o.Sandboxes = cmp.Or(o.Installation, DefaultInstallation), cmp.Or(o.Sandboxes, DefaultSandboxes)
	o.Start, o.Volume = cmp.Or(o.Start, DefaultStart), cmp.Or(o.Volume, DefaultVolume)
	if len(o.Networks) == 0 {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	host, _, _ := strings.Cut(o.Domain, ":")
	switch {
	case o.Token == "":
		return nil, schemas.Invalidf("deno-token", "is missing: set DENO_DEPLOY_TOKEN, or --deno-token")
	case len(o.Token) < leastToken || len(o.Token) > mostToken || !tokenPattern.MatchString(o.Token):
		return nil, schemas.Invalidf("deno-token", "is not a token: it has at least 8 printable characters")
	case !strings.HasPrefix(o.Token, "ddo_") && o.Organization == "":
		return nil, schemas.Invalidf("deno-organization",
			"is missing: a token that is not an organization's own (ddo_…) needs DENO_DEPLOY_ORG, or --deno-organization")
	case !regionPattern.MatchString(o.Region):
		return nil, schemas.Invalidf("deno-region", "%q is not a region such as ord or ams", schemas.Quotable(o.Region))
	case len(host) > mostHost || !domainPattern.MatchString(o.Domain):
		return nil, schemas.Invalidf("deno-domain", "%q is not a host name: see DENO_SANDBOX_BASE_DOMAIN", schemas.Quotable(o.Domain))
	case o.Root != "" && !slugPattern.MatchString(o.Root):
		return nil, schemas.Invalidf("deno-root", "%q is not the slug or id of a snapshot", schemas.Quotable(o.Root))
	case o.Memory < leastMemory || o.Memory > mostMemory:
		return nil, schemas.Invalidf("deno-memory", "%d is out of range: %d to %d MiB", o.Memory, leastMemory, mostMemory)
	case !installationPattern.MatchString(o.Installation):
		return nil, schemas.Invalidf("deno-installation", "%q: use up to 40 letters, digits, dots and dashes", schemas.Quotable(o.Installation))
	case o.Sandboxes < 0:
		return nil, schemas.Invalidf("deno-sandboxes", "%d is out of range: at least 1", o.Sandboxes)
	case o.Start < 0 || o.Start > 10*time.Minute:
		return nil, schemas.Invalidf("deno-start", "%s is out of range: up to 10m", o.Start)
	case o.Volume < leastVolume || o.Volume > mostVolume:
		return nil, schemas.Invalidf("deno-volume-size", "%d is out of range: 300 MB to 20 GiB", o.Volume)
	}
	base, err := cloud.ParseBase("deno-api-url", cmp.Or(o.APIURL, DefaultAPIURL))
	if err != nil {
		return nil, err
	}
	a := &api{opt: o, log: o.Log}
	p := &Provider{sandboxes: &sandboxes{api: a, workspaces: &workspaces{api: a}}}
	p.room = &cloud.Room{Most: o.Sandboxes, Service: service, Flag: "--deno-sandboxes", List: p.running}
	if o.SandboxURL != "" {
		if p.sandbox, err = cloud.ParseBase("deno-sandbox-url", o.SandboxURL); err != nil {
			return nil, err
		}
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.opt.HTTP == nil {
		dial := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}
		p.opt.HTTP = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true,
		}}
	}
	p.console = p.client(base)
	return p, nil
}

// client returns a client for the console or the sandboxes; both accept the same token.
func (p *api) client(base *url.URL) *cloud.Client {
	header := http.Header{"User-Agent": {"sandjet"}}
	if p.opt.Organization != "" {
		header.Set("X-Deno-Org", p.opt.Organization)
	}
	return &cloud.Client{
		Base: base, Auth: http.Header{"Authorization": {"Bearer " + p.opt.Token}}, Header: header, Retries: table(), HTTP: p.opt.HTTP, Log: p.log,
	}
}

// at returns the client for the sandboxes of a region.
func (p *api) at(region string) *cloud.Client {
	if p.sandbox != nil {
		return p.client(p.sandbox)
	}
	return p.client(&url.URL{Scheme: "https", Host: region + "." + p.opt.Domain})
}

// Close waits until the sandboxes of ended runs are killed. Persistent ones stay.
func (p *Provider) Close() error {
	p.work.Close()
	p.opt.HTTP.CloseIdleConnections()
	return nil
}
