package archtest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestContributingListsTheLongSuites: the table of long suites in CONTRIBUTING.md has the targets of the Makefile, with the same
// descriptions.
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

// TestEveryLongTestIsInASuite: each package with tests that only the long form runs belongs to a long-… target of the Makefile.
func TestEveryLongTestIsInASuite(t *testing.T) {
	makefile := read(t, "Makefile")
	rest := regexp.MustCompile(`grep -vE '([^']+)\|\$\$\)'`).FindStringSubmatch(makefile) // of long-others: what the other targets have
	var named []string
	for _, m := range regexp.MustCompile(`\$\(LONG\)([^"]*)"`).FindAllStringSubmatch(makefile, -1) {
		for word := range strings.FieldsSeq(m[1]) {
			if folder, is := strings.CutPrefix(word, "./"); is {
				named = append(named, folder)
			}
		}
	}
	if rest == nil || len(named) < 10 {
		t.Fatalf("the Makefile has other long suites than this test reads: %q, %d packages", rest, len(named))
	}
	others := regexp.MustCompile(rest[1] + "|$)")
	for _, p := range packages(t) {
		if !slices.Contains(p.testImports(), module+"/internal/longtest") {
			continue
		}
		listed := slices.ContainsFunc(named, func(pattern string) bool {
			below, tree := strings.CutSuffix(pattern, "/...")
			return p.Path == below || tree && strings.HasPrefix(p.Path, below+"/")
		})
		if !listed && others.MatchString("/"+p.Path) {
			t.Errorf("%s has tests of the long form, and no long-… of the Makefile runs them", p.Path)
		}
	}
}
