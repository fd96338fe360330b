package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/sandjet/sandjet/internal/longtest"
)

const example = "../../deploy/sandjet.example.yaml"

func noEnv(string) (string, bool) { return "", false }

func envOf(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func knownSettings(t *testing.T) map[string]*kong.Flag {
	t.Helper()
	k, err := grammar(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	return keys(k.Model.Node)
}

// TestExampleHoldsEverySetting: the example file of settings has every setting of the commands and no other key.
func TestExampleHoldsEverySetting(t *testing.T) {
	b, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	known := knownSettings(t)
	if len(known) < 20 {
		t.Fatalf("the grammar has only %d settings: the walk is broken", len(known))
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if _, ok := file[name]; !ok {
			t.Errorf("%s lacks the setting %s", example, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if _, ok := known[name]; !ok {
			t.Errorf("%s has %s, which is no setting", example, name)
		}
	}
	for line := range strings.Lines(string(b)) {
		if key, _, ok := strings.Cut(line, ":"); ok && known[key] != nil && !strings.Contains(line, "# ") {
			t.Errorf("%s: the line of %s does not say what it is", example, key)
		}
	}
}

// TestExampleIsTheDefaults parses every command with the example and without it: both must be equal.
func TestExampleIsTheDefaults(t *testing.T) {
	for _, words := range []string{
		"demo", "up", "call bash true", "jobs ls", "jobs logs job_1", "webhooks ls", "sandboxes ls", "workspaces show x", "accounts create",
		"tail c_1", "dead ls", "dead show x", "dead redrive x", "doctor", "server", "gateway", "worker", "deliver", "egress serve", "egress key",
		"health", "version",
	} {
		args := strings.Fields(words)
		plain, err := parse(args, noEnv)
		if err != nil {
			t.Errorf("%s: %v", words, err)
			continue
		}
		filed, err := parse(append(args, "--config", example), noEnv)
		if err != nil {
			t.Errorf("%s with the example: %v", words, err)
			continue
		}
		filed.Config = ""
		if !reflect.DeepEqual(plain.cli, filed.cli) {
			t.Errorf("%s: the example differs from the defaults:\n%+v\n%+v", words, plain.command, filed.command)
		}
	}
}

// TestEverySettingReachesItsField gives each setting another value by the file and by the environment
// and wants the parsed commands to differ from the defaults.
func TestEverySettingReachesItsField(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"json": "true", "log-level": "debug", "replicas": "3", "shards": "16", "nats-listen": "127.0.0.1:1", "durability": "os",
		"max-store": "1GiB", "listen": "127.0.0.1:1", "max-wait": "1s", "mcp-wait": "1s", "sandbox-backend": "docker",
		"sandbox-idle-timeout": "1m", "sandbox-memory": "1GiB", "sandbox-max-sessions": "3", "slots": "1", "account-cap": "1", "pool": "1",
		"grace":          "1s",
		"metrics-listen": "127.0.0.1:1", "allow-unisolated": "true", "allow-remote": "true", "origins": "https://a.example",
		"max-connections": "1", "max-connections-per-address": "1", "nats-connections": "1", "account-log-bytes": "1MiB", "account-records": "1MiB",
		"account-durable-bytes": "1MiB", "nats-subscriptions": "1", "nats-pending": "4MiB", "nats-requests": "1",
		"account-boxes": "1", "max-boxes": "1", "leftover-cpu": "2m", "workspace-quota": "1GiB", "home-quota": "3GiB", "tmp-quota": "1GiB",
		"max-file-size": "2GiB", "max-processes": "100", "max-open-files": "100", "workspace-files": "1000",
		"account-workspace-quota": "1GiB", "min-free": "5%", "max-memory": "1GiB", "max-jobs": "1", "max-cpus": "1",
		"networks": "allow-all", "provider-grace": "1m", "recreate-records": "true",
		"sandbox-jobs": "1", "account-jobs": "1", "account-sandboxes": "1", "account-keys": "prefer", "probe-every": "1s", "callback-url": "https://a.example", "redis-url": "redis://h:1",
		"keep-events": "2h", "keep-events-count": "1", "replay-memory": "2MiB", "replay-compression": "true", "max-sockets": "1",
		"max-sockets-all": "1", "max-attachments": "1", "max-handshakes": "1", "socket-bytes-per-second": "1MiB",
		"max-requests": "1", "max-requests-all": "1", "body-memory": "16MiB", "body-memory-all": "16MiB",
		"answer-memory": "16MiB", "answer-memory-all": "16MiB",
		"open-signup": "true", "max-accounts": "1", "durable-streams": "true", "e2b": "true", "webhook-allow-http": "true", "webhook-allow-loopback": "true",
		"webhook-networks": "10.0.0.0/8", "chat-urls": "telegram=https://a.example", "webhook-ports": "8080", "private-networks": "10.0.0.0/8",
		"model-networks": "10.0.0.0/8",
		"provider":       "docker", "docker-boxes": "1", "docker-warm": "1", "docker-cpus": "1", "docker-gpus": "1", "docker-gpu-network": "true",
		"docker-memory": "1GiB", "docker-pids": "10", "docker-pull": "never", "docker-volumes": "true", "docker-writable-root": "true",
		"kubernetes-mode": "pod", "kubernetes-user-namespaces": "true", "kubernetes-access-mode": "ReadWriteMany", "kubernetes-disk": "1",
		"kubernetes-cpus": "2", "kubernetes-memory": "2GiB", "kubernetes-networks": "allow-all", "kubernetes-start": "1m",
		"kubernetes-lifetime": "2h", "kubernetes-gpus": "1",
		"egress-listen": "127.0.0.1:1", "e2b-networks": "allow-all", "e2b-sandboxes": "3", "e2b-idle": "20m", "e2b-no-workspaces": "true",
		"daytona-networks": "allow-all", "daytona-sandboxes": "3", "daytona-idle": "20m", "daytona-start": "3m", "daytona-no-workspaces": "true", "daytona-drop-domains": "true",
		"s3-path-style": "true", "s3-only": "true", "s3-files": "3", "s3-bytes": "1GiB", "s3-file-size": "1MiB",
		"deno-memory": "2048", "deno-networks": "allow-all", "deno-sandboxes": "3", "deno-start": "3m", "deno-volume-size": "300",
		"deno-no-workspaces": "true",
		"modal-networks":     "allow-all", "modal-sandboxes": "3", "modal-idle": "20m", "modal-start": "3m", "modal-build": "3m",
		"modal-cpus":   "1",
		"modal-memory": "512", "modal-no-workspaces": "true",
		"vercel-vcpus": "4", "vercel-networks": "allow-all", "vercel-sandboxes": "3", "vercel-idle": "20m", "vercel-start": "3m",
		"vercel-no-workspaces": "true",
		"lambda-networks":      "allow-all", "lambda-shared-environments": "true",
	}
	commands := [][]string{{"up"}, {"call", "bash", "true"}, {"worker"}, {"gateway"}, {"server"}, {"deliver"}, {"egress", "serve"}}
	k, err := grammar(&cli{})
	if err != nil {
		t.Fatal(err)
	}
	has := func(words []string, name string) bool { // the command of these words, or one above it
		at := k.Model.Node
		for _, w := range words {
			if slices.ContainsFunc(at.Flags, func(f *kong.Flag) bool { return f.Name == name }) {
				return true
			}
			next := slices.IndexFunc(at.Children, func(n *kong.Node) bool { return n.Name == w })
			if next < 0 {
				break
			}
			at = at.Children[next]
		}
		return slices.ContainsFunc(at.Flags, func(f *kong.Flag) bool { return f.Name == name })
	}
	plain := make([]*cli, len(commands))
	for i, words := range commands {
		p, err := parse(words, noEnv)
		if err != nil {
			t.Fatal(err)
		}
		plain[i] = p.cli
	}
	// Each parse makes the whole grammar: in the short form several settings of one command take one parse together, each by one source.
	together := 8
	if longtest.Asked() {
		together = 1
	}
	groups := map[int][][]string{} // by command
	for _, name := range slices.Sorted(maps.Keys(knownSettings(t))) {
		at := slices.IndexFunc(commands, func(words []string) bool { return has(words, name) }) // one that has it is enough
		if at < 0 {
			t.Fatalf("no command here has the setting %s: add one that has it", name)
		}
		list := groups[at]
		if n := len(list); n == 0 || len(list[n-1]) == together {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], name)
		groups[at] = list
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	for at, list := range groups {
		for n, names := range list {
			var file strings.Builder
			byFile, byEnvironment := map[string]string{"SANDJET_CONFIG": path}, map[string]string{}
			for i, name := range names {
				value := cmp.Or(values[name], "another")
				fmt.Fprintf(&file, "%s: ${VALUE_%d}\n", name, i)
				byFile[fmt.Sprint("VALUE_", i)], byEnvironment[variable(name)] = value, value
			}
			if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			sources := map[string]map[string]string{"file": byFile, "environment": byEnvironment}
			if !longtest.Asked() {
				delete(sources, []string{"file", "environment"}[n%2])
			}
			for source, env := range sources {
				set, err := parse(commands[at], envOf(env))
				if err != nil {
					t.Fatalf("%v by the %s: %v", names, source, err)
				}
				if got := differences(reflect.ValueOf(plain[at]), reflect.ValueOf(set.cli)); got < len(names) {
					t.Errorf("%v by the %s change %d fields only", names, source, got)
				}
			}
		}
	}
}

// differences counts the fields in which two values of one type differ.
func differences(a, b reflect.Value) (n int) {
	switch {
	case (a.Kind() == reflect.Pointer || a.Kind() == reflect.Interface) && !a.IsNil() && !b.IsNil():
		return differences(a.Elem(), b.Elem())
	case a.Kind() == reflect.Slice && a.Len() == b.Len() && a.Len() > 0:
		for i := range a.Len() {
			n += differences(a.Index(i), b.Index(i))
		}
		return n
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			n += differences(a.Field(i), b.Field(i))
		}
		return n
	case fmt.Sprint(a) != fmt.Sprint(b):
		return 1
	}
	return 0
}

func TestNearestNamesTheLikelySetting(t *testing.T) {
	known := slices.Sorted(maps.Keys(knownSettings(t)))
	for wrong, want := range map[string]string{
		"lisen": `"listen"`, "data_dir": `"data-dir"`, "nats_url": `"nats-url"`, "durabilty": `"durability"`, "zzzzzzzzzzzz": "sandjet help",
	} {
		if got := nearest(wrong, known); !strings.Contains(got, want) {
			t.Errorf("nearest(%q) = %q, want %s in it", wrong, got, want)
		}
	}
}

// FuzzDecodeSettings: whatever the file holds, the answer is settings or an error that names nothing
// secret, never a panic.
func FuzzDecodeSettings(f *testing.F) {
	for _, seed := range []string{"", "listen: 127.0.0.1:1\n", "key: ${X}\n", "a: [1, 2]\n", "- x\n", "origins: [a, [b]]\n",
		"key: {a: b}\n", "&a *a", "a: &a [*a]\n"} {
		f.Add([]byte(seed))
	}
	k, err := grammar(&cli{})
	if err != nil {
		f.Fatal(err)
	}
	known := keys(k.Model.Node)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeSettings(b, known, envOf(map[string]string{"X": "secret-value"}))
		if err != nil && strings.Contains(err.Error(), "secret-value") {
			t.Errorf("the error tells a secret: %v", err)
		}
		for name := range got {
			if known[name] == nil {
				t.Errorf("%q is no setting", name)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"up", "call bash x", "--json version", "dead show x", "up --listen :0", "tail c --after -1",
		"up --help", "--", "call bash -- -x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--c") }) {
			t.Skip("would read files of this host")
		}
		p, err := parse(args, noEnv)
		if (p == nil) == (err == nil) || err == nil && p.command == nil {
			t.Errorf("parse(%q) = %v, %v", args, p, err)
		}
	})
}

