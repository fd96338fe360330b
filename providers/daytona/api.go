package daytona

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// sandbox is a sandbox as the control plane describes it.
type sandbox struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	State       string            `json:"state"`
	Reason      string            `json:"errorReason"`
	Recoverable bool              `json:"recoverable"` // of one that has failed
	Labels      map[string]string `json:"labels"`
	Created     time.Time         `json:"createdAt"`
	Toolbox     string            `json:"toolboxProxyUrl"` // the sandbox is below it, under its id
	BlockAll    bool              `json:"networkBlockAll"`
	AllowList   string            `json:"networkAllowList"`

	now time.Time // by the service's clock, when a list has shown it
}

// The states of a sandbox that something is done about. In all others it is on its way to one of these.
const (
	stateStarted    = "started"
	stateStopped    = "stopped"
	statePaused     = "paused"
	stateArchived   = "archived"
	stateDestroying = "destroying"
	stateDestroyed  = "destroyed"
	stateError      = "error"
	stateBuild      = "build_failed"
)

// newSandbox is the body of a create request. Intervals are in minutes.
type newSandbox struct {
	Name       string            `json:"name,omitempty"`
	Snapshot   string            `json:"snapshot,omitempty"`
	Build      *build            `json:"buildInfo,omitempty"`
	User       string            `json:"user"`
	Target     string            `json:"target,omitempty"`
	Labels     map[string]string `json:"labels"`
	BlockAll   bool              `json:"networkBlockAll"`
	AllowList  string            `json:"networkAllowList,omitempty"`
	Volumes    []volumeMount     `json:"volumes,omitempty"`
	AutoStop   int               `json:"autoStopInterval"`
	AutoDelete int               `json:"autoDeleteInterval"` // 0: as soon as it has stopped
}

type build struct {
	Dockerfile string `json:"dockerfileContent"`
}

type volumeMount struct {
	Volume string `json:"volumeId"`
	Path   string `json:"mountPath"`
	Below  string `json:"subpath"`
}

type volume struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"errorReason"`
}

// Of an update of labels, which replaces all of them.
type labels struct {
	Labels map[string]string `json:"labels"`
}

// minutes returns d in minutes, rounded up.
func minutes(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) }

func at(id, verb string) (path, route string) {
	return "/sandbox/" + url.PathEscape(id) + verb, "/sandbox/{id}" + verb
}

// ask sends a request about one sandbox.
func (p *api) ask(ctx context.Context, method, id, verb string, body, into any) error {
	path, route := at(id, verb)
	_, err := p.control.Do(ctx, cloud.Call{Method: method, Path: path, Route: route, Body: body, Into: into})
	return err
}

// get returns a sandbox by its id or name.
func (p *api) get(ctx context.Context, id string) (s sandbox, err error) {
	err = p.ask(ctx, http.MethodGet, id, "", nil, &s)
	return s, err
}

// list lists the sandboxes that have all of some labels, whatever their state.
func (p *api) list(ctx context.Context, want map[string]string) ([]sandbox, error) {
	text, err := json.Marshal(want)
	if err != nil {
		panic(err) // plain data
	}
	query := url.Values{"labels": {string(text)}, "limit": {"100"}}
	var all []sandbox
	pages := cloud.Pages{Route: "GET /sandbox"}
	for {
		var page struct {
			Items []sandbox `json:"items"`
			Next  string    `json:"nextCursor"`
		}
		a, err := p.control.Do(ctx, cloud.Call{Method: http.MethodGet, Path: "/sandbox", Query: query, Into: &page})
		if err != nil {
			return nil, err
		}
		if err := pages.Read(a.Size); err != nil {
			return nil, err
		}
		for _, s := range page.Items {
			if s.now = a.Clock(); s.State != stateDestroyed {
				all = append(all, s)
			}
		}
		if page.Next == "" || len(page.Items) == 0 {
			return all, nil
		}
		query.Set("cursor", page.Next)
	}
}
