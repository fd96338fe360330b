package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/sandjet/sandjet/records"
)

const root = "../.."

// compose is what docker-compose.yml uses of the format; any other key is an error.
type compose struct {
	Worker   any                 `yaml:"x-worker"`
	Services map[string]*service `yaml:"services"`
	Volumes  map[string]any      `yaml:"volumes"`
}

type service struct {
	Image       string                       `yaml:"image"`
	Build       *build                       `yaml:"build"`
	Command     []string                     `yaml:"command"`
	Environment map[string]string            `yaml:"environment"`
	SecurityOpt []string                     `yaml:"security_opt"`
	MemLimit    string                       `yaml:"mem_limit"`
	PidsLimit   int                          `yaml:"pids_limit"`
	Volumes     []string                     `yaml:"volumes"`
	Ports       []string                     `yaml:"ports"`
	DependsOn   map[string]map[string]string `yaml:"depends_on"`
	Healthcheck *healthcheck                 `yaml:"healthcheck"`
	StopGrace   string                       `yaml:"stop_grace_period"`
	Restart     string                       `yaml:"restart"`
}

type build struct {
	Context    string `yaml:"context"`
	Dockerfile string `yaml:"dockerfile"`
	Target     string `yaml:"target"`
}

type healthcheck struct {
	Test     []string `yaml:"test"`
	Interval string   `yaml:"interval"`
	Timeout  string   `yaml:"timeout"`
	Retries  int      `yaml:"retries"`
}

func readCompose(t *testing.T) compose {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.UnmarshalWithOptions(b, &c, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestComposeNamesOnlyWhatExists(t *testing.T) {
	c := readCompose(t)
	for _, name := range []string{"nats", "redis", "gateway", "deliverer", "worker-1", "worker-2"} {
		if c.Services[name] == nil {
			t.Errorf("there is no service %s", name)
		}
	}
	for name, s := range c.Services {
		if s.Healthcheck == nil || len(s.Healthcheck.Test) < 2 || s.Healthcheck.Test[0] != "CMD" {
			t.Errorf("%s has no health check", name)
		}
		for other, how := range s.DependsOn {
			if c.Services[other] == nil || how["condition"] != "service_healthy" {
				t.Errorf("%s depends on %s %v", name, other, how)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(source, ".") {
				if _, err := os.Stat(filepath.Join(root, source)); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
			} else if _, ok := c.Volumes[source]; !ok {
				t.Errorf("%s mounts the volume %s, which is not declared", name, source)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s opens %s to other hosts", name, p)
			}
		}
	}
}

// What the workers of the compose file may run at the same time: --slots there, and the default of --max-processes.
const (
	composeSlots = 16
	boxProcesses = 512
)

// TestComposeSpeaksOurCommandLine parses every command of ours in the file, with its environment.
func TestComposeSpeaksOurCommandLine(t *testing.T) {
	ours := 0
	for name, s := range readCompose(t).Services {
		if s.Build == nil {
			continue
		}
		ours++
		env := map[string]string{}
		for k, v := range s.Environment {
			if strings.HasPrefix(k, "SANDJET_") &&
				knownSettings(t)[strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(k, "SANDJET_"), "_", "-"))] == nil {
				t.Errorf("%s: %s is no setting", name, k)
			}
			env[k] = regexp.MustCompile(`\$\{(\w+):\?[^}]*\}`).ReplaceAllString(v, "value-of-$1")
		}
		if _, err := parse(s.Command, envOf(env)); err != nil {
			t.Errorf("%s: %v: %v", name, s.Command, err)
		}
		if at := slices.Index(s.Command, "--slots"); at >= 0 && s.Command[at+1] != strconv.Itoa(composeSlots) {
			t.Errorf("%s has %s slots, which its limits were not made for", name, s.Command[at+1])
		}
		if s.Build.Target == "worker" && (!strings.HasPrefix(s.MemLimit, "${WORKER_MEMORY:-") || s.PidsLimit < composeSlots*boxProcesses) {
			t.Errorf("%s: memory %q and %d processes do not hold its boxes", name, s.MemLimit, s.PidsLimit)
		}
		test := s.Healthcheck.Test[1:]
		if filepath.Base(test[0]) != "sandjet" {
			t.Errorf("%s: the health check is not ours: %v", name, test)
		} else if _, err := parse(test[1:], noEnv); err != nil {
			t.Errorf("%s: %v: %v", name, test, err)
		}
		if stage := dockerfile(t).stages[s.Build.Target]; stage == nil || s.Build.Dockerfile != "deploy/docker/Dockerfile" {
			t.Errorf("%s is built from %+v, which is not there", name, s.Build)
		}
	}
	if ours != 4 {
		t.Errorf("%d services of ours, want a gateway, a deliverer and two workers", ours)
	}
}

type dockerImage struct {
	text   string
	stages map[string][]string // lines by stage
}

func dockerfile(t *testing.T) dockerImage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "deploy/docker/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	d := dockerImage{string(b), map[string][]string{}}
	stage := ""
	for line := range strings.Lines(strings.ReplaceAll(d.text, "\\\n", " ")) {
		words := strings.Fields(line)
		if len(words) == 4 && words[0] == "FROM" && words[2] == "AS" {
			stage = words[3]
		}
		if len(words) > 0 && words[0] != "#" {
			d.stages[stage] = append(d.stages[stage], strings.Join(words, " "))
		}
	}
	return d
}

