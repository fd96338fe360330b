package records

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
)

// TestTheMatrixOfProviders tries each rule with each provider: the field of the refusal, or empty.
func TestTheMatrixOfProviders(t *testing.T) {
	t.Parallel()
	const network, kept = "config.network.mode", "config.persistent"
	columns := []string{"daytona", "deno", "docker", "e2b", "kubernetes", "lambda", "local", "modal", "vercel"}
	none := map[string]string{}
	all := func(field string, except ...string) map[string]string {
		m := map[string]string{}
		for _, p := range columns {
			if !slices.Contains(except, p) {
				m[p] = field
			}
		}
		return m
	}
	for name, c := range map[string]struct {
		config schemas.SandboxConfig
		fields map[string]string // of the refusal, by provider
	}{
		"no network":  {schemas.SandboxConfig{Network: schemas.NetworkConfig{Mode: "deny-all"}}, map[string]string{"e2b": network}},
		"any network": {schemas.SandboxConfig{Network: schemas.NetworkConfig{Mode: "allow-all"}}, none},
		"some network": {schemas.SandboxConfig{Network: schemas.NetworkConfig{Mode: "restricted"}},
			map[string]string{"e2b": network, "local": network, "docker": network}},
		"300 seconds": {schemas.SandboxConfig{Timeout: 300}, none},
		"301 seconds": {schemas.SandboxConfig{Timeout: 301}, map[string]string{"lambda": "config.timeout"}},
		"600 seconds": {schemas.SandboxConfig{Timeout: 600}, map[string]string{"lambda": "config.timeout"}},
		"601 seconds": {schemas.SandboxConfig{Timeout: 601}, all("config.timeout")},
		"-1 second":   {schemas.SandboxConfig{Timeout: -1}, all("config.timeout")},
		"1 GiB":       {schemas.SandboxConfig{MemoryLimit: 1024}, none},
		"1025 MiB":    {schemas.SandboxConfig{MemoryLimit: 1025}, map[string]string{"lambda": "config.memoryLimit"}},
		"kept":        {schemas.SandboxConfig{Persistent: true}, map[string]string{"lambda": kept}},
		"idle, kept": {schemas.SandboxConfig{Persistent: true, Lifecycle: schemas.LifecycleConfig{IdleTimeout: 60}},
			map[string]string{"lambda": kept}},
		"idle, not kept": {schemas.SandboxConfig{Lifecycle: schemas.LifecycleConfig{IdleTimeout: 60}},
			all("config.lifecycle.idleTimeoutSeconds")},
		"old, kept": {schemas.SandboxConfig{Persistent: true, Lifecycle: schemas.LifecycleConfig{MaxLifetime: 60}},
			map[string]string{"lambda": kept}},
		"idle for 8 days": {schemas.SandboxConfig{Persistent: true, Lifecycle: schemas.LifecycleConfig{IdleTimeout: 8 * 86400}},
			with(all("config.lifecycle.idleTimeoutSeconds"), "lambda", kept)},
		"old of 31 days": {schemas.SandboxConfig{Persistent: true, Lifecycle: schemas.LifecycleConfig{MaxLifetime: 31 * 86400}},
			with(all("config.lifecycle.maxLifetimeSeconds"), "lambda", kept)},
		"onCreate, kept": {schemas.SandboxConfig{Persistent: true, OnCreate: []string{"true"}}, map[string]string{"lambda": kept}},
		"onResume, kept": {schemas.SandboxConfig{Persistent: true, OnResume: []string{"true"}}, map[string]string{"lambda": kept}},
		"onResume":       {schemas.SandboxConfig{OnResume: []string{"true"}}, all("config.onResume")},
		"jobs":           {schemas.SandboxConfig{JobLimit: 3, JobLifetime: 60}, map[string]string{"lambda": "config.jobLimit"}},
		"functionNames":  {schemas.SandboxConfig{Options: map[string]any{"functionNames": true}}, all("config.options.functionNames")},
		"kubeconfig":     {schemas.SandboxConfig{Options: map[string]any{"kubeconfig": "x"}}, all("config.options.kubeconfig")},
		"mounts": {schemas.SandboxConfig{Options: map[string]any{"mountAwsS3Buckets": true}},
			all("config.options.mountAwsS3Buckets", "daytona", "kubernetes")},
		"mounts, as text": {schemas.SandboxConfig{Options: map[string]any{"mountAwsS3Buckets": "true"}},
			all("config.options.mountAwsS3Buckets")},
		"10 GiB": {schemas.SandboxConfig{Persistent: true, Options: map[string]any{"diskGb": 10.0}},
			with(all("config.options.diskGb", "kubernetes"), "lambda", kept)},
		"11 GiB": {schemas.SandboxConfig{Persistent: true, Options: map[string]any{"diskGb": 11.0}},
			with(all("config.options.diskGb"), "lambda", kept)},
		"10 GiB, not kept": {schemas.SandboxConfig{Options: map[string]any{"diskGb": 10.0}}, all("config.options.diskGb")},
	} {
		for _, p := range columns {
			config := c.config
			config.Provider = p
			if config.Network.Mode == "" {
				config.Network.Mode = schemas.AllowAll // which every provider takes
			}
			err := CheckSandbox(recordstest.Providers(), withDefaults(recordstest.Providers(), config))
			if got := fieldOf(t, err); got != c.fields[p] {
				t.Errorf("%s on %s: refused for %q (%v), want %q", name, p, got, err, c.fields[p])
			}
		}
	}
}

