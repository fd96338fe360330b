package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
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

// Sandbox is the record of a sandbox: the rules for what runs in its instances.
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
	Persistent     bool              `json:"persistent"` // one instance, kept between calls; else a fresh one for each
	// Guard is what the bash guard refuses; empty: durable.
	Guard GuardPolicy `json:"guard,omitzero"`
	// Runtimes are the language runtimes that commands may name (python, node); empty: all.
	Runtimes []string `json:"runtimes,omitzero"`
	// JobLimit is how many background jobs run in its instance at the same time; 0: DefaultJobs.
	JobLimit int `json:"job_limit,omitzero"`
	// JobLifetime is how long a background job may run; 0: DefaultJobLifetime.
	JobLifetime Duration `json:"job_lifetime,omitzero"`
	// IdleTimeout and MaxLifetime end a persistent instance; 0: DefaultIdleTimeout, DefaultMaxLifetime.
	IdleTimeout Duration `json:"idle_timeout,omitzero"`
	MaxLifetime Duration `json:"max_lifetime,omitzero"`
	// OnCreate and OnResume are scripts for when a persistent instance is made, and whenever it is used again.
	OnCreate []string `json:"on_create,omitempty"`
	OnResume []string `json:"on_resume,omitempty"`
	// Artifacts are patterns of files that are artifacts when a call changes them, beside those in the folder outputs.
	Artifacts []string       `json:"artifacts,omitempty"`
	Options   map[string]any `json:"options,omitempty"` // of the provider: strings, numbers, true and false
	Manifest  string         `json:"manifest,omitzero"` // what it was applied with; empty: it was made by hand
	Created   time.Time      `json:"created"`
	Updated   time.Time      `json:"updated,omitzero"`
}

// Workspace is the record of a set of files.
type Workspace struct {
	ID      WorkspaceID `json:"id"`
	Account AccountID   `json:"account"`
	Name    string      `json:"name"`
	// Sandbox is where calls run that name none; empty: they must name one.
	Sandbox     SandboxID `json:"sandbox,omitzero"`
	Description string    `json:"description,omitzero"`
	Storage     string    `json:"storage,omitzero"`    // s3; empty: where the provider keeps files
	Bucket      Bucket    `json:"bucket,omitzero"`     // of the account's own, on s3; the zero value: the operator's
	NoHarness   bool      `json:"no_harness,omitzero"` // tools say nothing of notes
	Manifest    string    `json:"manifest,omitzero"`   // what it was applied with; empty: it was made by hand
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated,omitzero"`
}

// WorkspaceFiles are the files of a workspace as a provider has them: those in folders are each provider's own.
type WorkspaceFiles struct {
	Workspace
	Provider string
}

// Bucket is a bucket of an account's own. Its credentials are names of variables, as env:NAME.
type Bucket struct {
	Name            string `json:"name"`
	Prefix          string `json:"prefix,omitzero"` // empty: sandbox/<namespace>/; else it ends with a slash
	Region          string `json:"region,omitzero"`
	Endpoint        string `json:"endpoint,omitzero"`
	PathStyle       bool   `json:"path_style,omitzero"`
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	SessionToken    string `json:"session_token,omitzero"`
}

// Network says what a run may reach.
type Network struct {
	Mode         NetworkMode `json:"mode"`
	AllowDomains []string    `json:"allow_domains,omitzero"`
	AllowCIDRs   []string    `json:"allow_cidrs,omitzero"`
	DenyCIDRs    []string    `json:"deny_cidrs,omitzero"`
	// Credentials binds variables to hosts: a run has a text that stands for the value, and only these hosts get the value itself.
	Credentials map[string][]string `json:"credentials,omitzero"`
}

// CheckCredential refuses a value that cannot be bound to hosts, because it cannot be a part of a header or is too short to be found in
// answers. The error has no code, continues a sentence that begins with the name of the value, and does not show the value.
func CheckCredential(value string) error {
	switch {
	case len(value) < MinCredential || len(value) > MaxCredential:
		return fmt.Errorf("is %d bytes long: a value that is bound to hosts has %d to %d", len(value), MinCredential, MaxCredential)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(value) != value:
		return errors.New("is bound to hosts, and cannot be sent in a header: use printable ASCII, without spaces at its ends")
	default:
		return nil
	}
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

// Ref names a sandbox at its provider. It is plain data that travels in messages and survives the worker. Epoch
// changes when it was made again: its processes are then others, its files the same.
type Ref struct {
	ID    string `json:"id"`
	Epoch string `json:"epoch"`
}

// IsZero reports whether r names no sandbox.
func (r Ref) IsZero() bool { return r == Ref{} }

// Namespace names the files of a workspace on every provider: "fs-" and 40 hex digits. Agents and
// conversations that use the same workspace share it; tenants never do.
func Namespace(a AccountID, w WorkspaceID) string {
	sum := sha256.Sum256([]byte("filesystem-namespace\x00" + string(a) + ":" + string(w)))
	return "fs-" + hex.EncodeToString(sum[:20])
}
