package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestTheGuideHasTheTableOfProviders makes the table of providers from their profiles and wants it, word for word, in
// docs/guides/records.md.
func TestTheGuideHasTheTableOfProviders(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| provider | networks | one run | memory | kept | jobs | workspace in | files on S3 | options |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	yes := func(v bool) string {
		if v {
			return "yes"
		}
		return "no"
	}
	for _, p := range catalog() {
		memory, shared, options, networks := "any", "any number of sandboxes", []string{}, make([]string, len(p.Networks))
		if p.MaxMemory < schemas.MaxMemoryLimit<<20 {
			memory = fmt.Sprintf("%d MiB", p.MaxMemory>>20)
		}
		for _, o := range p.Options {
			options = append(options, "`"+o.Name+"`")
		}
		for i, n := range p.Networks {
			networks[i] = string(n)
		}
		if p.ExclusiveWorkspaces {
			shared = "one sandbox at a time"
		}
		fmt.Fprintf(&b, "| %s | %s | %d s | %s | %s | %s | %s | %s | %s |\n", p.Name, strings.Join(networks, ", "),
			int(p.LongestRun().Seconds()), memory, yes(p.Persistent), yes(p.Jobs), shared,
			cmp.Or(p.Storage, schemas.StorageNo), strings.Join(options, ", "))
	}
	guide, err := os.ReadFile("../../docs/guides/records.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), b.String()) {
		t.Errorf("docs/guides/records.md lacks this table:\n%s", b.String())
	}
}

// TestTheTableOfBackends: each backend has a unique name that can be part of a NATS subject, at least one network mode, limits and flags.
func TestTheTableOfBackends(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, b := range backends() {
		p := b.profile
		if p.Name == "" || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || seen[p.Name] {
			t.Errorf("%q is not the name of a provider, or there twice", p.Name)
		}
		seen[p.Name] = true
		if len(p.Networks) == 0 || p.MaxTimeout <= 0 || p.MaxMemory <= 0 || p.MaxOutput <= 0 || b.flags() == nil {
			t.Errorf("%s: something is not said: %+v", p.Name, p)
		}
		if p.Jobs && !p.Persistent {
			t.Errorf("%s: jobs run in kept boxes", p.Name)
		}
	}
}
