package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// markdown lists the documents of the tree by path.
func markdown(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fence   = regexp.MustCompile("(?s)```(\\w*)\n(.*?)```")
)

func TestLinksOfTheDocumentsResolve(t *testing.T) {
	n := 0
	for _, file := range markdown(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			n++
			if err := resolve(file, m[1]); err != nil {
				t.Errorf("%s: %v", strings.TrimPrefix(file, top+"/"), err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d links were found", n)
	}
}

// resolve checks a link to a file of the tree and to a heading in it.
func resolve(from, to string) error {
	if strings.Contains(to, "://") {
		return nil
	}
	name, anchor, _ := strings.Cut(to, "#")
	target := from
	if name != "" {
		target = filepath.Join(filepath.Dir(from), filepath.FromSlash(name))
	}
	if _, err := os.Stat(target); err != nil {
		return fmt.Errorf("%s leads nowhere", to)
	}
	if anchor == "" || !strings.HasSuffix(target, ".md") {
		return nil
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		if slug(m[1]) == anchor {
			return nil
		}
	}
	return fmt.Errorf("%s: there is no such heading", to)
}

func slug(heading string) string {
	keep := func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}
	return strings.Map(keep, strings.ToLower(heading))
}

func TestLinksBite(t *testing.T) {
	from := filepath.Join(top, "README.md")
	for to, ok := range map[string]bool{"LICENSE": true, "nowhere.md": false, "#no-such-heading": false,
		"https://example.org/x": true, "docs/": true} {
		if err := resolve(from, to); (err == nil) != ok {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// The two commands with which everybody begins.
const (
	firstCommand  = "go run ./cmd/sandjet demo"
	secondCommand = "go test ./..."
)

func TestReadme(t *testing.T) {
	text := read(t, "README.md")
	if n := strings.Count(text, "\n"); n > 150 {
		t.Errorf("README.md has %d lines; a reader has patience for 150", n)
	}
	var commands []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == "sh" {
			for line := range strings.SplitSeq(strings.TrimSpace(m[2]), "\n") {
				command, _, _ := strings.Cut(line, "#")
				commands = append(commands, strings.TrimSpace(command))
			}
		}
	}
	if len(commands) < 2 || commands[0] != firstCommand || commands[1] != secondCommand {
		t.Fatalf("the README's first commands are %q", commands)
	}
	for _, c := range commands[2:] {
		if f := strings.Fields(c); f[0] == "make" && !strings.Contains(read(t, "Makefile"), "\n"+f[1]+":") {
			t.Errorf("the README says %q, which the Makefile does not know", c)
		}
	}
	ci := read(t, ".ci/run")
	if !strings.Contains(ci, secondCommand) {
		t.Errorf(".ci/run does not run the README's %q", secondCommand)
	}
}

// TestReadmeFirstCommandRuns runs the first command of the README, as it is written, and fails if it leaves data in the tree.
func TestReadmeFirstCommandRuns(t *testing.T) {
	longtest.Only(t, "the gate runs the command itself")
	data := filepath.Join(top, ".sandjet")
	_, err := os.Stat(data)
	before := err == nil
	args := strings.Fields(firstCommand)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		if hostForbidsBoxes(string(out)) {
			longtest.Missing(t, "this host does not allow boxes (sandjet doctor says what to do):\n%s", out)
		}
		t.Fatalf("%s: %v\n%s", firstCommand, err, out)
	}
	t.Logf("%s", out)
	if _, err := os.Stat(data); err == nil && !before {
		t.Error("the demo left its data in the tree")
	}
}

func hostForbidsBoxes(output string) bool { return strings.Contains(output, "--allow-unisolated") }

// TestEveryPromiseHasItsTests: docs/PROOFS.md, which is generated from the tags of tests, has a section for each guarantee; and
// docs/GUARANTEES.md has at most 3000 words.
func TestEveryPromiseHasItsTests(t *testing.T) {
	text, proofs := read(t, "docs/GUARANTEES.md"), read(t, "docs/PROOFS.md")
	promises := regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(text, -1)
	if len(promises) < 30 {
		t.Errorf("only %d promises were found: the rule does not see them", len(promises))
	}
	for _, m := range promises {
		if !strings.Contains(proofs, "## ["+m[1]+"](GUARANTEES.md#"+slug(m[1])+")") {
			t.Errorf("docs/GUARANTEES.md: no test bears //guarantee:%s", slug(m[1]))
		}
	}
	if n := len(strings.Fields(text)); n > 3000 {
		t.Errorf("docs/GUARANTEES.md has %d words, 3000 at most: what it rests on belongs beside the code", n)
	}
}

// TestLimitsAreListed: docs/LIMITS.md has each constant Max… and Default… of schemas/limits.go.
func TestLimitsAreListed(t *testing.T) {
	text := read(t, "docs/LIMITS.md")
	for _, m := range regexp.MustCompile(`(?m)^\t((?:Max|Default)[A-Za-z]+)\s+=`).FindAllStringSubmatch(read(t, "schemas/limits.go"), -1) {
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/LIMITS.md does not list %s", m[1])
		}
	}
}

// Each decision record is in the index, has its four parts and a number of its own. They are few: what a newcomer would otherwise reverse.
func TestDecisionRecords(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, "docs", "adr", "[0-9]*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	if len(files) > 30 {
		t.Errorf("%d decision records, 30 at most: how something works is said beside its code, and why it was mended in the commit", len(files))
	}
	index := read(t, "docs/adr/README.md")
	seen := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("%s is not in docs/adr/README.md", name)
		}
		if other := seen[name[:4]]; other != "" {
			t.Errorf("%s and %s have the same number", name, other)
		}
		seen[name[:4]] = name
		text := read(t, "docs/adr/"+name)
		for _, part := range []string{"**Context**", "**Decision**", "**Consequences**", "**Considered**"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s has no %s", name, part)
			}
		}
	}
}