func with(m map[string]string, key, value string) map[string]string {
	m[key] = value
	return m
}

// fieldOf is the field of an invalid error, empty for none.
func fieldOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*schemas.Error](err)
	if ok && len(e.Errors) > 0 {
		e = e.Errors[0]
	}
	if !ok || e.Code != schemas.Invalid || e.Field == "" || e.Message == "" {
		t.Errorf("%v: not an invalid error with field and message", err)
		return "?"
	}
	return e.Field
}

func TestSandboxesAreChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	many := slices.Repeat([]string{"10.0.0.0/8"}, schemas.MaxNetworkRules+1)
	vars := map[string]string{}
	for i := range schemas.MaxEnvVars + 1 {
		vars[fmt.Sprint("V", i)] = ""
	}
	restricted := func(n schemas.NetworkConfig) schemas.SandboxConfig {
		n.Mode = schemas.Restricted
		return schemas.SandboxConfig{Provider: "kubernetes", Network: n}
	}
	for name, c := range map[string]struct {
		config schemas.SandboxConfig
		field  string
		says   string
	}{
		"nothing": {},
		"provider": {schemas.SandboxConfig{Provider: "lamda"}, "config.provider",
			`"lamda" is not a provider of this build: use local, daytona, `},
		"mode": {schemas.SandboxConfig{PermissionMode: "maybe"}, "config.permissionMode",
			`"maybe" is unknown: use ask, edit or bypass`},
		"network": {schemas.SandboxConfig{Network: schemas.NetworkConfig{Mode: "none"}}, "config.network.mode",
			`"none" is unknown: use deny-all, allow-all or restricted`},
		"restricted on local": {schemas.SandboxConfig{Network: schemas.NetworkConfig{Mode: "restricted"}}, "config.network.mode",
			"the provider local does not take this mode: use deny-all or allow-all"},
		"list without mode": {schemas.SandboxConfig{Network: schemas.NetworkConfig{AllowDomains: []string{"a.b"}}},
			"config.network.allowDomains", "the mode is deny-all"},
		"domain": {restricted(schemas.NetworkConfig{AllowDomains: []string{"a.example", "*.b.example", "*.*.c"}}),
			"config.network.allowDomains[2]", "example.com"},
		"domains": {restricted(schemas.NetworkConfig{AllowDomains: []string{"localhost", "*.b.example", "a.example:22"}}), "", ""},
		"port": {restricted(schemas.NetworkConfig{AllowDomains: []string{"a.example:65536"}}),
			"config.network.allowDomains[0]", "example.com:22"},
		"cidr": {restricted(schemas.NetworkConfig{AllowCIDRs: []string{"10.0.0.1/8"}}),
			"config.network.allowCidrs[0]", "use 10.0.0.0/8"},
		"address": {restricted(schemas.NetworkConfig{DenyCIDRs: []string{"10.0.0.1"}}), "config.network.denyCidrs[0]", "not a network"},
		"many":    {restricted(schemas.NetworkConfig{DenyCIDRs: many}), "config.network.denyCidrs", "257 entries: at most 256"},
		"runtime": {schemas.SandboxConfig{Runtimes: []string{"bash", "ruby"}}, "config.runtimes[1]",
			`"ruby" is unknown: use bash, python or node`},
		"runtime twice": {schemas.SandboxConfig{Runtimes: []string{"bash", "bash"}}, "config.runtimes[1]", "twice"},
		"guard":         {schemas.SandboxConfig{Guard: "on"}, "config.guard", "use strict, durable or off"},
		"output": {schemas.SandboxConfig{OutputLimit: schemas.MaxOutputLimit + 1}, "config.outputLimitBytes",
			"262145 is out of range: 1 to 262144"},
		"name of a variable": {schemas.SandboxConfig{EnvVars: map[string]string{"1A": "secret"}}, "config.envVars", "not the name of a variable"},
		"NUL in a variable":  {schemas.SandboxConfig{EnvVars: map[string]string{"A": "secret\x00"}}, "config.envVars.A", "NUL"},
		"mask without value": {schemas.SandboxConfig{EnvVars: map[string]string{"A": schemas.MaskedSecret}}, "config.envVars.A", "no such value"},
		"many variables":     {schemas.SandboxConfig{EnvVars: vars}, "config.envVars", "at most 256"},
		"large variables":    {schemas.SandboxConfig{EnvVars: map[string]string{"A": long}}, "config.envVars", "at most 262144"},
		"empty hook": {schemas.SandboxConfig{Provider: "docker", Persistent: true, OnCreate: []string{" "}},
			"config.onCreate[0]", "empty"},
		"large hook":   {schemas.SandboxConfig{Provider: "docker", Persistent: true, OnResume: []string{long}}, "config.onResume[0]", "16384"},
		"jobs":         {schemas.SandboxConfig{JobLimit: 1001}, "config.jobLimit", "1 to 1000"},
		"job lifetime": {schemas.SandboxConfig{JobLifetime: -1}, "config.jobLifetimeSeconds", "out of range"},
	} {
		err := CheckSandbox(recordstest.Providers(), withDefaults(recordstest.Providers(), c.config))
		if got := fieldOf(t, err); got != c.field || err != nil &&
			(!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %s … %s", name, err, c.field, c.says)
		}
	}
}