// TestACommandAloneIsParsedAsAmongAll: to start faster, only the command that is run is built into the grammar. Each command built alone
// must have the same flags and arguments as among all.
func TestACommandAloneIsParsedAsAmongAll(t *testing.T) {
	t.Parallel()
	whole, err := grammar(new(cli))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range whole.Model.Children {
		for _, word := range append([]string{node.Name}, node.Aliases...) {
			k, err := grammar(&cli{Commands: commandsFor(word)})
			if err != nil {
				t.Fatal(err)
			}
			if len(k.Model.Children) != 1 {
				t.Errorf("%q: %d commands are made", word, len(k.Model.Children))
				continue
			}
			if got, want := described(k.Model.Children[0]), described(node); got != want {
				t.Errorf("%q alone:\n%s\namong all:\n%s", word, got, want)
			}
			if got, want := flagNames(k.Model.Node), flagNames(whole.Model.Node); !slices.Equal(got, want) {
				t.Errorf("beside %q: the flags %v, beside all %v", word, got, want)
			}
		}
	}
	for _, role := range []string{"up", "worker", "doctor"} { // they have the flags of all backends
		at := slices.IndexFunc(whole.Model.Children, func(n *kong.Node) bool { return n.Name == role })
		if !slices.Contains(flagNames(whole.Model.Children[at]), "allow-unisolated") {
			t.Errorf("%s has no flags of backends", role)
		}
	}
	for _, word := range []string{"", "no-such-command", "--json", "tokens,env"} {
		if _, all := commandsFor(word).(*commands); !all {
			t.Errorf("%q: not all commands are made", word)
		}
	}
}

func flagNames(n *kong.Node) []string {
	var names []string
	for _, f := range n.Flags {
		names = append(names, f.Name)
	}
	return names
}

// described returns a command with its subcommands, flags and arguments as text, one per line.
func described(n *kong.Node) string {
	var b strings.Builder
	_ = kong.Visit(n, func(v kong.Visitable, next kong.Next) error {
		switch v := v.(type) {
		case *kong.Node:
			fmt.Fprintln(&b, v.Path(), v.Aliases, v.Hidden, v.Help)
		case *kong.Flag:
			fmt.Fprintln(&b, "  ", v.ShortSummary(), v.Help, v.Default, v.Enum, v.PlaceHolder, v.Group)
		case *kong.Value:
			fmt.Fprintln(&b, "  ", v.Summary(), v.Help, v.Default, v.Enum)
		}
		return next(nil)
	})
	return b.String()
}
