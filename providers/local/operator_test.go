//go:build linux

package local_test

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// TestOperatorsBoundBoxes: the provider has the last word, whatever record it is asked with.
//
//guarantee:what-one-tenant-can-do-to-another
func TestOperatorsBoundBoxes(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.Networks, o.MaxMemory, o.MaxCPUs, o.Pool = nil, 64<<20, 1, -1 })
	for name, want := range map[string]string{"network": "--networks", "memory": "--max-memory", "cpus": "--max-cpus"} {
		cmd := command("true")
		switch name {
		case "network":
			cmd.Network.Mode, cmd.Spec.Network.Mode = schemas.AllowAll, schemas.AllowAll
		case "memory":
			cmd.Spec.MemoryLimit = 1 << 40
		case "cpus":
			cmd.Spec.CPUs = 2
		}
		res, err := p.Run(t.Context(), cmd)
		if schemas.CodeOf(err) != schemas.Unsupported || res.Started || !strings.Contains(err.Error(), want) {
			t.Errorf("run, %s: %v", name, err)
		}
		if _, err := p.Reserve(t.Context(), "kept", cmd.Spec); schemas.CodeOf(err) != schemas.Unsupported {
			t.Errorf("reserve, %s: %v", name, err)
		}
	}
	// A box that asks for nothing gets no more than the most either.
	if res := run(t, p, "head -c 100M /dev/zero | tail | wc -c"); strings.TrimSpace(string(res.Stdout)) == "104857600" {
		t.Error("it had more memory than the operator allows")
	}
}
