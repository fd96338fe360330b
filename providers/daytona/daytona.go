// Package daytona is the provider that runs commands in sandboxes of Daytona, or of a service that speaks as Daytona does.
//
// # What is spoken
//
// Two services: the control plane makes, finds, starts, stops and ends sandboxes; the toolbox of each sandbox, behind a proxy, runs
// short commands and takes files. Both are JSON over HTTP and spoken by hand over package cloud.
//
// # Sandboxes
//
// A call of a sandbox that is not persistent gets one of its own, which is deleted when the call has ended, and by the service some minutes
// after the last word of a worker that has died. A persistent one is kept under a name, which the service gives once: it is stopped when it
// was unused for Options.Idle, and started by the next reservation with its files.
//
// # Commands
//
// A command is started by the program of package boxrun, which waits for a word before it starts anything, ends all that
// the command has started, and says how it ended. The toolbox has no stream that carries bytes as they are: what the program
// prints is kept in the sandbox in numbered pieces until the worker has them, so that a connection that breaks loses nothing
// and no piece comes twice.
//
// Workspaces are folders of one volume.
//
// # Rules
//
// The provider daytona speaks both by hand, over providers/internal/cloud.
//
//   - Commands are run by the program of boxrun, as in containers and on E2B. A short command of the toolbox starts it, away from the
//     toolbox; its input is a file and a pipe of the sandbox. Short commands say their exit codes themselves, for toolboxes have more
//     than one way to.
//   - Output is kept in the sandbox in numbered pieces of 64 KiB, at most eight of each stream: a program that prints more waits. A fetch
//     waits for pieces up to ten seconds, and the next one says which have arrived. So it may be repeated whenever the connection broke,
//     nothing is lost and nothing comes twice; bytes are what they were, each stream is itself. It is also what keeps the sandbox from
//     being idle.
//   - What may have been started is not started again. The start of the program and words to it have no row in the table of retries. Before
//     go an error says unavailable; after go it says interrupted, unless the program has said how the command ended.
//   - A create whose answer is lost is looked up by a random number in the sandbox's labels.
//   - A kept sandbox has the name of a digest of account and key. Of workers that make it at once one does, and the others find it.
//     Its epoch is the number of the create and what the sandbox itself knows of its start: the kernel's boot, the first process's
//     time, the namespace. The start of a program compares it, so that no command runs in another start than it was meant for. It is
//     noted in the labels for lists.
//   - Time: a kept sandbox is stopped after --daytona-idle without a word to it, and deleted 31 days after that, longer than any
//     record lives. One of a run alone is stopped, and deleted with that, five minutes after the last fetch of a worker that has died.
//   - Workspaces are folders of one volume, because an organization has few. A sandbox sees its own only. Read-only is a mount of the
//     kernel, for which the user becomes root.
//   - Networks: deny-all is the service's switch; restricted its list of ranges. What the answer to a create says is compared with
//     what was asked for: an organization that may not set networks gets unsupported and no sandbox. Names are refused, or left out of
//     the list where the operator says so: the service's own list of them is known for web ports only.
//   - The key goes to the proxy that the service names, and only by https where the service itself is reached so.
//   - Shared with E2B: carry (from a started program to a result), names and locks in cloud, and for the doubles servicetest
//     (sandboxes of namespaces, faults), which were E2B's before. The double (daytonatest) is held to the vendor's own client for
//     JavaScript by make long-clouds.
//
// # Considered
//
// Sessions and their stream of logs: text only, and a stream that breaks has to be read again from its start. A pseudo-terminal over a
// WebSocket: one stream for both outputs, and no word on what arrived. Output in whole files: no bound on the sandbox's disk, and
// nothing slows a command down that prints without end.
package daytona

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// What [Options] stand for that say nothing.
const (
	DefaultAPIURL       = "https://app.daytona.io/api"
	DefaultUser         = "daytona"
	DefaultInstallation = "sandjet"
	MaxInstallation     = 40 // characters of an installation's name
	DefaultSandboxes    = 20
	DefaultIdle         = 15 * time.Minute
	DefaultStart        = 2 * time.Minute
)

const (
	service    = "Daytona"
	spoken     = "0.205.1"           // the description of the API that this package was written by
	endTimeout = 30 * time.Second    // of the end of a sandbox, or of what runs in it
	aloneRun   = 5 * time.Minute     // after which the service ends the sandbox of a run whose worker says nothing
	keptFor    = 31 * 24 * time.Hour // that an unused stopped sandbox stays: longer than any record lets it live
)

// Options are the settings of [Open]. Key is required.
type Options struct {
	Key          string // the API key: a secret
	APIURL       string // of the control plane; empty: DefaultAPIURL
	Organization string // its id, which a JWT needs in place of a key; empty: the key's own
	Target       string // the region; empty: the organization's
	Snapshot     string // of sandboxes: its name or id; empty: the service's own
	Image        string // of sandboxes in place of a snapshot: the service builds one of it, which the first time takes minutes
	User         string // of sandboxes: root, or one with a home in /home; empty: DefaultUser
	// Installation is the same for all workers that share sandboxes, and another for others of the same organization: letters,
	// digits and dashes. Empty: DefaultInstallation.
	Installation string
	Networks     []schemas.NetworkMode // that the operator allows; empty: deny-all alone
	Sandboxes    int                   // that run at a time, all workers' together; 0: DefaultSandboxes
	Idle         time.Duration         // after which an unused kept sandbox is stopped, in minutes; 0: DefaultIdle
	Start        time.Duration         // that a sandbox may take to be made or started; 0: DefaultStart
	NoWorkspaces bool                  // volumes are not used
	// DropDomains lets restricted networks name domains, though sandboxes cannot be kept to them: they are left out of the list, so what they
	// name cannot be reached, and results say so. False: such sandboxes are refused.
	DropDomains bool
	HTTP        *http.Client // nil: one of its own
	Log         *slog.Logger // nil: nothing is logged
}

