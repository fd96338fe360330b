package e2b

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// sandbox is a sandbox as the control plane describes it.
type sandbox struct {
	ID       string            `json:"sandboxID"`
	Domain   string            `json:"domain"`
	Token    string            `json:"envdAccessToken"` // a secret
	State    string            `json:"state"`
	Started  time.Time         `json:"startedAt"`
	Metadata map[string]string `json:"metadata"`

	now time.Time // by the service's clock, when a list has shown it
}

// The states of a sandbox.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

// newSandbox is the body of a create request.
type newSandbox struct {
	Template string            `json:"templateID"`
	Timeout  int               `json:"timeout"` // seconds
	Pause    bool              `json:"autoPause"`
	Secure   bool              `json:"secure"`
	Metadata map[string]string `json:"metadata"`
	Internet bool              `json:"allow_internet_access"`
	Network  *network          `json:"network,omitempty"`
	Mounts   []volumeMount     `json:"volumeMounts,omitempty"`
}

type network struct {
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`
}

type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

type volume struct {
	ID   string `json:"volumeID"`
	Name string `json:"name"`
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func at(id, verb string) (path, route string) {
	return "/sandboxes/" + url.PathEscape(id) + verb, "/sandboxes/{id}" + verb
}

// ask sends a request about one sandbox.
func (p *api) ask(ctx context.Context, method, id, verb string, body, into any) (cloud.Answer, error) {
	path, route := at(id, verb)
	return p.control.Do(ctx, cloud.Call{Method: method, Path: path, Route: route, Body: body, Into: into})
}

func (p *api) get(ctx context.Context, id string) (s sandbox, err error) {
	_, err = p.ask(ctx, http.MethodGet, id, "", nil, &s)
	return s, err
}

// connect wakes a paused sandbox, and ensures that it lives for at least life.
func (p *api) connect(ctx context.Context, id string, life time.Duration) (s sandbox, err error) {
	_, err = p.ask(ctx, http.MethodPost, id, "/connect", map[string]int{"timeout": seconds(life)}, &s)
	return s, err
}

// end kills a sandbox. A sandbox that is gone is no error.
func (p *sandboxes) end(ctx context.Context, id string) error {
	_, err := p.ask(ctx, http.MethodDelete, id, "", nil, nil)
	if err == nil || cloud.StatusOf(err) == http.StatusNotFound {
		p.room.Ended(id)
		return nil
	}
	return err
}

// list lists the sandboxes whose metadata has all of some pairs, running and paused.
func (p *api) list(ctx context.Context, want map[string]string) ([]sandbox, error) {
	pairs := url.Values{}
	for name, value := range want {
		pairs.Set(url.QueryEscape(name), url.QueryEscape(value)) // each is escaped by itself, and all together once more
	}
	query := url.Values{"metadata": {pairs.Encode()}, "state": {stateRunning + "," + statePaused}, "limit": {"100"}}
	var all []sandbox
	pages := cloud.Pages{Route: "GET /v2/sandboxes"}
	for {
		var page []sandbox
		a, err := p.control.Do(ctx, cloud.Call{Method: http.MethodGet, Path: "/v2/sandboxes", Query: query, Into: &page})
		if err != nil {
			return nil, err
		}
		if err := pages.Read(a.Size); err != nil {
			return nil, err
		}
		for i := range page {
			page[i].now = a.Clock()
		}
		all = append(all, page...)
		next := a.Header.Get("X-Next-Token")
		if next == "" || len(page) == 0 {
			return all, nil
		}
		query.Set("nextToken", next)
	}
}
