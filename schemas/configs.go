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
	Models     Collection = "models"
	Agents     Collection = "agents"
)

// Collections lists every collection.
func Collections() []Collection { return []Collection{Sandboxes, Workspaces, Models, Agents} }

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
	Models     int `json:"models"`
	Agents     int `json:"agents"`
	Variables  int `json:"variables"`
	Webhooks   int `json:"webhooks"`
	Channels   int `json:"channels"`
	Skills     int `json:"skills"`
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
	// Artifacts are files that are kept as artifacts when a call changes them, beside those below outputs: paths from the root of the
	// workspace with wildcards, such as report.pdf or plots/*.png.
	Artifacts []string `json:"artifacts,omitzero"`
}

// NetworkConfig says what a run may reach. The lists are for the mode restricted.
type NetworkConfig struct {
	Mode         NetworkMode `json:"mode,omitzero"` // default deny-all
	AllowDomains []string    `json:"allowDomains,omitzero"`
	AllowCIDRs   []string    `json:"allowCidrs,omitzero"`
	DenyCIDRs    []string    `json:"denyCidrs,omitzero"`
	// Credentials binds names of EnvVars to hosts: a run has a text that stands for the value, and only these hosts, asked by HTTPS,
	// get the value itself, in the headers of requests.
	Credentials map[string][]string `json:"credentials,omitzero"`
}

// LifecycleConfig says how long a persistent instance lives.
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
	Harness HarnessConfig `json:"harness,omitzero"`
}

// HarnessConfig says what models read about a workspace beside its tools.
type HarnessConfig struct {
	// Enabled: the tools of agents that may write here say that notes and open tasks are kept in MEMORY.md and TASKS.md. Absent: true.
	Enabled *bool `json:"enabled,omitzero"`
}

// StorageConfig says where the files of a workspace are. The zero value is where the provider of its
// sandbox keeps them.
type StorageConfig struct {
	Provider string `json:"provider,omitzero"` // s3, or empty
	// Bucket is one of the account's own, and all that follows is for it alone. Empty: the operator's.
	Bucket string `json:"bucket,omitzero"`
	// Prefix is what the keys of the workspace begin with; default sandbox/<namespace>/.
	Prefix    string `json:"prefix,omitzero"`
	Region    string `json:"region,omitzero"`    // default us-east-1
	Endpoint  string `json:"endpoint,omitzero"`  // URL of a service that speaks as S3 does; default Amazon's
	PathStyle bool   `json:"pathStyle,omitzero"` // URLs have the bucket in their paths
	// AccessKeyID and SecretAccessKey, and SessionToken where there is one, name variables of the account, as env:NAME.
	AccessKeyID     string `json:"accessKeyId,omitzero"`
	SecretAccessKey string `json:"secretAccessKey,omitzero"`
	SessionToken    string `json:"sessionToken,omitzero"`
}