func TestStorageNeedsAProviderThatReachesIt(t *testing.T) {
	t.Parallel()
	w := schemas.Workspace{Storage: "s3"}
	mounts := map[string]any{"mountAwsS3Buckets": true}
	for p, want := range map[string][2]bool{ // without and with the option
		"daytona": {false, true}, "deno": {false, false}, "docker": {false, false}, "e2b": {false, false}, "kubernetes": {false, true},
		"lambda": {true, true}, "local": {false, false}, "modal": {false, false}, "vercel": {false, false},
	} {
		for i, options := range []map[string]any{nil, mounts} {
			if err := CheckStorage(recordstest.Providers(), w, schemas.Sandbox{Provider: p, Options: options}); (err == nil) != want[i] {
				t.Errorf("%s with %v: %v", p, options, err)
			}
		}
		if err := CheckStorage(recordstest.Providers(), schemas.Workspace{}, schemas.Sandbox{Provider: p}); err != nil {
			t.Errorf("%s without storage: %v", p, err)
		}
	}
}

// TestASandboxIsWhatItsSpecSays: what a client would have to say for a record makes that record again.
func TestASandboxIsWhatItsSpecSays(t *testing.T) {
	t.Parallel()
	s := schemas.Sandbox{
		ID: "sb_1", Account: "acct_1", Name: "build", Description: "d", Provider: "kubernetes",
		Network: schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a.example"}, AllowCIDRs: []string{"10.0.0.0/8"},
			DenyCIDRs: []string{"10.1.0.0/16"}},
		PermissionMode: schemas.PermissionEdit, Timeout: schemas.Duration(time.Minute), MemoryLimit: 512 << 20, OutputLimit: 1000,
		EnvVars: map[string]string{"A": "secret"}, Persistent: true, Guard: schemas.GuardOff, Runtimes: []string{"bash"}, JobLimit: 2,
		JobLifetime: schemas.Duration(time.Hour), IdleTimeout: schemas.Duration(time.Hour), MaxLifetime: schemas.Duration(2 * time.Hour),
		OnCreate: []string{"a"}, OnResume: []string{"b"}, Options: map[string]any{"diskGb": 5.0}, Manifest: "m", Artifacts: []string{"*.pdf"},
		Created: time.Unix(1, 0), Updated: time.Unix(2, 0),
	}
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not in this test", v.Type().Field(i).Name)
		}
	}
	got, err := sandboxOf(recordstest.Providers(), s, sandboxSpec(s))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v\nwant %+v", got, err, s)
	}
	shown, err := json.Marshal(sandboxDocument(s))
	if err != nil || strings.Contains(string(shown), "secret") {
		t.Errorf("%s, %v", shown, err)
	}
	masked := schemas.SandboxSpec{Name: "build", Config: sandboxDocument(s).Config}
	masked.Config.EnvVars["B"] = "new"
	got, err = sandboxOf(recordstest.Providers(), s, masked)
	if want := map[string]string{"A": "secret", "B": "new"}; err != nil || !maps.Equal(got.EnvVars, want) {
		t.Errorf("%v, %v: what is masked keeps its value", got.EnvVars, err)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, patch, want string }{
		{``, `{}`, `{}`},
		{`{"a":1}`, `{"a":null}`, `{}`},
		{`{"a":{"b":1,"c":2}}`, `{"a":{"b":null,"d":{"e":null}}}`, `{"a":{"c":2,"d":{}}}`},
		{`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		{`{"a":{"b":1}}`, `{"a":2}`, `{"a":2}`},
		{`{"a":2}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{`{"a":12345678901234567890}`, `{"b":0.10}`, `{"a":12345678901234567890,"b":0.10}`},
	} {
		got, err := merge([]byte(c.target), []byte(c.patch))
		if err != nil || string(got) != c.want {
			t.Errorf("%s and %s: %s, %v; want %s", c.target, c.patch, got, err, c.want)
		}
	}
}

