package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

// sessionFlags are the settings of sessions of /v1/sandbox. Where a flag is not set, the SANDBOX_ variables of the environment apply.
type sessionFlags struct {
	SandboxBackend     string        `placeholder:"NAME" group:"Gateway" help:"Provider of the sessions of /v1/sandbox. Default: SANDBOX_BACKEND, or the default provider."`
	SandboxIdleTimeout time.Duration `placeholder:"DURATION" default:"0s" group:"Gateway" help:"Idle time after which the sandbox of a session ends; its files stay. 0: SANDBOX_IDLE_TIMEOUT in seconds, or 15m."`
	SandboxMemory      byteSize      `placeholder:"SIZE" default:"0" group:"Gateway" help:"Memory of a session's sandbox. 0: SANDBOX_MEM_LIMIT, such as 512m, or 512MiB."`
	SandboxMaxSessions int           `placeholder:"N" default:"0" group:"Gateway" help:"Sessions of one account that are active at the same time. 0: SANDBOX_MAX_SESSIONS, or 50."`
}

// The least values of settings.
const (
	leastSessionMemory = 16 << 20
	leastSessionIdle   = time.Second
)

// settings returns the flags, with values of the environment for those that are not set. Code: invalid.
func (f sessionFlags) settings(env func(string) (string, bool)) (sessionFlags, error) {
	text := func(name string) string { v, _ := env(name); return strings.TrimSpace(v) }
	bad := func(flag, variable string, given bool, format string, args ...any) error {
		if !given {
			flag = variable
		}
		return schemas.Invalidf(flag, format, args...)
	}
	out := f
	out.SandboxBackend = cmp.Or(f.SandboxBackend, text("SANDBOX_BACKEND"))
	if name := out.SandboxBackend; name != "" {
		if p, ok := catalog().Find(name); !ok || !p.Persistent {
			return f, bad("sandbox-backend", "SANDBOX_BACKEND", f.SandboxBackend != "",
				"%q keeps no sandboxes in this build: use one of %s", schemas.Quotable(name), strings.Join(sessionBackends(), ", "))
		}
	}
	if v := text("SANDBOX_IDLE_TIMEOUT"); f.SandboxIdleTimeout == 0 && v != "" {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			return f, bad("", "SANDBOX_IDLE_TIMEOUT", false, "%q is not a number of seconds, such as 900", schemas.Quotable(v))
		}
		out.SandboxIdleTimeout = time.Duration(n) * time.Second
	}
	if d := out.SandboxIdleTimeout; d != 0 && (d < leastSessionIdle || d > schemas.MaxIdleTimeout) {
		return f, bad("sandbox-idle-timeout", "SANDBOX_IDLE_TIMEOUT", f.SandboxIdleTimeout != 0, "%s is out of range: %s to %s", d,
			leastSessionIdle, schemas.MaxIdleTimeout)
	}
	if v := text("SANDBOX_MEM_LIMIT"); f.SandboxMemory == 0 && v != "" {
		n, err := memoryOf(v)
		if err != nil {
			return f, err
		}
		out.SandboxMemory = n
	}
	if n := out.SandboxMemory; n != 0 && (n < leastSessionMemory || n > schemas.MaxMemoryLimit<<20) {
		return f, bad("sandbox-memory", "SANDBOX_MEM_LIMIT", f.SandboxMemory != 0, "%s is out of range: at least %s", n,
			byteSize(leastSessionMemory))
	}
	if v := text("SANDBOX_MAX_SESSIONS"); f.SandboxMaxSessions == 0 && v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return f, bad("", "SANDBOX_MAX_SESSIONS", false, "%q is not a number of sessions, such as 50", schemas.Quotable(v))
		}
		out.SandboxMaxSessions = n
	}
	if n := out.SandboxMaxSessions; n < 0 || n > schemas.MaxSandboxSessions {
		return f, bad("sandbox-max-sessions", "SANDBOX_MAX_SESSIONS", f.SandboxMaxSessions != 0, "%d is out of range: 1 to %d", n,
			schemas.MaxSandboxSessions)
	}
	for _, name := range []string{"E2B_ALLOW_INTERNET_ACCESS", "E2B_SECURE_ACCESS"} {
		if _, err := truth(text(name)); err != nil {
			return f, schemas.Invalidf(name, "%q is neither true nor false", schemas.Quotable(text(name)))
		}
	}
	if secure, _ := truth(text("E2B_SECURE_ACCESS")); text("E2B_SECURE_ACCESS") != "" && !secure {
		return f, schemas.Invalidf("E2B_SECURE_ACCESS", "cannot be switched off: sandboxes of E2B are reached with a token of their own always")
	}
	return out, nil
}

