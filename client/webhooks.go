package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// WebhookSpec describes an endpoint to add. Only URL is required.
type WebhookSpec struct {
	URL         string              `json:"url"`
	Events      []schemas.EventType `json:"events,omitzero"`       // empty: all of [schemas.DeliverableTypes]
	Legacy      bool                `json:"legacy,omitzero"`       // see [schemas.Endpoint]
	ContentType string              `json:"content_type,omitzero"` // [schemas.WebhookJSON], or [schemas.WebhookCloudEvents]
	Concurrency int                 `json:"concurrency,omitzero"`  // requests at the same time; 0: 4
	Description string              `json:"description,omitzero"`
	Secret      string              `json:"secret,omitzero"` // "whsec_" and base64 of 24 to 64 bytes; empty: one is made
}

// WebhookPatch changes an endpoint. Nil fields stay as they are.
type WebhookPatch struct {
	URL         *string              `json:"url,omitzero"`
	Events      *[]schemas.EventType `json:"events,omitzero"` // an empty list: all
	Legacy      *bool                `json:"legacy,omitzero"`
	ContentType *string              `json:"content_type,omitzero"`
	Concurrency *int                 `json:"concurrency,omitzero"`
	Description *string              `json:"description,omitzero"`
	Disabled    *bool                `json:"disabled,omitzero"` // false enables it again
}

// WebhookReplay selects deliveries to repeat. Since or ID is required.
type WebhookReplay struct {
	Since    time.Time          // deliveries made from then on
	Endpoint schemas.EndpointID // empty: of all
	ID       schemas.DeliveryID // this one alone
}

// Webhooks reads and changes the endpoints that events are delivered to.
type Webhooks struct{ transport }

// Webhooks returns access to the account's webhook endpoints. It sends no request.
func (c *Client) Webhooks() Webhooks { return Webhooks{c.transport()} }

// List returns the account's endpoints by id, with masked secrets.
func (c Webhooks) List(ctx context.Context) ([]schemas.Endpoint, error) {
	var out struct {
		Webhooks []schemas.Endpoint `json:"webhooks"`
	}
	err := c.ask(ctx, http.MethodGet, webhooksPath, nil, &out)
	return out.Webhooks, err
}

// Get returns an endpoint, with masked secrets. Code: not_found.
func (c Webhooks) Get(ctx context.Context, id schemas.EndpointID) (schemas.Endpoint, error) {
	return c.one(ctx, http.MethodGet, id, nil)
}

// Add adds an endpoint. Only this response contains its secret. It is tried once: after unavailable, check with [Webhooks.List] whether it
// was added. Codes: invalid, exhausted (the account has reached its limit).
func (c Webhooks) Add(ctx context.Context, spec WebhookSpec) (schemas.Endpoint, error) {
	var e schemas.Endpoint
	err := c.postOnce(ctx, webhooksPath, spec, &e)
	return e, err
}

// Update changes an endpoint. Codes: invalid, not_found.
func (c Webhooks) Update(ctx context.Context, id schemas.EndpointID, patch WebhookPatch) (schemas.Endpoint, error) {
	return c.one(ctx, http.MethodPatch, id, patch)
}

// Remove removes an endpoint and its pending deliveries. Code: not_found, also if an earlier try of this call removed it.
func (c Webhooks) Remove(ctx context.Context, id schemas.EndpointID) error {
	return c.ask(ctx, http.MethodDelete, webhookPath(id), nil, nil)
}

// RotateSecret gives an endpoint a new secret; only this response contains it. Until overlap has passed (0: 24 hours) deliveries are also
// signed with the former ones. It is tried once. Codes: not_found, invalid.
func (c Webhooks) RotateSecret(ctx context.Context, id schemas.EndpointID, overlap time.Duration) (schemas.Endpoint, error) {
	var in struct {
		Overlap schemas.Duration `json:"overlap,omitzero"`
	}
	in.Overlap = schemas.Duration(overlap)
	var e schemas.Endpoint
	err := c.postOnce(ctx, webhookPath(id)+"/rotate-secret", in, &e)
	return e, err
}

// Test delivers a message event with the data {"test":true} to an endpoint. It is tried once. Codes: not_found, conflict (the endpoint is
// disabled).
func (c Webhooks) Test(ctx context.Context, id schemas.EndpointID) (schemas.DeliveryID, error) {
	var out struct {
		Delivery schemas.DeliveryID `json:"delivery"`
	}
	err := c.postOnce(ctx, webhookPath(id)+"/test", nil, &out)
	return out.Delivery, err
}

// Replay repeats deliveries, with their ids, and returns how many. It does so in as many requests as needed, each of which is tried once;
// after an error the first n have been repeated, and it is harmless to repeat them again. Codes: invalid, not_found (the endpoint),
// exhausted (the account's quota, or a replay of the account is in progress), unavailable.
func (c Webhooks) Replay(ctx context.Context, r WebhookReplay) (n int, err error) {
	var in struct {
		Since    string             `json:"since,omitzero"`
		Endpoint schemas.EndpointID `json:"endpoint,omitzero"`
		ID       schemas.DeliveryID `json:"id,omitzero"`
		After    string             `json:"after,omitzero"`
	}
	in.Endpoint, in.ID = r.Endpoint, r.ID
	if !r.Since.IsZero() {
		in.Since = r.Since.Format(time.RFC3339Nano)
	}
	for {
		var out struct {
			Replayed int    `json:"replayed"`
			Next     string `json:"next"`
		}
		if err := c.postOnce(ctx, webhooksPath+"/replay", in, &out); err != nil {
			return n, err
		}
		n += out.Replayed
		if out.Next == "" || out.Next == in.After {
			return n, nil
		}
		in.After = out.Next
	}
}

func (c Webhooks) one(ctx context.Context, method string, id schemas.EndpointID, in any) (schemas.Endpoint, error) {
	var e schemas.Endpoint
	err := c.ask(ctx, method, webhookPath(id), in, &e)
	return e, err
}

const webhooksPath = "/v1/webhooks"

func webhookPath(id schemas.EndpointID) string {
	return webhooksPath + "/" + url.PathEscape(string(id))
}
