// Package vercel is the provider that runs commands in sandboxes of Vercel, or of a service that speaks as Vercel Sandbox does.
//
// # What is spoken
//
// One service, JSON over HTTP, spoken by hand over package cloud. A sandbox has a name, which a project gives once; a run of its
// virtual machine is a session, with an id of its own, and whatever is done in a sandbox is asked of its session.
//
// # Sandboxes
//
// A call of a sandbox that is not persistent gets one of its own, which is deleted when the call has ended, and stopped by the service at
// the end of its time where the worker has died. A persistent one is kept under a name: its session ends when it was unused for
// Options.Idle, which saves its files, and the next reservation resumes it in another session.
//
// # Commands
//
// A command is started by the program of package boxrun, which waits for a word before it starts anything, ends all that the command has
// started, and says how it ended. The program is a detached command of the service, whose log is followed: it is text and begins at its
// start with each request, so that what the program prints comes in numbered pieces of base64, and a connection that breaks loses nothing
// and doubles nothing.
//
// Workspaces are drives of the project, one each.
//
// # Rules
//
// The provider vercel speaks to it by hand, over providers/internal/cloud, which learned streams of lines.
//
//   - Commands are run by the program of boxrun, as in containers and on E2B. It is a detached command of the service; its input is a
//     file, written by the service's own way for files, and a pipe of the sandbox. So neither script nor variables nor input are in
//     what the service keeps of a command. Words to it are short commands.
//   - Output comes by the command's log as numbered pieces in base64. A log that breaks is followed again from its beginning, and what came
//     before is left out: nothing is lost, nothing comes twice, and bytes are what they were. The program is at most 16 pieces of 48 KiB
//     ahead of what the worker has taken, which a short command reports to it: a program that prints more waits. When it has ended all the
//     rest is in the log, for as long as the session is there.
//   - A log that ends says nothing: how the command is, is asked. Only the program's own word is an end; a line with an error means
//     that the session has ended.
//   - What may have been started is not started again. Starts and words have no row in the table of retries. Before go an error says
//     unavailable; after go it says interrupted, unless the program has said how the command ended.
//   - 410, 422 sandbox_stopping and sandbox_snapshotting mean that nothing was done. A run says not_found; the worker reserves again, which
//     resumes the sandbox and runs its hooks, and repeats the call. A request goes to one session by its id, so that no command runs in
//     another than it was meant for. 410 snapshot_not_found deletes the sandbox and makes another.
//   - Names are digests: of account and key, or of a run's id. Of workers that make a sandbox at once one does, a create whose answer
//     was lost is found, and a dead worker's run is ended without a list, which may lag behind.
//   - Tags are five at most, and a list is filtered by one: installation, what it was made of, account, and of a kept one deployment
//     and key. Of many sandboxes a create looks at those only whose status has changed within a day: no session lives longer.
//   - Time: a session's time counts from its start. Each use asks for what is missing, by the service's clock, to the run's limit or
//     --vercel-idle, whichever is longer. Where the plan grants no more, a run that does not fit waits until the session has ended.
//     The sandbox of a run alone is not persistent, ends two minutes after its command's limit, and is deleted by whichever worker
//     next makes one.
//   - Snapshots: the last one of a kept sandbox, for 31 days, longer than any record lives. Deleting the sandbox deletes it.
//   - Jobs are those of supervisor, in the session. The service's own have no input, no log by bytes, one signal to one process and no
//     word on what they leave behind.
//   - Workspaces are drives, which one sandbox writes to and others see as they were. A create waits for a drive that is another's for
//     --vercel-start, then says exhausted. The profile says so (exclusive_workspaces).
//   - Networks are the service's, with names, ranges and denied ranges. What the answer to a create says is compared with what was
//     asked for; where it is another, or not said, the sandbox is deleted: unsupported.
//
// # Considered
//
// A run that is waited for, with its logs in the answer: after a broken answer no worker knows its id. Reading output as files: binary, and
// a request for each piece also where nothing is printed. Short-lived tokens of Vercel's own deployments: they are renewed only inside
// Vercel.
package vercel

