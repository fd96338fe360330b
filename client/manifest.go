package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/schemas"
)

// ApplyManifestJSON is [Client.ApplyManifest] for a manifest as it was written, which need not be one: what is no part of a
// manifest is reported by the gateway together with whatever else is wrong.
func (c *Client) ApplyManifestJSON(
	ctx context.Context, a schemas.AccountID, manifest json.RawMessage, prune, dryRun bool,
) (schemas.ManifestAnswer, error) {
	var out schemas.ManifestAnswer
	err := c.ask(ctx, http.MethodPut, accountPath(a)+"/manifest", struct {
		Manifest json.RawMessage `json:"manifest"`
		Prune    bool            `json:"prune,omitzero"`
		DryRun   bool            `json:"dryRun,omitzero"` //nolint:tagliatelle // its name on the wire
	}{manifest, prune, dryRun}, &out)
	return out, err
}

// ApplyManifest makes an account's records what a manifest says, or with DryRun says what that would change. Applied
// again it makes the rest of what failed half way. Codes: invalid (with all that is wrong as [schemas.Error.Errors], by fields
// like resources[2].config.timeout), conflict, denied, exhausted.
func (c *Client) ApplyManifest(ctx context.Context, a schemas.AccountID, r schemas.ManifestRequest) (schemas.ManifestAnswer, error) {
	var out schemas.ManifestAnswer
	err := c.ask(ctx, http.MethodPut, accountPath(a)+"/manifest", r, &out)
	return out, err
}

// Manifest is what stands of a project. Values of variables are masked; the mask, applied, keeps them. Codes:
// not_found (nothing is of the project).
func (c *Client) Manifest(ctx context.Context, a schemas.AccountID, project string) (schemas.Manifest, error) {
	var out schemas.Manifest
	err := c.ask(ctx, http.MethodGet, accountPath(a)+"/manifest?project="+url.QueryEscape(project), nil, &out)
	return out, err
}
