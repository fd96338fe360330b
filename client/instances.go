package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// InstancesQuery selects instances. The zero value selects all of the account's.
type InstancesQuery struct {
	Sandbox   schemas.SandboxID
	Workspace schemas.WorkspaceID
	Provider  string
	State     schemas.InstanceState
	Limit     int // at most 500; 0: 50
}

// Instances reads and controls the account's instances: sandboxes that exist between calls.
type Instances struct{ transport }

// Instances returns access to the account's instances. It sends no request.
func (c *Client) Instances() Instances { return Instances{c.transport()} }

// List returns instances, without the calls and jobs in them. Reading does not count as use. More reports that there are others. Code:
// invalid.
func (c Instances) List(ctx context.Context, q InstancesQuery) (list []schemas.InstanceDocument, more bool, err error) {
	values := url.Values{}
	for name, v := range map[string]string{
		"sandbox": string(q.Sandbox), "workspace": string(q.Workspace), "provider": q.Provider, "state": string(q.State),
	} {
		if v != "" {
			values.Set(name, v)
		}
	}
	if q.Limit != 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	var out struct {
		Instances []schemas.InstanceDocument `json:"instances"`
		More      bool                       `json:"more"`
	}
	err = c.keepAsking(ctx, http.MethodGet, withQuery("/v1/instances", values), nil, &out)
	return out.Instances, out.More, err
}

// Get returns an instance with the calls and jobs in it. Codes: invalid, not_found.
func (c Instances) Get(ctx context.Context, id schemas.InstanceID) (schemas.InstanceDocument, error) {
	var i schemas.InstanceDocument
	err := c.keepAsking(ctx, http.MethodGet, instancePath(id), nil, &i)
	return i, err
}

// Pause requests that an instance is paused, waits for that for at most wait (the gateway limits it to a minute by default), and returns
// the instance as it then is. Codes: not_found, unsupported (its provider cannot pause), conflict (a call or a job runs in it, or another
// request asked for another state meanwhile).
func (c Instances) Pause(ctx context.Context, id schemas.InstanceID, wait time.Duration) (schemas.InstanceDocument, error) {
	return c.want(ctx, http.MethodPost, instancePath(id)+"/pause", url.Values{}, wait)
}

// Resume requests that an instance is resumed; it waits as [Instances.Pause] does. Codes: not_found, conflict.
func (c Instances) Resume(ctx context.Context, id schemas.InstanceID, wait time.Duration) (schemas.InstanceDocument, error) {
	return c.want(ctx, http.MethodPost, instancePath(id)+"/resume", url.Values{}, wait)
}

// Remove requests that an instance is removed; it waits as [Instances.Pause] does. The state of a removed instance is
// [schemas.InstanceRemoved]. With force the calls in it are cancelled and its jobs end. Codes: not_found, also if an earlier try removed
// it; conflict (a call or a job runs in it, without force).
func (c Instances) Remove(ctx context.Context, id schemas.InstanceID, force bool, wait time.Duration) (
	schemas.InstanceDocument, error,
) {
	values := url.Values{}
	if force {
		values.Set("force", "1")
	}
	return c.want(ctx, http.MethodDelete, instancePath(id), values, wait)
}

func (c Instances) want(ctx context.Context, method, path string, values url.Values, wait time.Duration) (
	schemas.InstanceDocument, error,
) {
	if wait > 0 {
		values.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	var i schemas.InstanceDocument
	err := c.ask(ctx, method, withQuery(path, values), nil, &i)
	return i, err
}

func instancePath(id schemas.InstanceID) string { return "/v1/instances/" + url.PathEscape(string(id)) }
