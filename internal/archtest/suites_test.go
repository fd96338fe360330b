package archtest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table of long suites in CONTRIBUTING is that of the Makefile, with what each takes.
func TestContributingListsTheLongSuites(t *testing.T) {
	made := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(long-[a-z]+):.*## (.+)$`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		made[m[1]] = m[2]
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `make (long-[a-z]+)` \\| (.+) \\| ([0-9]+) \\|").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		listed[m[1]] = m[2]
	}
	if len(made) < 10 || !maps.Equal(made, listed) {
		t.Errorf("CONTRIBUTING lists other long suites than the Makefile makes, or calls them otherwise:\n%s\n%s", strings.Join(rows(made), "\n"),
			strings.Join(rows(listed), "\n"))
	}
}

func rows(of map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, name+": "+of[name])
	}
	return all
}
