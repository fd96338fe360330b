package vercel

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// sandbox is a sandbox as the service describes it. Times are in Unix milliseconds.
type sandbox struct {
	Name    string            `json:"name"`
	Session string            `json:"currentSessionId"`
	Status  string            `json:"status"` // of its session
	Changed int64             `json:"statusUpdatedAt"`
	Created int64             `json:"createdAt"`
	Tags    map[string]string `json:"tags"`
	Policy  *policy           `json:"networkPolicy"`
}

// run is a run of a sandbox's virtual machine, which the service calls a session.
type run struct {
	ID      string  `json:"id"`
	Status  string  `json:"status"`
	Created int64   `json:"createdAt"`
	Started int64   `json:"startedAt"`
	Timeout int64   `json:"timeout"` // milliseconds from its start
	Policy  *policy `json:"networkPolicy"`
}

// policy is a network policy in responses. Requests have another form: see [rules].
type policy struct {
	Mode    string   `json:"mode"` // allow-all, deny-all, custom
	Domains []string `json:"allowedDomains"`
	Allowed []string `json:"allowedCIDRs"`
	Denied  []string `json:"deniedCIDRs"`
}

// rules is a network policy in requests: a mode, or lists.
type rules struct {
	Mode    string    `json:"mode,omitempty"`
	Allow   *[]string `json:"allow,omitempty"`
	Subnets *subnets  `json:"subnets,omitempty"`
}

type subnets struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// box is a sandbox with its session, as in the service's responses.
type box struct {
	Sandbox sandbox `json:"sandbox"`
	Session run     `json:"session"`

	now time.Time // of the service's clock, when it said so
}

// The states of a session. In those that are not here it has ended: stopped, failed, aborted.
const (
	statusPending      = "pending"
	statusRunning      = "running"
	statusStopping     = "stopping"
	statusSnapshotting = "snapshotting"
)

// alive reports whether a session in that state may have running processes, or is starting.
func alive(status string) bool {
	return status == statusPending || status == statusRunning || status == statusStopping || status == statusSnapshotting
}

// newSandbox is the body of a create request. Times are in milliseconds.
type newSandbox struct {
	Project    string            `json:"projectId"`
	Name       string            `json:"name"`
	Ports      []int             `json:"ports"`
	Timeout    int64             `json:"timeout"`
	Resources  *resources        `json:"resources,omitempty"`
	Image      string            `json:"image,omitempty"`
	Region     string            `json:"region,omitempty"`
	Policy     rules             `json:"networkPolicy"`
	Tags       map[string]string `json:"tags"`
	Persistent bool              `json:"persistent"`
	Expiration int64             `json:"snapshotExpiration,omitempty"`
	Keep       *keepLast         `json:"keepLastSnapshots,omitempty"`
	Mounts     map[string]mount  `json:"mounts,omitempty"`
}

type resources struct {
	VCPUs int `json:"vcpus"`
}

// keepLast is how many snapshots of a sandbox the service stores: it deletes older ones.
type keepLast struct {
	Count int `json:"count"`
}

type mount struct {
	Drive string `json:"drive"`
	Mode  string `json:"mode"`
}

// The ways in which a drive is mounted: one sandbox may write, and others see what was there when they started.
const (
	mountWrites   = "read-write"
	mountSnapshot = "snapshot"
)

// The service's words for a request that came at the wrong time.
const (
	kindNoSnapshot   = "snapshot_not_found"
	kindStopped      = "sandbox_stopped"
	kindStopping     = "sandbox_stopping"
	kindSnapshotting = "sandbox_snapshotting"
)

// stopped reports whether a request had no effect because its session has ended or is ending. The next reservation resumes the sandbox.
func stopped(err error) bool {
	code, kind := cloud.StatusOf(err), cloud.KindOf(err)
	return code == http.StatusGone || code == http.StatusUnprocessableEntity && (kind == kindStopping || kind == kindSnapshotting)
}

func (p *api) query(more ...string) url.Values {
	q := url.Values{"teamId": {p.opt.Team}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return q
}

// ask sends a request about a sandbox.
func (p *api) ask(ctx context.Context, method, name string, into any, query ...string) (cloud.Answer, error) {
	return p.client.Do(ctx, cloud.Call{
		Method: method, Path: "/v2/sandboxes/" + url.PathEscape(name), Route: "/v2/sandboxes/{name}",
		Query: p.query(append(query, "projectId", p.opt.Project)...), Into: into,
	})
}

// get returns a sandbox by its name, and with resume wakes it.
func (p *api) get(ctx context.Context, name string, resume bool) (b box, err error) {
	var query []string
	if resume {
		query = []string{"resume", "true"}
	}
	a, err := p.ask(ctx, http.MethodGet, name, &b, query...)
	b.now = a.Clock()
	return b, err
}

// list calls more with the sandboxes that have a tag, the most recently changed first, until it returns false.
func (p *api) list(ctx context.Context, tag, value string, more func(s sandbox, now time.Time) bool) error {
	query := p.query("project", p.opt.Project, "limit", "50", "sortBy", "statusUpdatedAt", "sortOrder", "desc", "tags", tag+":"+value)
	pages := cloud.Pages{Route: "GET /v2/sandboxes"}
	for {
		var page struct {
			Sandboxes  []sandbox `json:"sandboxes"`
			Pagination struct {
				Next string `json:"next"`
			} `json:"pagination"`
		}
		a, err := p.client.Do(ctx, cloud.Call{Method: http.MethodGet, Path: "/v2/sandboxes", Query: query, Into: &page})
		if err != nil {
			return err
		}
		if err := pages.Read(a.Size); err != nil {
			return err
		}
		for _, s := range page.Sandboxes {
			if s.Tags[tag] == value && !more(s, a.Clock()) {
				return nil
			}
		}
		if page.Pagination.Next == "" || len(page.Sandboxes) == 0 {
			return nil
		}
		query.Set("cursor", page.Pagination.Next)
	}
}

// session sends requests about one session.
type session struct {
	p  *api
	id string
}

func (s session) call(method, verb string) cloud.Call {
	return cloud.Call{
		Method: method, Path: "/v2/sandboxes/sessions/" + url.PathEscape(s.id) + verb, Route: "/v2/sandboxes/sessions/{id}" + verb,
		Query: s.p.query(),
	}
}

// ask sends a request about the session itself.
func (s session) ask(ctx context.Context, method, verb string, body any) (r run, err error) {
	var said struct {
		Session run `json:"session"`
	}
	c := s.call(method, verb)
	c.Body, c.Into = body, &said
	_, err = s.p.client.Do(ctx, c)
	return said.Session, err
}

func excerpt(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
