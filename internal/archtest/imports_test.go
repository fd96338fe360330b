package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestFloors(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		row, ok := rowOf(p.Path)
		if !ok {
			t.Errorf("%s stands on no floor: add it to rules_test.go with what it may import, and why", p.Path)
			continue
		}
		used[row] = true
		for _, err := range checkFloor(p) {
			t.Error(err)
		}
	}
	for row := range floors {
		if !used[row] {
			t.Errorf("rules_test.go: there is no package %s any more", row)
		}
	}
}

func checkFloor(p pkg) (errs []error) {
	row, _ := rowOf(p.Path)
	check := func(imports []string, extra ...string) {
		for _, path := range imports {
			to, ours := strings.CutPrefix(path, module+"/")
			if !ours || to == p.Path {
				continue
			}
			may := slices.Concat(floors[row].may, extra)
			if !slices.ContainsFunc(may, func(m string) bool { return covers(m, to) }) && !covers(row, to) {
				errs = append(errs, fmt.Errorf("%s imports %s: it may import only %v: %s", p.Path, to, may, floors[row].why))
			}
		}
	}
	check(p.Imports, anybodyMay...)
	check(p.testImports(), slices.Concat(anybodyMay, testsMay[""], testsMay[row], testsMay[p.Path])...)
	return errs
}

// covers reports whether a row of the table of imports that names folder allows a package to import to: the folder itself and the packages
// in it that have no row of their own.
func covers(folder, to string) bool {
	row, _ := rowOf(to)
	return row == folder || to == folder
}

func TestFloorsBite(t *testing.T) {
	for _, bad := range []pkg{
		{Path: "schemas", Imports: []string{module + "/streams"}},
		{Path: "providers", Imports: []string{module + "/streams"}},
		{Path: "providers/local", Imports: []string{module + "/workers"}},
		{Path: "workers", Imports: []string{module + "/gateway"}},
		{Path: "gateway", Imports: []string{module + "/records"}},
		{Path: "admission", Imports: []string{module + "/gateway"}},
		{Path: "client", TestImports: []string{module + "/cmd/sandjet"}},
		{Path: "streams", Imports: []string{module + "/internal/natstest"}},
	} {
		if len(checkFloor(bad)) == 0 {
			t.Errorf("nobody minds that %s imports %v", bad.Path, slices.Concat(bad.Imports, bad.TestImports))
		}
	}
	for _, good := range []pkg{
		{Path: "gateway", Imports: []string{module + "/admission", module + "/schemas"},
			TestImports: []string{module + "/records", module + "/internal/natstest"}},
		{Path: "providers/local", Imports: []string{module + "/providers"}},
	} {
		for _, err := range checkFloor(good) {
			t.Error(err)
		}
	}
}

func TestOwners(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		for _, err := range checkOwners(p, used) {
			t.Error(err)
		}
	}
	for _, o := range owners {
		if !used[o.module] {
			t.Errorf("rules_test.go: nothing imports %s any more", o.module)
		}
	}
	for m := range testModules {
		if !used[m] {
			t.Errorf("rules_test.go: no test imports %s any more", m)
		}
	}
}

func checkOwners(p pkg, used map[string]bool) (errs []error) {
	for _, path := range p.Imports {
		for m, why := range testModules {
			if below(path, m) {
				used[m] = true
				if !isTestPackage(p.Path) {
					errs = append(errs, fmt.Errorf("%s imports %s outside of a test: %s", p.Path, m, why))
				}
			}
		}
		for _, o := range owners {
			if !strings.HasPrefix(path, o.module) {
				continue
			}
			used[o.module] = true
			if !slices.ContainsFunc(o.homes, func(h string) bool { return below(p.Path, h) }) {
				errs = append(errs, fmt.Errorf("%s imports %s: only %v may: %s", p.Path, path, o.homes, o.why))
			}
		}
		if known := strings.Contains(strings.Split(path, "/")[0], "."); known && !below(path, module) && !hasRule(path) {
			errs = append(errs, fmt.Errorf("%s imports %s, which has no row in rules_test.go: say where it may be used and why", p.Path, path))
		}
	}
	for _, path := range p.testImports() {
		for m := range testModules {
			used[m] = used[m] || below(path, m)
		}
		for _, o := range owners {
			if strings.HasPrefix(path, o.module) &&
				!slices.ContainsFunc(slices.Concat(o.homes, ownersInTests[o.module]), func(h string) bool { return below(p.Path, h) }) {
				errs = append(errs, fmt.Errorf("the tests of %s import %s: only those of %v may: %s", p.Path, path,
					slices.Concat(o.homes, ownersInTests[o.module]), o.why))
			}
		}
	}
	return errs
}

func hasRule(path string) bool {
	for m := range testModules {
		if below(path, m) {
			return true
		}
	}
	for _, o := range owners {
		if strings.HasPrefix(path, o.module) {
			return true
		}
	}
	return false
}

// isTestPackage reports whether a package exists for tests alone.
func isTestPackage(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(part, "test") || part == "testdata" {
			return true
		}
	}
	return false
}

func TestOwnersBite(t *testing.T) {
	for _, bad := range []pkg{
		{Path: "gateway", Imports: []string{"github.com/nats-io/nats.go"}},
		{Path: "workers", Imports: []string{"github.com/prometheus/client_golang/prometheus"}},
		{Path: "streams", Imports: []string{"go.uber.org/goleak"}},
		{Path: "schemas", Imports: []string{"github.com/nobody/knows"}},
		{Path: "providers", TestImports: []string{"github.com/nats-io/nats.go"}},
	} {
		if len(checkOwners(bad, map[string]bool{})) == 0 {
			t.Errorf("nobody minds that %s imports %v", bad.Path, slices.Concat(bad.Imports, bad.TestImports))
		}
	}
}

// TestBoxLinksOnlyWhatItNeeds: the program inside sandboxes imports only small packages. It starts before every command, in a millisecond
// or two, and each package that it links would add its initialization to that.
func TestBoxLinksOnlyWhatItNeeds(t *testing.T) {
	never := []string{"net", "net/http", "crypto/tls", "encoding/json", "log/slog"}
	linked := []string{"providers/local/box", "providers/local/boxentry", "providers/local/confine", "providers/internal/netns"}
	found := false
	for _, p := range packages(t) {
		if !slices.Contains(linked, p.Path) {
			continue
		}
		found = found || p.Path == "providers/local/box"
		for _, path := range p.Imports {
			if slices.Contains(never, path) && path != "encoding/json" {
				t.Errorf("%s imports %s", p.Path, path)
			}
			if strings.Contains(path, ".") && !strings.HasPrefix(path, module) && !strings.HasPrefix(path, "golang.org/x/sys") {
				t.Errorf("%s imports %s: the box links the standard library and x/sys alone", p.Path, path)
			}
		}
	}
	if !found {
		t.Error("there is no package providers/local/box")
	}
}