var (
	installationPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,39}$`)
	userPattern         = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
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

	furnished cloud.Known // epochs of sandboxes whose workspace is prepared
	volumes   volumes
}

// api gives access to the service, and holds the settings.
type api struct {
	opt     Options
	log     *slog.Logger
	control *cloud.Client
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Pauser   = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// busy returns the statuses after which a request is retried.
func busy() []int {
	return []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
}

// table returns which requests to the control plane are retried. Requests that make a sandbox are not retried after a broken connection:
// their outcome is looked up instead.
func table() []cloud.Retry {
	return []cloud.Retry{
		{Route: "GET *", On: busy(), Lost: true},
		{Route: "DELETE /sandbox/{id}", On: busy(), Lost: true},
		{Route: "POST /sandbox/{id}/start", On: busy(), Lost: true},
		{Route: "POST /sandbox/{id}/stop", On: busy(), Lost: true},
		{Route: "PUT /sandbox/{id}/labels", On: busy(), Lost: true},
		{Route: "POST /volumes", On: []int{http.StatusTooManyRequests}, Unsent: true},
		{Route: "POST /sandbox", On: []int{http.StatusServiceUnavailable}, Unsent: true},
	}
}

// Open checks the options and returns a provider. It sends no request to the service: see [Diagnose]. The caller closes the provider.
// Code: invalid.
func Open(o Options) (*Provider, error) {
	o.APIURL, o.User = cmp.Or(o.APIURL, DefaultAPIURL), cmp.Or(o.User, DefaultUser)
	o.Installation, o.Sandboxes = cmp.Or(o.Installation, DefaultInstallation), cmp.Or(o.Sandboxes, DefaultSandboxes)
	o.Idle, o.Start = cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.Start, DefaultStart)
	if len(o.Networks) == 0 {
		o.Networks = []schemas.NetworkMode{schemas.DenyAll}
	}
	switch {
	case o.Key == "":
		return nil, schemas.Invalidf("daytona-api-key", "is missing: set DAYTONA_API_KEY, or --daytona-api-key")
	case !installationPattern.MatchString(o.Installation):
		return nil, schemas.Invalidf("daytona-installation", "%q: use up to 40 letters, digits and dashes", schemas.Quotable(o.Installation))
	case !userPattern.MatchString(o.User):
		return nil, schemas.Invalidf("daytona-user", "%q is not a user name", schemas.Quotable(o.User))
	case o.Image != "" && o.Snapshot != "":
		return nil, schemas.Invalidf("daytona-image", "and daytona-snapshot exclude each other: name one")
	case o.Image != "" && !cloud.IsImage(o.Image):
		return nil, schemas.Invalidf("daytona-image", "%q is not an image name", schemas.Quotable(o.Image))
	case o.Sandboxes < 0:
		return nil, schemas.Invalidf("daytona-sandboxes", "%d is out of range: at least 1", o.Sandboxes)
	case o.Idle < 5*time.Minute || o.Idle > 24*time.Hour:
		return nil, schemas.Invalidf("daytona-idle", "%s is out of range: 5m to 24h", o.Idle)
	case o.Start < 0 || o.Start > time.Hour:
		return nil, schemas.Invalidf("daytona-start", "%s is out of range: up to 1h", o.Start)
	}
	base, err := cloud.ParseBase("daytona-api-url", o.APIURL)
	if err != nil {
		return nil, err
	}
	a := &api{opt: o, log: o.Log}
	p := &Provider{sandboxes: &sandboxes{api: a, workspaces: &workspaces{api: a}}}
	p.room = &cloud.Room{Most: o.Sandboxes, Service: service, Flag: "--daytona-sandboxes", List: p.running}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.opt.HTTP == nil {
		p.opt.HTTP = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true,
		}}
	}
	p.control = p.client(base, table())
	return p, nil
}

// client returns a client for the control plane or a sandbox; both accept the same key.
func (p *api) client(base *url.URL, retries []cloud.Retry) *cloud.Client {
	header := http.Header{"User-Agent": {"sandjet"}, "X-Daytona-Source": {"sandjet"}, "X-Daytona-Sdk-Version": {spoken}}
	if p.opt.Organization != "" {
		header.Set("X-Daytona-Organization-Id", p.opt.Organization)
	}
	return &cloud.Client{
		Base: base, Auth: http.Header{"Authorization": {"Bearer " + p.opt.Key}}, Header: header, Retries: retries, HTTP: p.opt.HTTP, Log: p.log,
	}
}

// Close waits until the sandboxes of ended runs are deleted. Persistent ones stay.
func (p *Provider) Close() error {
	p.work.Close()
	p.opt.HTTP.CloseIdleConnections()
	return nil
}

// home returns the home directory of the user of sandboxes.
func (p *api) home() string {
	if p.opt.User == "root" {
		return "/root"
	}
	return "/home/" + p.opt.User
}
