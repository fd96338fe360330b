package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/schemas"
)

// Manifests applies and reads the manifests of an account. A manifest describes the records of one project.
type Manifests struct {
	transport

	path string
}

// Manifests returns access to the manifests of an account. It sends no request.
func (c *Client) Manifests(a schemas.AccountID) Manifests {
	return Manifests{c.transport(), accountPath(a) + "/manifest"}
}

// ApplyJSON is [Manifests.Apply] for a manifest as JSON, which may be invalid: the gateway then reports unknown fields together with all
// other errors.
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

// Apply changes an account's records to match a manifest or, with DryRun, returns what it would change. After a partial failure, applying
// it again makes the remaining changes. Codes: invalid (with all errors as [schemas.Error.Errors], by fields like
// resources[2].config.timeout), conflict, denied, exhausted.
func (c Manifests) Apply(ctx context.Context, r schemas.ManifestRequest) (schemas.ManifestAnswer, error) {
	var out schemas.ManifestAnswer
	err := c.ask(ctx, http.MethodPut, c.path, r, &out)
	return out, err
}

// Get returns the stored state of a project as a manifest. Values of variables are masked; if the masked manifest is applied, the values
// stay. Code: not_found (no record belongs to the project).
func (c Manifests) Get(ctx context.Context, project string) (schemas.Manifest, error) {
	var out schemas.Manifest
	err := c.ask(ctx, http.MethodGet, c.path+"?project="+url.QueryEscape(project), nil, &out)
	return out, err
}
