package schemas

import (
	"strings"
	"testing"
)

func TestInstanceIDs(t *testing.T) {
	t.Parallel()
	id := NewInstanceID("local", "sb_1", "ws_2")
	provider, s, w, err := id.Split()
	if id != "local.sb_1.ws_2" || err != nil || provider != "local" || s != "sb_1" || w != "ws_2" {
		t.Errorf("%q is %q, %q, %q, %v", id, provider, s, w, err)
	}
	for _, bad := range []InstanceID{
		"", "local", "local.sb_1", "local.ws_2.sb_1", ".sb_1.ws_2", "local.sb_1.ws_2.x", "*.sb_1.ws_2", "local.sb_*.ws_2", "local.sb_1.>",
		"lo cal.sb_1.ws_2", "local.sb_.ws_2", "local.sb_1.ws_" + InstanceID(strings.Repeat("x", 65)), "owner.local.sb_1.ws_2",
	} {
		if err := bad.Validate(); CodeOf(err) != Invalid || len(err.Error()) > 300 {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
}

func FuzzInstanceID(f *testing.F) {
	f.Add("local.sb_1.ws_2")
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, text string) {
		provider, s, w, err := InstanceID(text).Split()
		if err != nil {
			return
		}
		if NewInstanceID(provider, s, w) != InstanceID(text) || strings.ContainsAny(text, "*> /") {
			t.Fatalf("%q was read as %q, %q, %q", text, provider, s, w)
		}
	})
}
