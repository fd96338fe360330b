package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumentsNameWhatIsThere: a page that names a file of Go, a function in a file or a name of a package (`streams.Open`) names one that
// exists. Decisions are as they were when they were taken.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	declared := map[string]map[string]bool{} // by the last element of the package's path, all of that name together
	for _, p := range packages(t) {
		pkg := filepath.Base(p.Path)
		if declared[pkg] == nil {
			declared[pkg] = map[string]bool{}
		}
		for _, file := range slices.Concat(p.files(p.GoFiles), p.files(p.IgnoredGoFiles)) {
			for _, m := range declaration.FindAllStringSubmatch(readFile(t, file), -1) {
				declared[pkg][m[1]] = true
			}
		}
	}
	n := 0
	for _, file := range markdown(t) {
		name := filepath.ToSlash(strings.TrimPrefix(file, top+string(filepath.Separator)))
		if strings.HasPrefix(name, "docs/adr/") || name == "CHANGELOG.md" {
			continue
		}
		found, errs := checkReferences(readFile(t, file), declared)
		n += found
		for _, err := range errs {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n < 60 {
		t.Errorf("only %d names were found: the rule does not see them", n)
	}
}

var (
	declaration = regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type |const |var |\t)([A-Z]\w*)\b`)
	functionIn  = regexp.MustCompile("`(\\w+)` in `([\\w/]+\\.go)`")
	goFile      = regexp.MustCompile("`(\\w+/[\\w/]+\\.go)`")
	qualified   = regexp.MustCompile("`([a-z][a-z0-9]*)\\.([A-Z]\\w*)[^`]*`")
)

func checkReferences(page string, declared map[string]map[string]bool) (found int, errs []error) {
	for _, m := range functionIn.FindAllStringSubmatch(page, -1) {
		found++
		text, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(m[2])))
		if err != nil || !regexp.MustCompile(`(?m)^func (\([^)]*\) )?`+m[1]+`\(`).Match(text) {
			errs = append(errs, fmt.Errorf("there is no function %s in %s", m[1], m[2]))
		}
	}
	for _, m := range goFile.FindAllStringSubmatch(page, -1) {
		found++
		if _, err := os.Stat(filepath.Join(top, filepath.FromSlash(m[1]))); err != nil {
			errs = append(errs, fmt.Errorf("there is no file %s", m[1]))
		}
	}
	for _, m := range qualified.FindAllStringSubmatch(page, -1) {
		names, ours := declared[m[1]]
		if !ours {
			continue
		}
		if found++; !names[m[2]] {
			errs = append(errs, fmt.Errorf("there is no %s.%s", m[1], m[2]))
		}
	}
	return found, errs
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReferencesBite(t *testing.T) {
	declared := map[string]map[string]bool{"streams": {"Open": true}}
	for page, want := range map[string]int{
		"`streams.Open` and `http.NoSuch`":         0,
		"`streams.Opened`":                         1,
		"`streams/bus.go`":                         0,
		"`streams/nothing.go`":                     1,
		"`judge` in `workers/jobs/judge.go`":       0,
		"`nothing` in `workers/jobs/judge.go`":     1,
		"`judge` in `workers/judge.go` is nowhere": 2,
	} {
		if _, errs := checkReferences(page, declared); len(errs) != want {
			t.Errorf("%q: %v, want %d", page, errs, want)
		}
	}
}
