package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Account is a tenant. Its keys are never stored, only their hashes.
type Account struct {
	ID          AccountID   `json:"id"`
	Name        string      `json:"name,omitzero"`
	Description string      `json:"description,omitzero"`
	KeyHash     string      `json:"key_hash"`         // hex SHA-256 of the bearer key
	Former      []FormerKey `json:"former,omitempty"` // keys that were replaced and work for a while yet
	Created     time.Time   `json:"created"`
	Updated     time.Time   `json:"updated,omitzero"`
}

// FormerKey is a key of an account that has been replaced.
type FormerKey struct {
	KeyHash string    `json:"key_hash"`
	Expires time.Time `json:"expires"` // from then on it is not known any more
}

// Sandbox is the record of a box: what runs in it is kept to these rules.
type Sandbox struct {
	ID             SandboxID         `json:"id"`
	Account        AccountID         `json:"account"`
	Name           string            `json:"name"`
	Description    string            `json:"description,omitzero"`
	Provider       string            `json:"provider"`
	Network        Network           `json:"network"`
	PermissionMode PermissionMode    `json:"permission_mode"`
	Timeout        Duration          `json:"timeout,omitzero"`      // of one run; default 30s, at most 10m
	MemoryLimit    int64             `json:"memory_limit,omitzero"` // bytes; 0 = the provider's default
	OutputLimit    int               `json:"output_limit_bytes,omitzero"`
	EnvVars        map[string]string `json:"env_vars,omitzero"`
	Persistent     bool              `json:"persistent"` // one box, kept between calls; else a fresh one for each
	// Guard is what the bash guard refuses; empty: durable.
	Guard GuardPolicy `json:"guard,omitzero"`
	// Runtimes are the language runtimes that commands may name (python, node); empty: all.
	Runtimes []string `json:"runtimes,omitzero"`
	// JobLimit is how many background jobs run in its box at the same time; 0: DefaultJobs.
	JobLimit int `json:"job_limit,omitzero"`
	// JobLifetime is how long a background job may run; 0: DefaultJobLifetime.
	JobLifetime Duration `json:"job_lifetime,omitzero"`
	// IdleTimeout and MaxLifetime end a kept box; 0: DefaultIdleTimeout, DefaultMaxLifetime.
	IdleTimeout Duration `json:"idle_timeout,omitzero"`
	MaxLifetime Duration `json:"max_lifetime,omitzero"`
	// OnCreate and OnResume are scripts for when a kept box is made, and whenever it is used again.
	OnCreate []string       `json:"on_create,omitempty"`
	OnResume []string       `json:"on_resume,omitempty"`
	Options  map[string]any `json:"options,omitempty"` // of the provider: strings, numbers, true and false
	Manifest string         `json:"manifest,omitzero"` // what it was applied with; empty: it was made by hand
	Created  time.Time      `json:"created"`
	Updated  time.Time      `json:"updated,omitzero"`
}

// Workspace is the record of a set of files.
type Workspace struct {
	ID      WorkspaceID `json:"id"`
	Account AccountID   `json:"account"`
	Name    string      `json:"name"`
	// Sandbox is where calls run that name none; empty: they must name one.
	Sandbox     SandboxID `json:"sandbox,omitzero"`
	Description string    `json:"description,omitzero"`
	Storage     string    `json:"storage,omitzero"`  // s3; empty: where the provider keeps files
	Manifest    string    `json:"manifest,omitzero"` // what it was applied with; empty: it was made by hand
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated,omitzero"`
}

// Network says what a run may reach.
type Network struct {
	Mode         NetworkMode `json:"mode"`
	AllowDomains []string    `json:"allow_domains,omitzero"`
	AllowCIDRs   []string    `json:"allow_cidrs,omitzero"`
	DenyCIDRs    []string    `json:"deny_cidrs,omitzero"`
}

// NetworkMode is the coarse rule of a [Network]; the zero value means deny-all.
type NetworkMode string

// The network modes.
const (
	DenyAll    NetworkMode = "deny-all"
	AllowAll   NetworkMode = "allow-all"
	Restricted NetworkMode = "restricted"
)

// PermissionMode says which tools need a person's yes.
type PermissionMode string

// The permission modes.
const (
	PermissionAsk    PermissionMode = "ask"
	PermissionEdit   PermissionMode = "edit"
	PermissionBypass PermissionMode = "bypass"
)

// Ref names a box. It is plain data that travels in messages and survives the worker. Epoch
// changes when the box was made anew: its processes are then others, its files the same.
type Ref struct {
	ID    string `json:"id"`
	Epoch string `json:"epoch"`
}

// IsZero reports whether r names no box.
func (r Ref) IsZero() bool { return r == Ref{} }

// Namespace names the files of a workspace on every provider: "fs-" and 40 hex digits. Agents and
// conversations that use the same workspace share it; tenants never do.
func Namespace(a AccountID, w WorkspaceID) string {
	sum := sha256.Sum256([]byte("filesystem-namespace\x00" + string(a) + ":" + string(w)))
	return "fs-" + hex.EncodeToString(sum[:20])
}
