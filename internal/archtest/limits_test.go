package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	goconstant "go/constant"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestLimitsAreThoseOfTheCode: where docs/LIMITS.md names a limit, of schemas or as `package.Name` of another package, its
// row has the value that the code has.
func TestLimitsAreThoseOfTheCode(t *testing.T) {
	folders := map[string]string{} // of packages, by their last element
	for _, p := range packages(t) {
		folders[filepath.Base(p.Path)] = p.Path
	}
	of := map[string]map[string]int64{}
	n := 0
	for row := range strings.SplitSeq(read(t, "docs/LIMITS.md"), "\n") {
		if !strings.HasPrefix(row, "| ") {
			continue
		}
		for _, m := range limitName.FindAllStringSubmatch(row, -1) {
			pkg := cmp.Or(m[1], "schemas")
			if of[pkg] == nil && folders[pkg] != "" {
				of[pkg] = constants(t, folders[pkg])
			}
			value, ok := of[pkg][m[2]]
			if !ok {
				t.Errorf("docs/LIMITS.md names %s.%s, which is not a constant there", pkg, m[2])
				continue
			}
			n++
			if m[2] == "MaxMemoryLimit" {
				value <<= 20 // it counts MiB
			}
			if forms := written(value); !slices.ContainsFunc(forms, func(s string) bool { return standsIn(row, s) }) {
				t.Errorf("%s is %d: its row should say one of %q:\n%s", m[2], value, forms, row)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d limits were found: the rule does not see them", n)
	}
}

// limitName is a limit in a document, with its package where that is not schemas. Types of limits and buckets are none.
var limitName = regexp.MustCompile("`(?:([a-z]+)\\.)?((?:Max|Min|Default|Measure|Publication)[A-Za-z]+|[A-Z][A-Za-z]+Lifetime)`")

// TestLimitsHaveTheDefaultsOfSettings: each default that docs/LIMITS.md gives for a flag is the one in the example configuration. A test
// of cmd/sandjet compares that with the flags.
func TestLimitsHaveTheDefaultsOfSettings(t *testing.T) {
	example := read(t, "deploy/sandjet.example.yaml")
	n := 0
	for _, m := range regexp.MustCompile("`--([a-z0-9-]+)`, ([0-9][0-9,]*)( s| min| minutes| days| [KMG]iB)?\\b").
		FindAllStringSubmatch(read(t, "docs/LIMITS.md"), -1) {
		have := regexp.MustCompile(`(?m)^#? ?` + m[1] + `: *"?([^"\s#]+)"?`).FindStringSubmatch(example)
		if have == nil {
			t.Errorf("deploy/sandjet.example.yaml has no setting %s", m[1])
			continue
		}
		n++
		if got, want := plain(m[2]+m[3]), plain(have[1]); got != want {
			t.Errorf("docs/LIMITS.md says %q of --%s, which is %s in the example", m[2]+m[3], m[1], have[1])
		}
	}
	if n < 15 {
		t.Errorf("only %d defaults were found: the rule does not see them", n)
	}
}

// plain normalizes numbers, sizes and durations, so that they can be compared as text.
func plain(s string) string {
	s = strings.NewReplacer(",", "", " minutes", "m", " min", "m", " days", "d", " ", "").Replace(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil {
			s = fmt.Sprintf("%dh", 24*n)
		}
	}
	if d, err := time.ParseDuration(s); err == nil {
		return d.String()
	}
	return s
}

// constants returns the integer constants of a package whose values are made of numbers, constants of package time and one another.
func constants(t *testing.T, pkg string) map[string]int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, pkg, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	texts := map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok || len(v.Names) != len(v.Values) {
					continue
				}
				for i, name := range v.Names {
					var text strings.Builder
					if err := printer.Fprint(&text, token.NewFileSet(), v.Values[i]); err != nil {
						t.Fatal(err)
					}
					texts[name.Name] = text.String()
				}
			}
		}
	}
	units := strings.NewReplacer("time.Second", "1000000000", "time.Minute", "60000000000", "time.Hour", "3600000000000",
		"time.Millisecond", "1000000")
	out := map[string]int64{}
	for name, text := range texts {
		v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, units.Replace(text))
		if err != nil || v.Value == nil {
			continue
		}
		if n, exact := goconstant.Int64Val(goconstant.ToInt(v.Value)); exact && v.Value.Kind() == goconstant.Int {
			out[name] = n
		}
	}
	return out
}

// written lists the ways in which a document may write a limit's value: as a count, a size in bytes, or a time in nanoseconds.
func written(n int64) []string {
	grouped := strconv.FormatInt(n, 10)
	for at := len(grouped) - 3; at > 0; at -= 3 {
		grouped = grouped[:at] + "," + grouped[at:]
	}
	out := []string{grouped, strconv.FormatInt(n, 10)}
	for shift, unit := range map[int]string{10: "KiB", 20: "MiB", 30: "GiB", 40: "TiB"} {
		if n > 0 && n%(1<<shift) == 0 {
			out = append(out, fmt.Sprintf("%d %s", n>>shift, unit))
		}
	}
	for each, names := range map[time.Duration][]string{
		time.Second: {"s"}, time.Minute: {"min", "minutes"}, time.Hour: {"h", "hours"}, 24 * time.Hour: {"days"},
	} {
		if count := n / int64(each); n > 0 && n%int64(each) == 0 {
			for _, name := range names {
				out = append(out, fmt.Sprintf("%d %s", count, name))
			}
			switch {
			case count == 1 && each == 24*time.Hour:
				out = append(out, "a day")
			case count == 1 && each == time.Hour:
				out = append(out, "an hour")
			}
		}
	}
	slices.Sort(out)
	return out
}

// standsIn reports whether a row contains the value as a separate word.
func standsIn(row, value string) bool {
	return regexp.MustCompile(`(^|[^0-9,.A-Za-z])` + regexp.QuoteMeta(value) + `($|[^0-9A-Za-z])`).MatchString(row)
}

func TestLimitRulesBite(t *testing.T) {
	for n, want := range map[int64]string{
		1000: "1,000", 64 << 10: "64 KiB", int64(24 * time.Hour): "24 h", int64(7 * 24 * time.Hour): "7 days",
	} {
		if !slices.Contains(written(n), want) {
			t.Errorf("%d is written %q, without %q", n, written(n), want)
		}
	}
	if standsIn("| x | 21,000 (`MaxX`) |", "1,000") || !standsIn("| x | 1,000 (`MaxX`) |", "1,000") {
		t.Error("a number within another one counts")
	}
	if plain("7 days") != plain("168h") || plain("10,000") != plain("10000") || plain("10 GiB") != plain("10GiB") ||
		plain("1 min") == plain("2m") {
		t.Error("values are not compared in one form")
	}
}
