package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// WebhookSpec describes an endpoint to be added. Only URL must be there.
type WebhookSpec struct {
	URL         string              `json:"url"`
	Events      []schemas.EventType `json:"events,omitzero"`       // empty: all of [schemas.DeliverableTypes]
	Legacy      bool                `json:"legacy,omitzero"`       // see [schemas.Endpoint]
	ContentType string              `json:"content_type,omitzero"` // [schemas.WebhookJSON], or [schemas.WebhookCloudEvents]
	Concurrency int                 `json:"concurrency,omitzero"`  // requests at the same time; 0: 4
	Description string              `json:"description,omitzero"`
	Secret      string              `json:"secret,omitzero"` // "whsec_" and base64 of 24 to 64 bytes; empty: one is made
}

// WebhookPatch changes an endpoint. What is nil stays as it is.
type WebhookPatch struct {
	URL         *string              `json:"url,omitzero"`
	Events      *[]schemas.EventType `json:"events,omitzero"` // an empty list: all
	Legacy      *bool                `json:"legacy,omitzero"`
	ContentType *string              `json:"content_type,omitzero"`
	Concurrency *int                 `json:"concurrency,omitzero"`
	Description *string              `json:"description,omitzero"`
	Disabled    *bool                `json:"disabled,omitzero"` // false enables it again
}

// WebhookReplay selects deliveries to be sent again. Since or ID must be there.
type WebhookReplay struct {
	Since    time.Time          // deliveries made from then on
	Endpoint schemas.EndpointID // empty: of all
	ID       schemas.DeliveryID // this one alone
}

// Webhooks are the endpoints that events are delivered to.
type Webhooks struct{ transport }

// Webhooks gives access to the account's webhook endpoints. It sends nothing.
func (c *Client) Webhooks() Webhooks { return Webhooks{c.transport()} }

// List lists the account's endpoints by id. Secrets are not shown.
func (c Webhooks) List(ctx context.Context) ([]schemas.Endpoint, error) {
	var out struct {
		Webhooks []schemas.Endpoint `json:"webhooks"`
	}
	err := c.ask(ctx, http.MethodGet, webhooksPath, nil, &out)
	return out.Webhooks, err
}

// Get returns an endpoint. Secrets are not shown. Codes: not_found.
func (c Webhooks) Get(ctx context.Context, id schemas.EndpointID) (schemas.Endpoint, error) {
	return c.one(ctx, http.MethodGet, id, nil)
}

// Add adds an endpoint. The answer is the only one that shows its secret. It is tried once:
// after unavailable, look with [Webhooks.List] whether it is there. Codes: invalid, exhausted (the
// account has as many as it may).
func (c Webhooks) Add(ctx context.Context, spec WebhookSpec) (schemas.Endpoint, error) {
	var e schemas.Endpoint
	err := c.postOnce(ctx, webhooksPath, spec, &e)
	return e, err
}

// Update changes an endpoint. Codes: invalid, not_found.
func (c Webhooks) Update(ctx context.Context, id schemas.EndpointID, patch WebhookPatch) (schemas.Endpoint, error) {
	return c.one(ctx, http.MethodPatch, id, patch)
}

// Remove removes an endpoint with all that waits for it. Codes: not_found, also when an earlier
// try of this very call removed it.
func (c Webhooks) Remove(ctx context.Context, id schemas.EndpointID) error {
	return c.ask(ctx, http.MethodDelete, webhookPath(id), nil, nil)
}

// RotateSecret gives an endpoint a new secret, which only this answer shows. Until overlap has passed
// (0: 24 hours) deliveries are signed with the former ones too. It is tried once. Codes: not_found,
// invalid.
func (c Webhooks) RotateSecret(ctx context.Context, id schemas.EndpointID, overlap time.Duration) (schemas.Endpoint, error) {
	var in struct {
		Overlap schemas.Duration `json:"overlap,omitzero"`
	}
	in.Overlap = schemas.Duration(overlap)
	var e schemas.Endpoint
	err := c.postOnce(ctx, webhookPath(id)+"/rotate-secret", in, &e)
	return e, err
}

// Test has a message event with the data {"test":true} delivered to an endpoint. It is tried
// once. Codes: not_found, conflict (the endpoint is disabled).
func (c Webhooks) Test(ctx context.Context, id schemas.EndpointID) (schemas.DeliveryID, error) {
	var out struct {
		Delivery schemas.DeliveryID `json:"delivery"`
	}
	err := c.postOnce(ctx, webhookPath(id)+"/test", nil, &out)
	return out.Delivery, err
}

// Replay has deliveries sent again, with their first ids, and returns how many: in slices, as many as it takes. Each is tried
// once; after an error the first n are on their way, and it does no harm to have them sent once more. Codes: invalid, not_found (the
// endpoint), exhausted (the account's quota, or a replay of the account is in progress), unavailable.
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
