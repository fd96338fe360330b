package records

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const mebi = 1 << 20 // bytes

// sandboxOf makes the record of what a client says, once that is checked. What is masked keeps its value
// of old, which is zero for a new sandbox.
func sandboxOf(providers schemas.Catalog, old schemas.Sandbox, spec schemas.SandboxSpec) (schemas.Sandbox, error) {
	var p schemas.Problems
	p.Add("", checkNames(schemas.SandboxPrefix, spec.Name, spec.Description))
	c := withDefaults(providers, spec.Config)
	for name, value := range c.EnvVars {
		if kept, ok := old.EnvVars[name]; ok && value == schemas.MaskedSecret {
			c.EnvVars[name] = kept
		}
	}
	p.Add("", CheckSandbox(providers, c))
	if err := p.Err(); err != nil {
		return schemas.Sandbox{}, err
	}
	return schemas.Sandbox{
		ID: old.ID, Account: old.Account, Name: spec.Name, Description: spec.Description, Provider: c.Provider,
		Network: schemas.Network{
			Mode: c.Network.Mode, AllowDomains: c.Network.AllowDomains, AllowCIDRs: c.Network.AllowCIDRs, DenyCIDRs: c.Network.DenyCIDRs,
			Credentials: c.Network.Credentials,
		},
		PermissionMode: c.PermissionMode, Runtimes: c.Runtimes, Timeout: inSeconds(c.Timeout), MemoryLimit: c.MemoryLimit * mebi,
		OutputLimit: c.OutputLimit, EnvVars: c.EnvVars, Persistent: c.Persistent, Guard: c.Guard, JobLimit: c.JobLimit,
		JobLifetime: inSeconds(c.JobLifetime), IdleTimeout: inSeconds(c.Lifecycle.IdleTimeout), MaxLifetime: inSeconds(c.Lifecycle.MaxLifetime),
		OnCreate: c.OnCreate, OnResume: c.OnResume, Options: c.Options, Manifest: old.Manifest, Created: old.Created, Updated: old.Updated,
		Artifacts: c.Artifacts,
	}, nil
}

// withDefaults fills in what decides how a call runs, so that a record says it.
func withDefaults(providers schemas.Catalog, c schemas.SandboxConfig) schemas.SandboxConfig {
	orElse(&c.Provider, providers.Default())
	orElse(&c.Network.Mode, schemas.DenyAll)
	orElse(&c.PermissionMode, schemas.PermissionAsk)
	orElse(&c.Guard, schemas.GuardDurable)
	if c.Timeout == 0 {
		c.Timeout = seconds(schemas.DefaultTimeout)
	}
	if c.OutputLimit == 0 {
		c.OutputLimit = schemas.DefaultOutputLimit
	}
	return c
}

func orElse[T ~string](to *T, value T) {
	if *to == "" {
		*to = value
	}
}

// sandboxSpec is what a client would have to say for the record to be made, secrets included. A record names its
// provider always.
func sandboxSpec(s schemas.Sandbox) schemas.SandboxSpec {
	return schemas.SandboxSpec{Name: s.Name, Description: s.Description, Config: withDefaults(nil, schemas.SandboxConfig{
		Provider: s.Provider,
		Network: schemas.NetworkConfig{
			Mode: s.Network.Mode, AllowDomains: s.Network.AllowDomains, AllowCIDRs: s.Network.AllowCIDRs, DenyCIDRs: s.Network.DenyCIDRs,
			Credentials: s.Network.Credentials,
		},
		PermissionMode: s.PermissionMode, Runtimes: s.Runtimes, Timeout: ofSeconds(s.Timeout), MemoryLimit: s.MemoryLimit / mebi,
		OutputLimit: s.OutputLimit, EnvVars: s.EnvVars, Persistent: s.Persistent, OnCreate: s.OnCreate, OnResume: s.OnResume,
		Lifecycle: schemas.LifecycleConfig{IdleTimeout: ofSeconds(s.IdleTimeout), MaxLifetime: ofSeconds(s.MaxLifetime)},
		JobLimit:  s.JobLimit, JobLifetime: ofSeconds(s.JobLifetime), Guard: s.Guard, Options: s.Options, Artifacts: s.Artifacts,
	})}
}

// sandboxDocument is what clients see: no secrets.
func sandboxDocument(s schemas.Sandbox) schemas.SandboxDocument {
	spec := sandboxSpec(s)
	spec.Config.EnvVars = maskVars(s.EnvVars)
	return schemas.SandboxDocument{
		ID: s.ID, Name: s.Name, Description: s.Description, Config: spec.Config, Manifest: s.Manifest,
		Created: s.Created, Updated: updated(s.Created, s.Updated),
	}
}

// updated is when a record changed last; those of old do not say.
func updated(created, changed time.Time) time.Time {
	if changed.IsZero() {
		return created
	}
	return changed
}

func inSeconds(n int64) schemas.Duration { return schemas.Duration(time.Duration(n) * time.Second) }

// ofSeconds rounds up: less than a second is not nothing.
func ofSeconds(d schemas.Duration) int64 {
	return seconds(time.Duration(d) + time.Second - 1)
}