// FuzzMerge: a patch that is merged twice changes nothing more, one of itself into nothing has no null in
// objects, and the empty patch changes nothing.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":null,"c":[null,{"d":null}]}}`))
	f.Add([]byte(`{}`), []byte(`{"":{"":{}}}`))
	f.Fuzz(func(t *testing.T, target, patch []byte) {
		for _, b := range [][]byte{target, patch} {
			if schemas.DecodeStrict(b, schemas.MaxConfig, &map[string]any{}) != nil {
				return
			}
		}
		once, err := merge(target, patch)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := merge(once, patch)
		if err != nil || string(twice) != string(once) {
			t.Errorf("once %s, twice %s, %v", once, twice, err)
		}
		if same, err := merge(once, []byte(`{}`)); err != nil || string(same) != string(once) {
			t.Errorf("%s became %s, %v", once, same, err)
		}
	})
}

// FuzzSandboxFromOutside: whatever is sent makes a record that its own spec makes again, or a coded error.
func FuzzSandboxFromOutside(f *testing.F) {
	f.Add([]byte(`{"name":"a"}`))
	f.Add([]byte(`{"name":"a","config":{"provider":"kubernetes","persistent":true,"options":{"diskGb":3},"envVars":{"A":"b"},"timeout":5}}`))
	f.Add([]byte(`{"name":"a","config":{"network":{"mode":"restricted","denyCidrs":["::/0"]},"memoryLimit":1e3}}`))
	f.Fuzz(func(t *testing.T, sent []byte) {
		col := sandboxCollection(recordstest.Providers())
		now := time.Unix(1, 0)
		r, err := col.change(col.fresh("acct_1", "sb_1", now), nil, sent, now)
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		spec, err := json.Marshal(col.spec(r))
		if err != nil {
			t.Fatal(err)
		}
		again, err := col.change(r, spec, []byte(`{}`), now)
		if err != nil || !reflect.DeepEqual(normal(t, again), normal(t, r)) {
			t.Errorf("%s made %+v, and that %+v, %v", sent, r.Sandbox, again.Sandbox, err)
		}
	})
}