import (
	"cmp"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// What [Options] stand for that say nothing.
const (
	DefaultAPIURL       = "https://vercel.com/api"
	DefaultUser         = "ubuntu"
	DefaultInstallation = "sandjet"
	MaxInstallation     = 24 // characters of an installation's name
	DefaultSandboxes    = 10
	DefaultIdle         = 15 * time.Minute
	DefaultStart        = 2 * time.Minute
)

const (
	service    = "Vercel"
	endTimeout = 30 * time.Second // of the end of a sandbox, or of what runs in it
	spareTime  = 2 * time.Minute  // that a session lives longer than its command may, at least
	keptFor    = 31 * 24 * time.Hour
	longestDay = 24 * time.Hour // of a session, on any plan
)

// Options are the settings of [Open]. Token, Team and Project must be set.
type Options struct {
	Token   string // of an account, with access to the team: a secret
	Team    string // its id
	Project string // its id or name: sandboxes and drives are its
	APIURL  string // of the service; empty: DefaultAPIURL
	Image   string // of sandboxes; empty: the service's own
	User    string // of the image: it has a home in /home; empty: DefaultUser
	Region  string // of sandboxes and drives; empty: the service's own
	VCPUs   int    // of a sandbox, each with 2 GiB of memory; 0: the service's own
	// Installation is the same for all workers that share sandboxes, and another for others of the same project: up to 24 letters,
	// digits and dashes. Empty: DefaultInstallation.
	Installation string
	Networks     []schemas.NetworkMode // that the operator allows; empty: deny-all alone
	Sandboxes    int                   // that run at a time, all workers' together; 0: DefaultSandboxes
	Idle         time.Duration         // after which the session of an unused kept sandbox ends; 0: DefaultIdle
	Start        time.Duration         // that a sandbox may take to be made or to be resumed; 0: DefaultStart
	NoWorkspaces bool                  // drives are not used
	HTTP         *http.Client          // nil: one of its own
	Log          *slog.Logger          // nil: nothing is logged
}

var (
	installationPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,23}$`)
	userPattern         = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	idPattern           = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)
	regionPattern       = regexp.MustCompile(`^[a-z]{3}[0-9]{1,2}$`)
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

	drives    cloud.Known // that are there
	furnished cloud.Known // sessions whose workspace is prepared
}

// api gives access to the service, and holds the settings.
type api struct {
	opt     Options
	log     *slog.Logger
	client  *cloud.Client
	silence time.Duration // of a log; tests have less patience
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Reserver = (*Provider)(nil)
	_ providers.Pauser   = (*Provider)(nil)
	_ providers.Lister   = (*Provider)(nil)
	_ providers.RunEnder = (*Provider)(nil)
	_ providers.Profiler = (*Provider)(nil)
)

// table returns which requests are retried. Requests that make a sandbox, start a command or send it a message are not retried after a
// broken connection: the sandbox's state is looked up instead. Because commands of one route do different things, the use is a part of the
// route here.
func table() []cloud.Retry {
	busy := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout}
	const session = "/v2/sandboxes/sessions/{id}"
	return []cloud.Retry{
		{Route: "GET *", On: busy, Lost: true},
		{Route: "DELETE /v2/sandboxes/{name}", On: busy, Lost: true},
		{Route: "POST /v2/sandboxes/drives/{name}", On: busy, Lost: true}, // it finds the one that is there
		{Route: "POST " + session + "/stop", On: busy, Lost: true},
		{Route: "POST " + session + "/extend-timeout", On: []int{http.StatusTooManyRequests}, Unsent: true},
		{Route: "POST " + session + "/fs/write", On: busy, Lost: true},
		{Route: "POST " + session + "/cmd look", On: busy, Lost: true},
		{Route: "POST " + session + "/cmd taken", On: busy, Lost: true},
		{Route: "POST " + session + "/cmd quiet", On: busy, Lost: true},
		{Route: "POST " + session + "/cmd sweep", On: busy, Lost: true},
		{Route: "POST /v3/sandboxes", On: []int{http.StatusServiceUnavailable}, Unsent: true},
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
	if err := o.check(); err != nil {
		return nil, err
	}
	base, err := cloud.ParseBase("vercel-api-url", o.APIURL)
	if err != nil {
		return nil, err
	}
	a := &api{opt: o, log: o.Log, silence: silence}
	p := &Provider{sandboxes: &sandboxes{api: a, workspaces: &workspaces{api: a}}}
	p.room = &cloud.Room{Most: o.Sandboxes, Service: service, Flag: "--vercel-sandboxes", List: p.running}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.opt.HTTP == nil {
		p.opt.HTTP = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2: true,
		}}
	}
	p.client = &cloud.Client{
		Base: base, Auth: http.Header{"Authorization": {"Bearer " + o.Token}}, Header: http.Header{"User-Agent": {"sandjet"}},
		Retries: table(), HTTP: p.opt.HTTP, Log: p.log,
	}
	return p, nil
}

func (o Options) check() error {
	switch {
	case o.Token == "":
		return schemas.Invalidf("vercel-token", "is missing: set VERCEL_TOKEN, or --vercel-token")
	case !idPattern.MatchString(o.Team):
		return schemas.Invalidf("vercel-team", "%q is not the id of a team: set VERCEL_TEAM_ID, or --vercel-team", schemas.Quotable(o.Team))
	case !idPattern.MatchString(o.Project):
		return schemas.Invalidf("vercel-project", "%q is not the id of a project: set VERCEL_PROJECT_ID, or --vercel-project",
			schemas.Quotable(o.Project))
	case !installationPattern.MatchString(o.Installation):
		return schemas.Invalidf("vercel-installation", "%q: use up to 24 letters, digits and dashes", schemas.Quotable(o.Installation))
	case !userPattern.MatchString(o.User) || o.User == "root":
		return schemas.Invalidf("vercel-user", "%q is not the name of a user with a home in /home", schemas.Quotable(o.User))
	case o.Image != "" && !cloud.IsImage(o.Image):
		return schemas.Invalidf("vercel-image", "%q is not an image name", schemas.Quotable(o.Image))
	case o.Region != "" && !regionPattern.MatchString(o.Region):
		return schemas.Invalidf("vercel-region", "%q is not a region such as iad1", schemas.Quotable(o.Region))
	case o.VCPUs < 0 || o.VCPUs > 32:
		return schemas.Invalidf("vercel-vcpus", "%d is out of range: 1 to 32, or 0 for the service's own", o.VCPUs)
	case o.Sandboxes < 0:
		return schemas.Invalidf("vercel-sandboxes", "%d is out of range: at least 1", o.Sandboxes)
	case o.Idle < time.Minute || o.Idle > 12*time.Hour:
		return schemas.Invalidf("vercel-idle", "%s is out of range: 1m to 12h", o.Idle)
	case o.Start < 0 || o.Start > time.Hour:
		return schemas.Invalidf("vercel-start", "%s is out of range: up to 1h", o.Start)
	}
	return nil
}

// Close waits until the sandboxes of ended runs are deleted. Persistent ones stay.
func (p *Provider) Close() error {
	p.work.Close()
	p.opt.HTTP.CloseIdleConnections()
	return nil
}

// home returns the home directory of the user of sandboxes.
func (p *api) home() string { return "/home/" + p.opt.User }
