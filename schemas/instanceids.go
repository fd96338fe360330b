package schemas

import (
	"strings"
	"time"
)

// InstanceID names an instance within its account: <provider>.<sandbox>.<workspace>. It stays the same when the instance's sandbox is
// made again.
type InstanceID string

// MaxInstanceID is the most bytes of an id of an instance.
const MaxInstanceID = 256

// NewInstanceID is the id of the instance of a sandbox in a workspace at a provider.
func NewInstanceID(provider string, s SandboxID, w WorkspaceID) InstanceID {
	return InstanceID(provider + "." + string(s) + "." + string(w))
}

// Split reads an id. Code: invalid.
func (id InstanceID) Split() (provider string, s SandboxID, w WorkspaceID, err error) {
	bad := Invalidf("id", "%q is no id of an instance: want PROVIDER.SANDBOX.WORKSPACE, such as local.sb_1.ws_1", Quotable(string(id)))
	parts := strings.Split(string(id), ".")
	if len(id) > MaxInstanceID || len(parts) != 3 {
		return "", "", "", bad
	}
	provider, s, w = parts[0], SandboxID(parts[1]), WorkspaceID(parts[2])
	if provider == "" || s.Validate() != nil || w.Validate() != nil ||
		strings.ContainsFunc(provider, func(r rune) bool { return notAlnum(r) && r != '-' }) {
		return "", "", "", bad
	}
	return provider, s, w, nil
}

// Validate reports whether id may name an instance. Code: invalid.
func (id InstanceID) Validate() error {
	_, _, _, err := id.Split() //nolint:dogsled // the parts are asked for elsewhere
	return err
}

// InstanceRemoved is the state of an instance in the answer that says that it is gone. No record has it.
const InstanceRemoved InstanceState = "removed"

// InstanceDocument is an instance as it is shown: what its record says that is of use to those whose it is.
type InstanceDocument struct {
	ID        InstanceID    `json:"id"`
	Account   AccountID     `json:"account"`
	Sandbox   SandboxID     `json:"sandbox"`
	Workspace WorkspaceID   `json:"workspace"`
	Provider  string        `json:"provider"`
	State     InstanceState `json:"state"`
	// Wanted is what was requested and no worker has done yet; WantedAt is when.
	Wanted   InstanceTarget `json:"wanted,omitzero"`
	WantedAt time.Time      `json:"wanted_at,omitzero"`
	// Made is when its sandbox was first used, Used when a call or a job was last in it; Used lags by up to a minute while something is
	// in it. Reading an instance changes neither.
	Made time.Time `json:"made"`
	Used time.Time `json:"used"`
	// Deadline is when it ends at the latest; absent while it is made.
	Deadline time.Time `json:"deadline,omitzero"`
	Paused   time.Time `json:"paused,omitzero"` // since when
	// Worker owns it, where sandboxes end with their worker.
	Worker string `json:"worker,omitzero"`
	// Calls and Jobs are in it now: calls that run, and background jobs. Lists are without them.
	Calls []CallID `json:"calls,omitzero"`
	Jobs  []JobID  `json:"jobs,omitzero"`
}

// Document is the record as it is shown.
func (i Instance) Document() InstanceDocument {
	return InstanceDocument{
		ID: NewInstanceID(i.Provider, i.Sandbox, i.Workspace), Account: i.Account, Sandbox: i.Sandbox, Workspace: i.Workspace,
		Provider: i.Provider, State: i.State, Wanted: i.Wanted.State, WantedAt: i.Wanted.At, Made: i.Made, Used: i.Used,
		Deadline: i.Deadline, Paused: i.Paused, Worker: i.Worker,
	}
}