// The index of decisions says for each direct dependency why it is this one.
func TestEveryDependencyHasItsReason(t *testing.T) {
	index := read(t, "docs/adr/README.md")
	for _, p := range packages(t) {
		for _, path := range slices.Concat(p.Imports, p.testImports()) {
			parts := strings.Split(path, "/")
			if !strings.Contains(parts[0], ".") || below(path, module) {
				continue
			}
			name := strings.Join(parts[:min(3, len(parts))], "/")
			if parts[0] == "go.uber.org" || parts[0] == "google.golang.org" || parts[0] == "pgregory.net" {
				name = strings.Join(parts[:2], "/")
			}
			if !strings.Contains(index, "`"+name) {
				t.Errorf("docs/adr/README.md does not say why %s (imported by %s)", name, p.Path)
			}
		}
	}
}

func TestDocumentsSpeakPlainly(t *testing.T) {
	never := regexp.MustCompile(`\b(TODO|FIXME|XXX|lorem ipsum)\b`)
	for _, file := range markdown(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := never.FindString(string(text)); m != "" {
			t.Errorf("%s has a %s", file, m)
		}
	}
}

// TestArchitectureNamesTheLog: docs/ARCHITECTURE.md names every stream and bucket that the log has.
func TestArchitectureNamesTheLog(t *testing.T) {
	_, part, _ := strings.Cut(read(t, "docs/ARCHITECTURE.md"), "\n## The log\n")
	part, _, _ = strings.Cut(part, "\n## ")
	names := regexp.MustCompile(`(?:\bstream[A-Z][A-Za-z]*|\bBucketName) *= "([A-Za-z_]+)"`).FindAllStringSubmatch(read(t, "streams/tables.go"), -1)
	if len(names) < 20 {
		t.Fatalf("streams/tables.go has only %d names of streams and buckets: the rule does not see them", len(names))
	}
	for _, n := range names {
		if !strings.Contains(part, "`"+n[1]+"`") && !strings.Contains(part, "`"+n[1]+"_<nn>`") {
			t.Errorf("docs/ARCHITECTURE.md does not name %s, which streams/tables.go makes", n[1])
		}
	}
}

// TestDocumentsUseStandardWords: what a reader would search for. Code, names and addresses in a page are as they are, and so are
// decisions, which are not rewritten.
func TestDocumentsUseStandardWords(t *testing.T) {
	own := map[string]bool{
		"docs/BENCHMARKS.md":      true, // names of measurements
		"docs/guides/channels.md": true, // has words of chats: who may write, what is sent to a service
	}
	for _, file := range markdown(t) {
		name := filepath.ToSlash(strings.TrimPrefix(file, top+string(filepath.Separator)))
		if strings.HasPrefix(name, "docs/adr/") || name == "CHANGELOG.md" || own[name] {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range checkWords(string(text)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var notProse = regexp.MustCompile("(?s)```.*?```|`[^`]*`|\\]\\([^)]*\\)|<[^>]*>")

func checkWords(page string) (errs []error) {
	prose := notProse.ReplaceAllString(page, "")
	for _, w := range wordsOfDocs {
		if found := w.pattern.FindString(prose); found != "" {
			errs = append(errs, fmt.Errorf("it says %q: %s", found, w.instead))
		}
	}
	return errs
}

func TestDocumentWordsBite(t *testing.T) {
	for page, want := range map[string]int{
		"Whoever reads it.":                     1,
		"It goes on, and starts\nanew.":         2,
		"`whoever` and [x](a-kept-box.md)":      0,
		"```\nwhoever\n```\n":                   0,
		"A persistent instance continues.":      0,
		"A kept\nbox stood still, told nobody.": 3,
	} {
		if errs := checkWords(page); len(errs) != want {
			t.Errorf("%q: %v, want %d", page, errs, want)
		}
	}
}
