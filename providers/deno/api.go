package deno

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

// The routes of the API of sandboxes.
const (
	routeCreate  = "/api/v3/sandboxes/create"
	routeConnect = "/api/v3/sandbox/{id}/connect"
	routeOne     = "/api/v3/sandbox/{id}"
)

// sandbox is a sandbox as a list shows it.
type sandbox struct {
	ID      string            `json:"id"`
	Created time.Time         `json:"createdAt"`
	Status  string            `json:"status"`
	Region  string            `json:"region"`
	Labels  map[string]string `json:"labels"`
}

const statusRunning = "running"

// config is the configuration in a create request.
type config struct {
	StopAt  int64             `json:"stop_at_ms"`
	Memory  int               `json:"memory_mb"`
	Labels  map[string]string `json:"labels"`
	Root    *root             `json:"root,omitempty"`
	Volumes []volumeMount     `json:"volumes,omitempty"`
	Allowed *[]string         `json:"allow_net,omitempty"` // nil: everything; empty: nothing
	Secrets map[string]secret `json:"secrets,omitempty"`
}

type root struct {
	Volume string `json:"volume"`
}

type volumeMount struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// secret is a variable that the service puts into requests to some hosts, and not into the sandbox.
type secret struct {
	Hosts []string `json:"hosts"`
	Value string   `json:"value"`
}

type newVolume struct {
	Slug     string `json:"slug"`
	Region   string `json:"region"`
	Capacity int64  `json:"capacity"`
}

// volume is a volume or a snapshot.
type volume struct {
	Slug     string `json:"slug"`
	Region   string `json:"region"`
	Bootable bool   `json:"is_bootable"`
}

type lifetime struct {
	StopAt int64 `json:"stop_at_ms"`
}

// regionOf returns the region in a sandbox's id; empty if the id is invalid.
func regionOf(id string) string {
	if parts := sandboxPattern.FindStringSubmatch(id); parts != nil {
		return parts[1]
	}
	return ""
}

// ask sends a call and updates the difference to the service's clock.
func (p *api) ask(ctx context.Context, c *cloud.Client, call cloud.Call) error {
	begun := time.Now()
	a, err := c.Do(ctx, call)
	p.observe(a.Header, begun)
	return err
}

// observe records how far the service's clock is ahead of this host's, because the end of a sandbox's lifetime is a time of the service's
// clock. Differences within the header's precision and the request's duration count as none.
func (p *api) observe(h http.Header, begun time.Time) {
	const precision = 2 * time.Second
	said, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	span := time.Since(begun)
	ahead := said.Add(time.Second / 2).Sub(begun.Add(span / 2))
	if ahead.Abs() <= precision+span/2 {
		ahead = 0
	}
	p.ahead.Store(int64(ahead))
}

// stopAt returns the time after life by the service's clock, in Unix milliseconds.
func (p *api) stopAt(life time.Duration) int64 {
	return time.Now().Add(time.Duration(p.ahead.Load()) + life).UnixMilli()
}

// left returns how long it is until a time of the service's clock.
func (p *api) left(stopAt int64) time.Duration {
	return time.UnixMilli(stopAt).Sub(time.Now().Add(time.Duration(p.ahead.Load())))
}

// list lists the running sandboxes that have all of the labels. The service's list has no pages and includes stopped sandboxes, so it is
// decoded item by item and only running ones are stored.
func (p *api) list(ctx context.Context, want map[string]string) ([]sandbox, error) {
	query := url.Values{}
	for k, v := range want {
		query.Set("labels["+k+"]", v)
	}
	var running []sandbox
	err := p.ask(ctx, p.console, cloud.Call{
		Method: http.MethodGet, Path: "/api/v2/sandboxes", Query: query,
		Stream: cloud.Items(func() { running = nil }, func(s sandbox) {
			fits := s.Status == statusRunning && regionOf(s.ID) != ""
			for k, v := range want {
				fits = fits && s.Labels[k] == v
			}
			if fits {
				running = append(running, s)
			}
		}),
	})
	if err != nil {
		return nil, err
	}
	return running, nil
}

// extend extends a sandbox's lifetime, and returns how long it lives from now on: the service may grant less.
func (p *api) extend(ctx context.Context, id string, life time.Duration) (time.Duration, error) {
	var granted lifetime
	err := p.ask(ctx, p.at(regionOf(id)), cloud.Call{
		Method: http.MethodPatch, Path: strings.Replace(routeOne, "{id}", url.PathEscape(id), 1), Route: routeOne,
		Body: lifetime{p.stopAt(min(life, mostLife))}, Into: &granted,
	})
	return p.left(granted.StopAt), err
}

// kill asks the service to end a sandbox. A sandbox that is gone is no error.
func (p *sandboxes) kill(ctx context.Context, id string) error {
	err := p.ask(ctx, p.at(regionOf(id)), cloud.Call{
		Method: http.MethodDelete, Path: strings.Replace(routeOne, "{id}", url.PathEscape(id), 1), Route: routeOne,
		Wait: endTimeout, Each: killEach,
	})
	if err == nil || cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusGone {
		p.room.Ended(id)
		return nil
	}
	return err
}

// dial connects to an existing sandbox.
func (p *api) dial(ctx context.Context, id string) (*websocket.Conn, error) {
	begun := time.Now()
	conn, a, err := p.at(regionOf(id)).Socket(ctx, cloud.Call{
		Path: strings.Replace(routeConnect, "{id}", url.PathEscape(id), 1), Route: routeConnect, Wait: dialWithin,
	})
	p.observe(a.Header, begun)
	return conn, err
}
