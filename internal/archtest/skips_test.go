package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// skipsInTheGate are the files with tests that are passed over in the gate too, by what it is that they have not. CONTRIBUTING names
// those that are a machine's.
var skipsInTheGate = map[string]string{
	"internal/longtest/longtest.go":                         "the two forms",
	"internal/natstest/natstest.go":                         "-short",
	"internal/crashtest/soak_test.go":                       "it is asked for by a variable: make long-soak",
	"providers/kubernetes/live_test.go":                     "a cluster: make test-kubernetes",
	"providers/e2b/live_test.go":                            "an account of the service: -live",
	"providers/daytona/live_test.go":                        "an account of the service: -live",
	"providers/lambda/live_test.go":                         "the functions of AWS, which cost money",
	"providers/daytona/suites_test.go":                      "minutes: -whole",
	"providers/modal/live_test.go":                          "an account of the service: -live",
	"providers/modal/suites_test.go":                        "minutes: -whole",
	"providers/deno/live_test.go":                           "an account of the service: -live",
	"providers/deno/suites_test.go":                         "minutes: -whole",
	"providers/vercel/live_test.go":                         "an account of the service: -live",
	"providers/vercel/suites_test.go":                       "minutes: -whole",
	"cmd/sandjet/settings_test.go":                          "input of a fuzz test that would read this host's files",
	"cmd/sandjet/deploy_test.go":                            "docker compose",
	"cmd/sandjet/completion_test.go":                        "zsh, fish",
	"cmd/sandjet/examples_test.go":                          "python3",
	"providers/supervisor/callback_test.go":                 "wget, python3 and other ways to the network than curl",
	"providers/local/confine/cgroups_test.go":               "controllers and versions of control groups",
	"providers/local/confine/child_test.go":                 "what the kernel's Landlock knows",
	"providers/local/isolationtest/isolation_files_test.go": "capabilities of files",
	"providers/local/isolationtest/isolation_life_test.go":  "a level of isolation: another run has it",
	"providers/local/isolationtest/isolation_main_test.go":  "a level of isolation: another run has it",
	"tools/providers_test.go":                               "a level of isolation",
	"tools/bounds_test.go":                                  "sparse files",
	"tools/toolstest/toolstest.go":                          "a difference that an implementation declares",
	"providers/internal/boxrun/session_test.go":             "a shell that cannot: others run it",
	"providers/providertest":                                "a capability that a provider does not declare",
}

var skip = regexp.MustCompile(`\b\w+\.Skip(f|Now)?\(`)

// TestWhatIsMissingFailsTheGate: a test that passes over what a machine lacks says so by longtest.Missing, which fails with CI=true.
func TestWhatIsMissingFailsTheGate(t *testing.T) {
	used := map[string]bool{}
	root, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		for _, path := range p.allFiles() {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !skip.Match(text) {
				continue
			}
			file, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			if below(file, "providers/providertest") {
				file = "providers/providertest"
			}
			if used[file] = true; skipsInTheGate[file] == "" {
				t.Errorf("%s: %s is passed over in the gate too: call longtest.Missing, or longtest.Only", file, skip.Find(text))
			}
		}
	}
	for file := range skipsInTheGate {
		if !used[file] {
			t.Errorf("%s skips nothing: take it off the list", file)
		}
	}
}
