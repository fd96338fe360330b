package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/schemas"
)

// Manifests are the projects that an account's records belong to, each described by one manifest.
type Manifests struct {
	transport

	path string
}

// Manifests gives access to the manifests of an account. It sends nothing.
func (c *Client) Manifests(a schemas.AccountID) Manifests {
	return Manifests{c.transport(), accountPath(a) + "/manifest"}
}

// ApplyJSON is [Manifests.Apply] for a manifest as it was written, which need not be one: what is no part of a
// manifest is reported by the gateway together with whatever else is wrong.
func (c Manifests) ApplyJSON(
	ctx context.Context, manifest json.RawMessage, prune, dryRun bool,
) (schemas.ManifestAnswer, error) {
	var out schemas.ManifestAnswer
	err := c.ask(ctx, http.MethodPut, c.path, struct {
		Manifest json.RawMessage `json:"manifest"`
		Prune    bool            `json:"prune,omitzero"`
		DryRun   bool            `json:"dryRun,omitzero"` //nolint:tagliatelle // its name on the wire
	}{manifest, prune, dryRun}, &out)
	return out, err
}

// Apply makes an account's records what a manifest says, or with DryRun says what that would change. Applied
// again it makes the rest of what failed half way. Codes: invalid (with all that is wrong as [schemas.Error.Errors], by fields
// like resources[2].config.timeout), conflict, denied, exhausted.
func (c Manifests) Apply(ctx context.Context, r schemas.ManifestRequest) (schemas.ManifestAnswer, error) {
	var out schemas.ManifestAnswer
	err := c.ask(ctx, http.MethodPut, c.path, r, &out)
	return out, err
}

// Get is what stands of a project. Values of variables are masked; the mask, applied, keeps them. Codes:
// not_found (nothing is of the project).
func (c Manifests) Get(ctx context.Context, project string) (schemas.Manifest, error) {
	var out schemas.Manifest
	err := c.ask(ctx, http.MethodGet, c.path+"?project="+url.QueryEscape(project), nil, &out)
	return out, err
}
