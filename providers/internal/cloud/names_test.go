package cloud_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/internal/cloud"
)

func TestNames(t *testing.T) {
	t.Parallel()
	if a, b := cloud.Random(), cloud.Random(); a == b || len(a) != 32 {
		t.Errorf("got %s and %s", a, b)
	}
	if cloud.Digest("") != "" || cloud.Digest("a") == cloud.Digest("b") || len(cloud.Digest("ä/b")) != 32 {
		t.Errorf("got %q, %q", cloud.Digest(""), cloud.Digest("a"))
	}
	var known cloud.Known
	if known.Has("name") {
		t.Error("it is remembered without having been added")
	}
	known.Add("name")
	if !known.Has("name") {
		t.Error("it is not remembered")
	}
	for i := range 10_001 { // they are bounded
		known.Add(fmt.Sprint(i))
	}
	if known.Has("name") {
		t.Error("nothing was forgotten")
	}
}

func TestIsImage(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "docker.io/library/debian:12": true, "a@sha256:" + strings.Repeat("0", 64): true,
		strings.Repeat("a", 255): true, strings.Repeat("a", 256): false,
		"": false, "-a": false, "/a": false, "a b": false, "a\n": false, "ä": false,
	} {
		if got := cloud.IsImage(name); got != want {
			t.Errorf("IsImage(%q) = %t, want %t", name, got, want)
		}
	}
}
