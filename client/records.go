package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Me names the account whose key the client has, wherever an account is asked for. Others are for the
// administrator's key.
const Me schemas.AccountID = "me"

// Accounts reads and changes the accounts of a deployment. Its methods take an account's id, or [Me]; other accounts than the key's
// require the administrator's key.
type Accounts struct{ transport }

// Accounts returns access to all accounts. It sends no request.
func (c *Client) Accounts() Accounts { return Accounts{c.transport()} }

// List returns all accounts, by id. It requires the administrator's key. Code: denied.
func (c Accounts) List(ctx context.Context) ([]schemas.AccountDocument, error) {
	var out struct {
		Accounts []schemas.AccountDocument `json:"accounts"`
	}
	err := c.ask(ctx, http.MethodGet, accountsPath, nil, &out)
	return out.Accounts, err
}

// Get returns an account. Code: not_found.
func (c Accounts) Get(ctx context.Context, a schemas.AccountID) (schemas.AccountDocument, error) {
	var out schemas.AccountDocument
	err := c.ask(ctx, http.MethodGet, accountPath(a), nil, &out)
	return out, err
}

// Add makes an account and returns it with its key, which no other response contains. It is tried once. Codes: invalid, denied, exhausted.
func (c Accounts) Add(ctx context.Context, spec schemas.AccountSpec) (schemas.AccountDocument, string, error) {
	var out struct {
		Account schemas.AccountDocument `json:"account"`
		Secret  string                  `json:"secret"`
	}
	err := c.postOnce(ctx, accountsPath, spec, &out)
	return out.Account, out.Secret, err
}

// Patch merges a patch into an account's name and description. Codes: invalid, not_found.
func (c Accounts) Patch(ctx context.Context, a schemas.AccountID, patch json.RawMessage) (schemas.AccountDocument, error) {
	var out schemas.AccountDocument
	err := c.ask(ctx, http.MethodPatch, accountPath(a), patch, &out)
	return out, err
}

// RotateKey gives an account a new key and returns it; no other response contains it. Former keys work until overlap has passed. It is
// tried once. Codes: not_found, invalid, conflict.
func (c Accounts) RotateKey(ctx context.Context, a schemas.AccountID, overlap time.Duration) (string, error) {
	var in struct {
		Overlap schemas.Duration `json:"overlap,omitzero"`
	}
	in.Overlap = schemas.Duration(overlap)
	var out struct {
		Secret string `json:"secret"`
	}
	err := c.postOnce(ctx, accountPath(a)+"/rotate-secret", in, &out)
	return out.Secret, err
}

// Usage returns how much an account stores on the log, and its limits. Codes: not_found, unavailable.
func (c Accounts) Usage(ctx context.Context, a schemas.AccountID) (schemas.Usage, error) {
	var out schemas.Usage
	err := c.ask(ctx, http.MethodGet, accountPath(a)+"/usage", nil, &out)
	return out, err
}

// Remove removes an account with all its records, and returns their numbers. Codes: not_found, also if an earlier try of this call removed
// it; conflict.
func (c Accounts) Remove(ctx context.Context, a schemas.AccountID) (schemas.RemovedRecords, error) {
	var out schemas.RemovedRecords
	err := c.ask(ctx, http.MethodDelete, accountPath(a), nil, &out)
	return out, err
}

// Records reads and changes the records of one collection of an account; T is the type of a record.
type Records[T any] struct {
	transport transport
	path      string
	name      schemas.Collection
}

// Sandboxes returns access to the sandboxes of an account. It sends no request.
func (c *Client) Sandboxes(a schemas.AccountID) Records[schemas.SandboxDocument] {
	return Records[schemas.SandboxDocument]{c.transport(), accountPath(a) + "/" + string(schemas.Sandboxes), schemas.Sandboxes}
}

// Workspaces returns access to the workspaces of an account. It sends no request.
func (c *Client) Workspaces(a schemas.AccountID) Records[schemas.WorkspaceDocument] {
	return Records[schemas.WorkspaceDocument]{c.transport(), accountPath(a) + "/" + string(schemas.Workspaces), schemas.Workspaces}
}

// Agents returns access to the agents of an account. It sends no request.
func (c *Client) Agents(a schemas.AccountID) Records[schemas.AgentDocument] {
	return Records[schemas.AgentDocument]{c.transport(), accountPath(a) + "/" + string(schemas.Agents), schemas.Agents}
}

// Models returns access to the models of an account. It sends no request.
func (c *Client) Models(a schemas.AccountID) Records[schemas.ModelDocument] {
	return Records[schemas.ModelDocument]{c.transport(), accountPath(a) + "/" + string(schemas.Models), schemas.Models}
}

// AgentTools returns the definitions of an agent's tools, as JSON for a model's API: in a format (anthropic, openai, openai-strict,
// openai-responses or mcp) and a dialect; each may be empty for the default. Codes: not_found, invalid.
func (c *Client) AgentTools(ctx context.Context, a schemas.AccountID, id, format string, d schemas.Dialect) (json.RawMessage, error) {
	return c.definitions(ctx, c.Agents(a).one(id)+"/tools", format, d)
}

// Tools returns the definitions of all tools, in a format and a dialect as [Client.AgentTools] does. Codes: invalid.
func (c *Client) Tools(ctx context.Context, format string, d schemas.Dialect) (json.RawMessage, error) {
	return c.definitions(ctx, "/v1/tools", format, d)
}

func (c *Client) definitions(ctx context.Context, path, format string, d schemas.Dialect) (json.RawMessage, error) {
	var out struct {
		Tools json.RawMessage `json:"tools"`
	}
	q := url.Values{}
	for name, v := range map[string]string{"format": format, "dialect": string(d)} {
		if v != "" {
			q.Set(name, v)
		}
	}
	err := c.transport().ask(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &out)
	return out.Tools, err
}

// List returns all records, by id.
func (r Records[T]) List(ctx context.Context) ([]T, error) {
	var out map[schemas.Collection][]T
	err := r.transport.ask(ctx, http.MethodGet, r.path, nil, &out)
	return out[r.name], err
}

// Get returns one record. Code: not_found.
func (r Records[T]) Get(ctx context.Context, id string) (T, error) {
	var out T
	err := r.transport.ask(ctx, http.MethodGet, r.one(id), nil, &out)
	return out, err
}

// Add adds a record with a spec: a [schemas.SandboxSpec], [schemas.WorkspaceSpec], [schemas.ModelSpec], [schemas.AgentSpec] or the same as
// JSON. It is tried once. Codes: invalid, conflict (the name is taken), exhausted.
func (r Records[T]) Add(ctx context.Context, spec any) (T, error) {
	var out T
	err := r.transport.postOnce(ctx, r.path, spec, &out)
	return out, err
}

// Patch merges a patch into a record, by RFC 7396: null removes a field. Codes: invalid, not_found, conflict.
func (r Records[T]) Patch(ctx context.Context, id string, patch any) (T, error) {
	var out T
	err := r.transport.ask(ctx, http.MethodPatch, r.one(id), patch, &out)
	return out, err
}

// Remove removes a record. Code: not_found, also if an earlier try of this call removed it.
func (r Records[T]) Remove(ctx context.Context, id string) error {
	return r.transport.ask(ctx, http.MethodDelete, r.one(id), nil, nil)
}

func (r Records[T]) one(id string) string { return r.path + "/" + url.PathEscape(id) }

const accountsPath = "/v1/accounts"

func accountPath(a schemas.AccountID) string { return accountsPath + "/" + url.PathEscape(string(a)) }
