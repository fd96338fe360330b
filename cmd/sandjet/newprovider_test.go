package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// TestTheGuideToProvidersIsTrue adds the provider of docs/guides/new-provider.md, with the files of the guide and nothing
// else, by an overlay over this tree: its suite runs, the program is built, and a call goes through it.
func TestTheGuideToProvidersIsTrue(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it builds the program with another provider")
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := guideOverlay(t, top, dir)
	program := filepath.Join(dir, "sandjet")
	suite := filepath.Join(dir, "acme.test") // built and then run, and not vetted: the package has no directory
	goTool(t, top, "test", "-vet=off", "-overlay", overlay, "-c", "-o", suite, "./providers/acme")
	test := exec.CommandContext(t.Context(), suite, "-test.run", "TestProvider/(Profile|Profiler|Reserver)", "-test.v")
	test.Dir = dir
	if out, err := test.CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "--- PASS: TestProvider/Profiler/it_promises_no_more_than_its_leaf_declares") {
		t.Errorf("the suite of the new provider: %v\n%s", err, out)
	}
	goTool(t, top, "build", "-overlay", overlay, "-o", program, "./cmd/sandjet")

	data := filepath.Join(dir, "data")
	up := exec.Command(program, "up", "--provider", "acme", "--acme-region", "moon", "--data-dir", data, "--listen", "127.0.0.1:0",
		"--nats-listen", "127.0.0.1:0", "--json")
	up.Env = withoutSettings(os.Environ())
	var said strings.Builder
	up.Stderr = &said
	out, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := up.Wait(); err != nil {
			t.Errorf("up ended with %v:\n%s", err, said.String())
		}
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("it did not come up: %v\n%s", err, said.String())
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--data-dir", data}, args...)...)
		cmd.Env = withoutSettings(os.Environ())
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	if got, err := run("call", "--json", "bash", "echo $((6*7))"); err != nil || !strings.Contains(got, `42\n`) ||
		!strings.Contains(got, `acme/moon`) {
		t.Errorf("a call through the new provider: %v\n%s", err, got)
	}
	for config, want := range map[string]string{
		`{"provider":"acme"}`: "",
		`{"provider":"acme","network":{"mode":"restricted"}}`: "the provider acme does not take this mode",
		`{"provider":"nobody"}`:                               "is not a provider of this build: use acme, ",
		`{"provider":"acme","memoryLimit":8192}`:              "out of range",
		`{"provider":"local","options":{"image":"x"}}`:        "the provider local",
	} {
		file := filepath.Join(dir, "sandbox.json")
		if err := os.WriteFile(file, []byte(`{"name":"made","config":`+config+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := run("sandboxes", "create", "--file", file)
		if (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("a sandbox with %s: %v, %s, want %q in it", config, err, got, want)
		}
	}
}

// goTool runs the go command in the tree.
func goTool(t *testing.T, top string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// guideOverlay writes the code blocks of the guide into dir as files, with a go build overlay that puts them into the source tree. It
// returns the overlay's path.
func guideOverlay(t *testing.T, top, dir string) string {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(top, "docs/guides/new-provider.md"))
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	lay := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprintf("file%d.go", len(replace)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(top, path)] = file
	}
	for _, block := range regexp.MustCompile("(?s)```(go|diff)\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		first, rest, _ := strings.Cut(block[2], "\n")
		if path, ok := strings.CutPrefix(first, "// "); ok && block[1] == "go" {
			lay(path, rest)
		} else if path, ok := strings.CutPrefix(first, "--- "); ok && block[1] == "diff" {
			lay(path, patched(t, filepath.Join(top, path), rest))
		} else {
			t.Errorf("a block of the guide names no file: %s", first)
		}
	}
	if len(replace) != 4 {
		t.Fatalf("the guide has %d files: %v", len(replace), replace)
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// patched returns the file's text with the lines that a diff adds (those with +), each inserted next to the diff's line before or after
// it.
func patched(t *testing.T, file, diff string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, at, added := string(b), 0, ""
	for line := range strings.Lines(diff) {
		body := line[1:]
		if line[0] == '+' {
			if at == 0 { // it stands before the next line of the file
				added += body
			} else {
				text, at = text[:at]+body+text[at:], at+len(body)
			}
			continue
		}
		i := strings.Index(text[at:], body)
		if i < 0 {
			t.Fatalf("%s has no line %q", file, body)
		}
		i += at
		text, at, added = text[:i]+added+text[i:], i+len(added)+len(body), ""
	}
	return text
}
