package client

import (
	"context"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// AttachTokenSpec describes what a new attach token allows.
type AttachTokenSpec struct {
	// Conversations are ids; one that ends in * stands for all that begin so. 1 to 32.
	Conversations []string `json:"conversations"`
	// Ops are read, send, cancel and approve. Default: read alone.
	Ops []string `json:"ops,omitempty"`
	// Workspaces, Sandboxes, Agents and Tools limit the calls that are sent with the token: ids, and names of tools. An empty list means
	// no limit. They require send among Ops.
	Workspaces []schemas.WorkspaceID `json:"workspaces,omitempty"`
	Sandboxes  []schemas.SandboxID   `json:"sandboxes,omitempty"`
	Agents     []schemas.AgentID     `json:"agents,omitempty"`
	Tools      []schemas.Tool        `json:"tools,omitempty"`
	// TTL is how long the token is good, at most 24 h. Default: 15 minutes.
	TTL schemas.Duration `json:"ttl,omitzero"`
}

// AttachToken is a credential for a browser, in place of the account's key.
type AttachToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// AddAttachToken makes an attach token. It is valid until it expires, or until soon after the client's key is revoked. Codes: invalid,
// unsupported (the gateway has no keys to sign with).
func (c *Client) AddAttachToken(ctx context.Context, spec AttachTokenSpec) (AttachToken, error) {
	var t AttachToken
	err := c.transport().ask(ctx, http.MethodPost, "/v1/attach-tokens", spec, &t)
	return t, err
}