// truth parses a boolean of the environment; empty is false.
func truth(s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	return strconv.ParseBool(s)
}

// memoryOf parses a size in Docker's notation, 512m, or in that of our own settings. Code: invalid.
func memoryOf(s string) (byteSize, error) {
	var b byteSize
	if b.UnmarshalText([]byte(s)) == nil {
		return b, nil
	}
	units := map[string]string{"b": "B", "k": "KiB", "m": "MiB", "g": "GiB"}
	if last := len(s) - 1; last > 0 {
		if unit := units[strings.ToLower(s[last:])]; unit != "" && b.UnmarshalText([]byte(s[:last]+unit)) == nil {
			return b, nil
		}
	}
	return 0, schemas.Invalidf("SANDBOX_MEM_LIMIT", "%q is not a size, such as 512m or 512MiB", schemas.Quotable(s))
}

// sessionBackends returns the providers that support sessions: those with persistent sandboxes.
func sessionBackends() []string {
	var names []string
	for _, p := range catalog() {
		if p.Persistent {
			names = append(names, p.Name)
		}
	}
	return names
}

// check returns an error for the first flag that is out of range.
func (f sessionFlags) check() error {
	_, err := f.settings(os.LookupEnv)
	return err
}

// sandboxes returns the gateway's settings for sessions. first is the default provider. Code: invalid.
func (f sessionFlags) sandboxes(first string, operator operatorFlags, env func(string) (string, bool)) (gateway.Sandboxes, error) {
	f, err := f.settings(env)
	if err != nil {
		return gateway.Sandboxes{}, err
	}
	const memory = 512 << 20
	backend := cmp.Or(f.SandboxBackend, first)
	if p, ok := catalog().Find(backend); !ok || !p.Persistent {
		backend = "" // the routes then answer that there are no sessions
	}
	size := f.SandboxMemory
	if size == 0 {
		if size = memory; operator.MaxMemory != 0 {
			size = min(size, operator.MaxMemory)
		}
	}
	network := schemas.DenyAll
	if v, _ := env("E2B_ALLOW_INTERNET_ACCESS"); backend == "e2b" {
		if on, _ := truth(strings.TrimSpace(v)); on {
			network = schemas.AllowAll
		}
	}
	idle := cmp.Or(f.SandboxIdleTimeout, schemas.DefaultIdleTimeout)
	return gateway.Sandboxes{
		MaxSessions: cmp.Or(f.SandboxMaxSessions, gateway.DefaultSandboxSessions),
		Spec: schemas.SandboxSpec{
			Name: "sessions-" + backend, Description: fmt.Sprintf("Of the sessions of /v1/sandbox on %s.", backend),
			Config: schemas.SandboxConfig{
				Provider: backend, Network: schemas.NetworkConfig{Mode: network}, PermissionMode: schemas.PermissionBypass,
				Guard: schemas.GuardOff, MemoryLimit: int64(size) >> 20, OutputLimit: schemas.MaxOutputLimit, Persistent: true,
				Lifecycle: schemas.LifecycleConfig{IdleTimeout: int64((idle + time.Second - 1) / time.Second)},
			},
		},
	}, nil
}