func TestDockerfileBuildsThisModule(t *testing.T) {
	d := dockerfile(t)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(mod)
	if len(want) != 2 || !strings.Contains(d.text, "FROM golang:"+string(want[1])+" AS build") {
		t.Errorf("the image is not built with the Go version of go.mod: %q", want)
	}
	for _, m := range regexp.MustCompile(`\./cmd/[\w-]+`).FindAllString(d.text, -1) {
		if _, err := os.Stat(filepath.Join(root, m)); err != nil {
			t.Errorf("it builds what is not there: %v", err)
		}
	}
	if !slices.Contains(d.stages["build"], "ENV CGO_ENABLED=0") {
		t.Error("the binary is not static")
	}
	if got := slices.Sorted(maps.Keys(d.stages)); !slices.Equal(got, []string{"build", "sandjet", "worker"}) {
		t.Errorf("stages %v", got)
	}
	for _, stage := range []string{"sandjet", "worker"} {
		lines := d.stages[stage]
		if !slices.Contains(lines, "USER 65532:65532") {
			t.Errorf("%s runs as root", stage)
		}
		cmd := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "CMD ") })
		if cmd < 0 {
			t.Errorf("%s has no command", stage)
			continue
		}
		var args []string
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(lines[cmd], "CMD ")), &args); err != nil {
			t.Error(err)
		}
		if _, err := parse(args, envOf(map[string]string{"SANDJET_DATA_DIR": "/data"})); err != nil {
			t.Errorf("%s: %v: %v", stage, args, err)
		}
	}
}

// TestTheWorkersImageHasWhatSandboxesAreOffered: commands see the system of the worker's image, so each runtime that a record
// may list is installed in it, with its package manager, and the programs that the guides and the guard speak of.
func TestTheWorkersImageHasWhatSandboxesAreOffered(t *testing.T) {
	lines := dockerfile(t).stages["worker"]
	var installed []string
	for _, l := range lines {
		_, list, ok := strings.Cut(l, "apt-get install ")
		if !ok {
			continue
		}
		list, _, _ = strings.Cut(list, "&&")
		for word := range strings.FieldsSeq(list) {
			if !strings.HasPrefix(word, "-") {
				installed = append(installed, word)
			}
		}
	}
	packages := map[string][]string{
		"bash": {"bash", "coreutils"}, "python": {"python3", "python3-pip", "python3-venv"}, "node": {"nodejs", "npm"},
	}
	want := []string{"ca-certificates", "curl", "git", "jq", "ripgrep"} // what the guides and the file tools use
	for _, runtime := range records.Runtimes() {
		if len(packages[runtime]) == 0 {
			t.Errorf("which packages make the runtime %s?", runtime)
		}
		want = append(want, packages[runtime]...)
	}
	for _, name := range want {
		if !slices.Contains(installed, name) {
			t.Errorf("the image of workers does not install %s: it has %v", name, installed)
		}
	}
	// The containers of workers are of that image.
	for name, s := range readCompose(t).Services {
		if len(s.Command) > 0 && s.Command[0] == "worker" && s.Build.Target != "worker" {
			t.Errorf("%s is of the image %s", name, s.Build.Target)
		}
	}
}

// TestComposeIsValid asks the real program, where there is one.
func TestComposeIsValid(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "docker", "compose", "version").Run(); err != nil {
		t.Skip("docker compose is not installed: the file was checked only by the tests above")
	}
	cmd := exec.CommandContext(t.Context(), "docker", "compose", "-f", "docker-compose.yml", "config", "--quiet")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "NATS_PASSWORD=x", "SANDJET_KEY=x", "SANDJET_SECRETS_KEYS=x")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("docker compose config: %v\n%s", err, out)
	}
}

// TestTheSandboxImageHasWhatCommandsUse reads the image of sandboxes, which needs a network to be built: what it installs,
// and that nothing in it runs as root.
func TestTheSandboxImageHasWhatCommandsUse(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root, "deploy/sandbox/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(b))
	for _, program := range []string{"bash", "coreutils", "git", "grep", "nodejs", "python3", "ripgrep", "util-linux", "/uv"} {
		if !slices.Contains(words, program) {
			t.Errorf("it has no %s", program)
		}
	}
	if !strings.Contains(string(b), `"prefix=/home/sandbox/.local" >"$(npm config get globalconfig)"`) {
		t.Error("npm install -g does not go to the home folder: where npm's global settings are is for npm to say")
	}
	var user, from string
	for line := range strings.Lines(string(b)) {
		switch instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " "); instruction {
		case "USER":
			user = rest
		case "FROM":
			from = rest
		}
	}
	if user != "1000:1000" {
		t.Errorf("its user is %q", user)
	}
	if !strings.Contains(from, ":") || strings.HasSuffix(from, ":latest") {
		t.Errorf("it begins with %q: name a version", from)
	}
}