// normal is a record as the log gives it back.
func normal(t *testing.T, r record) record {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out record
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestCredentialsAreChecked(t *testing.T) {
	t.Parallel()
	able := schemas.Catalog{
		{Name: "able", Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.Restricted}, Credentials: true},
		{Name: "unable", Networks: []schemas.NetworkMode{schemas.Restricted}},
	}
	const value, of = "the-secret-value", "config.network.credentials"
	vars := map[string]string{"KEY": value, "NAMED": "env:KEY", "SHORT": "secret", "KEPT": "the-secret\nvalue"}
	many := map[string][]string{}
	for i := range schemas.MaxCredentials + 1 {
		many[fmt.Sprint("V", i)] = []string{"api.example"}
	}
	domains := []string{"api.example", "*.wide.example", "git.example:22", "tls.example:443"}
	bound := func(name string, hosts ...string) map[string][]string { return map[string][]string{name: hosts} }
	for name, c := range map[string]struct {
		provider    string
		mode        schemas.NetworkMode
		credentials map[string][]string
		field, says string
	}{
		"one":     {credentials: bound("KEY", "api.example")},
		"several": {credentials: bound("NAMED", "api.example", "a.wide.example", "tls.example")},
		"another mode": {mode: schemas.DenyAll, credentials: bound("KEY", "api.example"), field: of,
			says: "for the mode restricted"},
		"provider": {provider: "unable", credentials: bound("KEY", "api.example"), field: of, says: "unable does not"},
		"many":     {credentials: many, field: of, says: "at most 16"},
		"many hosts": {credentials: bound("KEY", slices.Repeat([]string{"api.example"}, 17)...),
			field: of + ".KEY", says: "at most 16"},
		"no host":         {credentials: bound("KEY"), field: of + ".KEY", says: "names no host"},
		"no variable":     {credentials: bound("MISSING", "api.example"), field: of, says: "not a variable of"},
		"wildcard":        {credentials: bound("KEY", "*.wide.example"), field: of + ".KEY[0]", says: "whole name"},
		"port":            {credentials: bound("KEY", "api.example:443"), field: of + ".KEY[0]", says: "whole name"},
		"address":         {credentials: bound("KEY", "10.0.0.1"), field: of + ".KEY[0]", says: "not in allowDomains"},
		"not allowed":     {credentials: bound("KEY", "evil.example"), field: of + ".KEY[0]", says: "not in allowDomains"},
		"above":           {credentials: bound("KEY", "wide.example"), field: of + ".KEY[0]", says: "not in allowDomains"},
		"another port":    {credentials: bound("KEY", "git.example"), field: of + ".KEY[0]", says: "with port 443"},
		"short":           {credentials: bound("SHORT", "api.example"), field: "config.envVars.SHORT", says: "6 bytes long"},
		"several lines":   {credentials: bound("KEPT", "api.example"), field: "config.envVars.KEPT", says: "printable ASCII"},
		"miswritten name": {credentials: bound("A\nB", "api.example"), field: of, says: `"A\nB" is not a variable`},
	} {
		c.provider, c.mode = cmp.Or(c.provider, "able"), cmp.Or(c.mode, schemas.Restricted)
		config := schemas.SandboxConfig{Provider: c.provider, EnvVars: vars,
			Network: schemas.NetworkConfig{Mode: c.mode, Credentials: c.credentials}}
		if c.mode == schemas.Restricted {
			config.Network.AllowDomains = domains
		}
		err := checkNetwork(config, able[slices.IndexFunc(able, func(p schemas.Profile) bool { return p.Name == c.provider })])
		if got := fieldOf(t, err); got != c.field || err != nil &&
			(!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), value)) {
			t.Errorf("%s: %v, want %s … %s", name, err, c.field, c.says)
		}
	}
	// A record's bindings are those of its config, both ways, and an unable provider refuses calls of it.
	config := schemas.SandboxConfig{Provider: "able", EnvVars: vars,
		Network: schemas.NetworkConfig{Mode: schemas.Restricted, AllowDomains: domains, Credentials: bound("KEY", "api.example")}}
	record := schemas.Sandbox{
		Network: schemas.Network{Mode: schemas.Restricted, AllowDomains: domains, Credentials: config.Network.Credentials},
	}
	if got := sandboxSpec(record).Config.Network; !reflect.DeepEqual(got, config.Network) {
		t.Errorf("%+v", got)
	}
	if err := able[1].Keeps(record); schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "network.credentials") {
		t.Errorf("%v", err)
	}
	if err := able[0].Keeps(record); err != nil {
		t.Error(err)
	}
	if able[0].Within(schemas.Profile{Name: "able", Networks: able[0].Networks}) == nil {
		t.Error("a worker may say that it keeps what its build does not declare")
	}
}
