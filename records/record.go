package records

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// record is one value of the bucket: exactly one field is set, by the key's first part.
type record struct {
	Account   *schemas.Account     `json:"account,omitzero"`
	Sandbox   *schemas.Sandbox     `json:"sandbox,omitzero"`
	Workspace *schemas.Workspace   `json:"workspace,omitzero"`
	Agent     *schemas.Agent       `json:"agent,omitzero"`
	Model     *schemas.Model       `json:"model,omitzero"`
	Variable  *schemas.Variable    `json:"variable,omitzero"`
	Endpoint  *schemas.Endpoint    `json:"endpoint,omitzero"`
	Channel   *schemas.ChatChannel `json:"channel,omitzero"`
	Skill     *schemas.Skill       `json:"skill,omitzero"`

	Sessions *schemas.SandboxSessions `json:"sandbox_sessions,omitzero"`
}

// The kinds of record, which begin their keys.
const (
	kindAccount   = "account"
	kindSandbox   = "sandbox"
	kindWorkspace = "workspace"
	kindAgent     = "agent"
	kindModel     = "model"
	kindVariable  = "variable"
	kindEndpoint  = "endpoint"
	kindChannel   = "channel"
	kindSessions  = "sandboxsessions"
	kindSkill     = "skill"
)

func accountKey(a schemas.AccountID) string { return kindAccount + "." + string(a) }

func sandboxKey(a schemas.AccountID, s schemas.SandboxID) string {
	return kindSandbox + "." + string(a) + "." + string(s)
}

func workspaceKey(a schemas.AccountID, w schemas.WorkspaceID) string {
	return kindWorkspace + "." + string(a) + "." + string(w)
}

func agentKey(a schemas.AccountID, g schemas.AgentID) string {
	return kindAgent + "." + string(a) + "." + string(g)
}

func modelKey(a schemas.AccountID, m schemas.ModelID) string {
	return kindModel + "." + string(a) + "." + string(m)
}

func variableKey(a schemas.AccountID, name string) string {
	return kindVariable + "." + string(a) + "." + name
}

func endpointKey(a schemas.AccountID, e schemas.EndpointID) string {
	return kindEndpoint + "." + string(a) + "." + string(e)
}

func channelKey(a schemas.AccountID, c schemas.ChannelID) string {
	return kindChannel + "." + string(a) + "." + string(c)
}

func skillKey(a schemas.AccountID, k schemas.SkillID) string {
	return kindSkill + "." + string(a) + "." + string(k)
}

// key returns the key of r, "" if this version does not know its kind.
func (r record) key() string {
	switch {
	case r.Account != nil:
		return accountKey(r.Account.ID)
	case r.Sandbox != nil:
		return sandboxKey(r.Sandbox.Account, r.Sandbox.ID)
	case r.Workspace != nil:
		return workspaceKey(r.Workspace.Account, r.Workspace.ID)
	case r.Agent != nil:
		return agentKey(r.Agent.Account, r.Agent.ID)
	case r.Model != nil:
		return modelKey(r.Model.Account, r.Model.ID)
	case r.Variable != nil:
		return variableKey(r.Variable.Account, r.Variable.Name)
	case r.Endpoint != nil:
		return endpointKey(r.Endpoint.Account, r.Endpoint.ID)
	case r.Channel != nil:
		return channelKey(r.Channel.Account, r.Channel.ID)
	case r.Sessions != nil:
		return sessionsKey(r.Sessions.Account)
	case r.Skill != nil:
		return skillKey(r.Skill.Account, r.Skill.ID)
	}
	return ""
}

// kinds returns the kinds of an account's records.
func kinds() []string {
	return []string{kindSandbox, kindWorkspace, kindAgent, kindModel, kindVariable, kindEndpoint, kindChannel, kindSessions, kindSkill}
}

// splitKey parses a key; id is empty for an account.
func splitKey(key string) (kind string, account schemas.AccountID, id string, ok bool) {
	parts := strings.Split(key, ".")
	switch {
	case len(parts) == 2 && parts[0] == kindAccount:
		return parts[0], schemas.AccountID(parts[1]), "", true
	case len(parts) == 3 && slices.Contains(kinds(), parts[0]):
		return parts[0], schemas.AccountID(parts[1]), parts[2], true
	}
	return "", "", "", false
}

// HashKey returns what is stored of a bearer key: its SHA-256 in hex. Keys are long and random, so a plain hash is enough.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// derivedID returns the id of a record that every process must name alike without coordination, such as an account's default workspace.
func derivedID(prefix string, a schemas.AccountID, name string) string {
	sum := sha256.Sum256([]byte("record\x00" + prefix + "\x00" + string(a) + "\x00" + name))
	return prefix + hex.EncodeToString(sum[:13])
}
