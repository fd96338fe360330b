package main

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestSettingsOfSessions: flags win over what the environment says, and what makes no sense is named.
func TestSettingsOfSessions(t *testing.T) {
	for name, c := range map[string]struct {
		flags   sessionFlags
		env     map[string]string
		first   string
		most    byteSize
		memory  int64
		idle    int64
		max     int
		backend string
		network schemas.NetworkMode
	}{
		"defaults":               {first: "local", memory: 512, idle: 900, max: 50, backend: "local", network: schemas.DenyAll},
		"less memory than usual": {first: "local", most: 256 << 20, memory: 256, idle: 900, max: 50, backend: "local", network: schemas.DenyAll},
		"the environment": {first: "local", env: map[string]string{"SANDBOX_BACKEND": "e2b", "SANDBOX_IDLE_TIMEOUT": "60",
			"SANDBOX_MEM_LIMIT": "1g", "SANDBOX_MAX_SESSIONS": "7", "E2B_ALLOW_INTERNET_ACCESS": "true", "E2B_SECURE_ACCESS": "true"},
			memory: 1024, idle: 60, max: 7, backend: "e2b", network: schemas.AllowAll},
		"flags": {first: "local", flags: sessionFlags{"docker", time.Hour, 64 << 20, 3}, env: map[string]string{"SANDBOX_BACKEND": "e2b",
			"SANDBOX_IDLE_TIMEOUT": "60", "SANDBOX_MEM_LIMIT": "x", "SANDBOX_MAX_SESSIONS": "0", "E2B_ALLOW_INTERNET_ACCESS": "true"},
			memory: 64, idle: 3600, max: 3, backend: "docker", network: schemas.DenyAll},
		"a provider that keeps none": {first: "lambda", memory: 512, idle: 900, max: 50, network: schemas.DenyAll},
	} {
		got, err := c.flags.sandboxes(c.first, operatorFlags{MaxMemory: c.most}, envOf(c.env))
		s := got.Spec.Config
		if err != nil || s.Provider != c.backend || s.MemoryLimit != c.memory || s.Lifecycle.IdleTimeout != c.idle || got.MaxSessions != c.max ||
			s.Network.Mode != c.network || !s.Persistent || s.PermissionMode != schemas.PermissionBypass {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for field, env := range map[string]string{
		"SANDBOX_BACKEND": "lambda", "SANDBOX_IDLE_TIMEOUT": "15m", "SANDBOX_MEM_LIMIT": "1k", "SANDBOX_MAX_SESSIONS": "501",
		"E2B_ALLOW_INTERNET_ACCESS": "maybe", "E2B_SECURE_ACCESS": "false",
	} {
		if _, err := (sessionFlags{}).settings(envOf(map[string]string{field: env})); schemas.Public(err).Field != field {
			t.Errorf("%s=%s: %v", field, env, err)
		}
	}
}
