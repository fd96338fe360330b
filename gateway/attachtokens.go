package gateway

import (
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// AttachToken is the response with a new attach token.
type AttachToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// attachTokenRequest is the body of a request for an attach token.
type attachTokenRequest struct {
	Conversations []string          `json:"conversations"`
	Ops           []attachtoken.Op  `json:"ops,omitzero"` // default: read
	TTL           *schemas.Duration `json:"ttl,omitzero"` // default: 15m
	// Of the calls that are sent with it; see [attachtoken.Reach].
	Workspaces []schemas.WorkspaceID `json:"workspaces,omitzero"`
	Sandboxes  []schemas.SandboxID   `json:"sandboxes,omitzero"`
	Agents     []schemas.AgentID     `json:"agents,omitzero"`
	Tools      []schemas.Tool        `json:"tools,omitzero"`
}

// postAttachToken makes an attach token that is bound to the API key of the request.
func (g *Gateway) postAttachToken(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in attachTokenRequest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if g.Keys == nil {
		return schemas.Errorf(schemas.Unsupported, "this gateway makes no attach tokens")
	}
	ttl, now := attachtoken.DefaultTTL, g.Bus.Now()
	if in.TTL != nil {
		ttl = time.Duration(*in.TTL)
	}
	if len(in.Ops) == 0 {
		in.Ops = []attachtoken.Op{attachtoken.Read}
	}
	t := attachtoken.Claims{
		Account: a, Key: credentials.Fingerprint(web.Bearer(r.Header)), Conversations: in.Conversations, Ops: in.Ops,
		Expires: now.Add(ttl).UTC().Truncate(time.Second),
		Reach:   attachtoken.Reach{Workspaces: in.Workspaces, Sandboxes: in.Sandboxes, Agents: in.Agents, Tools: in.Tools},
	}
	if err := t.Validate(now); err != nil {
		return err
	}
	token, err := attachtoken.Signer{Keys: g.Keys}.Sign(t)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusCreated, AttachToken{token, t.Expires})
	return nil
}
