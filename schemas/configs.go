package schemas

import "time"

// MaskedSecret is shown instead of a secret. Who sends it back keeps what is stored.
const MaskedSecret = "********"

// Collection names a kind of record that an account may make, change and remove: the last part of its
// path, and the field of its list.
type Collection string

// The collections.
const (
	Sandboxes  Collection = "sandboxes"
	Workspaces Collection = "workspaces"
	Agents     Collection = "agents"
)

// Collections lists every collection.
func Collections() []Collection { return []Collection{Sandboxes, Workspaces, Agents} }

// Document is a record as it leaves Sandjet: JSON, with its revision. A revision changes with every
// change of the record.
type Document struct {
	ID       string
	Revision uint64
	JSON     []byte
}

// AccountDocument is an account as clients see it.
type AccountDocument struct {
	ID          AccountID `json:"id"`
	Name        string    `json:"name,omitzero"`
	Description string    `json:"description,omitzero"`
	Created     time.Time `json:"createdAt"`
	Updated     time.Time `json:"updatedAt"`
}

// AccountSpec is what a client says of an account.
type AccountSpec struct {
	Name        string `json:"name,omitzero"`        // for people; it need not be unique
	Description string `json:"description,omitzero"` // at most MaxDescription bytes
}

// RemovedRecords counts what went with an account.
type RemovedRecords struct {
	Sandboxes  int `json:"sandboxes"`
	Workspaces int `json:"workspaces"`
	Agents     int `json:"agents"`
	Variables  int `json:"variables"`
	Webhooks   int `json:"webhooks"`
}

// SandboxDocument is a sandbox as clients see it.
type SandboxDocument struct {
	ID          SandboxID     `json:"id"`
	Name        string        `json:"name"`
	Description string        `json:"description,omitzero"`
	Config      SandboxConfig `json:"config"`
	Manifest    string        `json:"manifest,omitzero"` // what it was applied with
	Created     time.Time     `json:"createdAt"`
	Updated     time.Time     `json:"updatedAt"`
}

// SandboxSpec is what a client says of a sandbox.
type SandboxSpec struct {
	Name        string        `json:"name"`
	Description string        `json:"description,omitzero"`
	Config      SandboxConfig `json:"config,omitzero"`
}

// SandboxConfig is the rules of a sandbox. Which a provider can keep differs: the package records has
// the table. What is zero is at its default.
type SandboxConfig struct {
	Provider       string         `json:"provider,omitzero"` // default local
	Network        NetworkConfig  `json:"network,omitzero"`
	PermissionMode PermissionMode `json:"permissionMode,omitzero"` // default ask
	Runtimes       []string       `json:"runtimes,omitzero"`
	Timeout        int64          `json:"timeout,omitzero"`          // of one run, in seconds; default 30
	MemoryLimit    int64          `json:"memoryLimit,omitzero"`      // MiB; default: the provider's
	OutputLimit    int            `json:"outputLimitBytes,omitzero"` // default 64 KiB
	// EnvVars are shown as [MaskedSecret], but for those that name a variable of the account as env:NAME.
	EnvVars    map[string]string `json:"envVars,omitzero"`
	Persistent bool              `json:"persistent,omitzero"`
	Lifecycle  LifecycleConfig   `json:"lifecycle,omitzero"`
	OnCreate   []string          `json:"onCreate,omitzero"` // scripts
	OnResume   []string          `json:"onResume,omitzero"` // scripts
	JobLimit   int               `json:"jobLimit,omitzero"`
	// JobLifetime is in seconds.
	JobLifetime int64          `json:"jobLifetimeSeconds,omitzero"`
	Guard       GuardPolicy    `json:"guard,omitzero"`   // default durable
	Options     map[string]any `json:"options,omitzero"` // of the provider
}

// NetworkConfig says what a run may reach. The lists are for the mode restricted.
type NetworkConfig struct {
	Mode         NetworkMode `json:"mode,omitzero"` // default deny-all
	AllowDomains []string    `json:"allowDomains,omitzero"`
	AllowCIDRs   []string    `json:"allowCidrs,omitzero"`
	DenyCIDRs    []string    `json:"denyCidrs,omitzero"`
}

// LifecycleConfig says how long a kept box lives.
type LifecycleConfig struct {
	IdleTimeout int64 `json:"idleTimeoutSeconds,omitzero"`
	MaxLifetime int64 `json:"maxLifetimeSeconds,omitzero"`
}

// WorkspaceDocument is a workspace as clients see it.
type WorkspaceDocument struct {
	ID          WorkspaceID     `json:"id"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Config      WorkspaceConfig `json:"config"`
	// Sandbox is where calls run that name no sandbox; null: they must name one.
	Sandbox  *SandboxID `json:"sandbox"`
	Manifest string     `json:"manifest,omitzero"` // what it was applied with
	Created  time.Time  `json:"createdAt"`
	Updated  time.Time  `json:"updatedAt"`
}

// WorkspaceSpec is what a client says of a workspace.
type WorkspaceSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitzero"`
	Config      WorkspaceConfig `json:"config,omitzero"`
	Sandbox     *SandboxID      `json:"sandbox,omitzero"`
}

// WorkspaceConfig is the settings of a workspace.
type WorkspaceConfig struct {
	Storage StorageConfig `json:"storage,omitzero"`
}

// StorageConfig says where the files of a workspace are. The zero value is where the provider of its
// sandbox keeps them.
type StorageConfig struct {
	Provider string `json:"provider,omitzero"` // s3, or empty
}
