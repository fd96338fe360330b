package deno_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNetworks: what the service is asked to keep for each mode, and what it cannot keep is refused.
func TestNetworks(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	restricted := func(domains, ranges []string) schemas.Network {
		return schemas.Network{Mode: schemas.Restricted, AllowDomains: domains, AllowCIDRs: ranges}
	}
	for _, c := range []struct {
		network schemas.Network
		allowed any // as JSON
		code    schemas.Code
	}{
		{schemas.Network{}, []any{}, ""},
		{schemas.Network{Mode: schemas.DenyAll}, []any{}, ""},
		{schemas.Network{Mode: schemas.AllowAll}, nil, ""},
		{restricted(nil, nil), []any{}, ""},
		{restricted([]string{"*.example.com", "git.example.com:22"}, []string{"192.0.2.7/32", "2001:db8::1/128"}), []any{
			"*.example.com:80", "*.example.com:443", "git.example.com:22", "192.0.2.7", "[2001:db8::1]",
		}, ""},
		{restricted([]string{"bücher.example"}, nil), []any{"bücher.example:80", "bücher.example:443"}, ""},
		{restricted(nil, []string{"192.0.2.0/24"}), nil, schemas.Unsupported},
		{restricted(nil, []string{"nowhere"}), nil, schemas.Invalid},
		{schemas.Network{Mode: schemas.Restricted, DenyCIDRs: []string{"192.0.2.0/24"}}, nil, schemas.Unsupported},
	} {
		ref, err := p.Reserve(t.Context(), "key", providers.Spec{Account: account, Network: c.network})
		if (err == nil) != (c.code == "") || err != nil && schemas.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.network, err, c.code)
		}
		if err != nil {
			continue
		}
		body := s.Created(ref.ID)
		if got, there := body["allow_net"]; !reflect.DeepEqual(got, c.allowed) || there != (c.allowed != nil) {
			t.Errorf("%+v is asked for with %v", c.network, body)
		}
		testwait.OK(t, p.Release(t.Context(), ref))
	}
}

// TestCredentials: the service has the values of variables that are bound to hosts, and commands have their substitutes. After a change
// of a value a kept sandbox is created again.
func TestCredentials(t *testing.T) {
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	with := func(value string) providers.Spec {
		return providers.Spec{Account: account, Env: map[string]string{"API_KEY": value, "PLAIN": "text"}, Network: schemas.Network{
			Mode: schemas.Restricted, AllowDomains: []string{"api.example.com"}, Credentials: map[string][]string{"API_KEY": {"api.example.com"}},
		}}
	}
	one, err := p.Reserve(t.Context(), "key", with("sesame-1"))
	testwait.OK(t, err)
	want := map[string]any{"API_KEY": map[string]any{"hosts": []any{"api.example.com"}, "value": "sesame-1"}}
	if got := s.Created(one.ID)["secrets"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the service has %v", got)
	}
	for name, ref := range map[string]schemas.Ref{"kept": one, "fresh": {}} {
		cmd := providers.Command{Script: `echo "$API_KEY $PLAIN"; env`, Spec: with("sesame-1"), Network: with("").Network, Sandbox: ref}
		cmd.Env, cmd.Timeout = cmd.Spec.Env, patience
		got := ok(t, p, cmd)
		if strings.Contains(got, "sesame") || !strings.HasPrefix(got, "DENO_SECRET_PLACEHOLDER_") || !strings.Contains(got, " text\n") {
			t.Errorf("%s: the command has %q", name, got)
		}
	}
	two, err := p.Reserve(t.Context(), "key", with("sesame-2"))
	testwait.OK(t, err)
	if two == one {
		t.Error("the sandbox with the old value was taken")
	}
	testwait.OK(t, p.Release(t.Context(), two))
	unbound := with("")
	if _, err := p.Reserve(t.Context(), "key", unbound); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("a variable without a value: %v", err)
	}
	long := with(strings.Repeat("x", 9000))
	if _, err := p.Reserve(t.Context(), "key", long); schemas.CodeOf(err) != schemas.Unsupported {
		t.Errorf("a value that is too long for the service: %v", err)
	}
}

// TestRefused: what a sandbox of Deno has not is refused before anything is asked for.
func TestRefused(t *testing.T) {
	t.Parallel()
	p, err := deno.Open(deno.Options{Token: denotest.Token, APIURL: "http://127.0.0.1:1", SandboxURL: "http://127.0.0.1:1"})
	testwait.OK(t, err)
	none, err := deno.Open(deno.Options{Token: denotest.Token, APIURL: "http://127.0.0.1:1", NoWorkspaces: true})
	testwait.OK(t, err)
	for name, change := range map[string]func(c *providers.Command){
		"memory":           func(c *providers.Command) { c.Spec.MemoryLimit = 1 << 30 },
		"processors":       func(c *providers.Command) { c.Spec.CPUs = 1 },
		"another level":    func(c *providers.Command) { c.Spec.MinIsolation = "L9" },
		"another network":  func(c *providers.Command) { c.Network.Mode = schemas.AllowAll },
		"two workspaces":   func(c *providers.Command) { c.Mounts = []providers.Mount{{Namespace: "a"}, {Namespace: "b"}} },
		"files on S3":      func(c *providers.Command) { c.Mounts = []providers.Mount{{Namespace: "x", Storage: "s3"}} },
		"bound everywhere": func(c *providers.Command) { c.Network.Credentials = map[string][]string{"A": {"b"}} },
	} {
		cmd := command("true")
		change(&cmd)
		if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := none.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported {
		t.Errorf("a workspace where there are none: %v", err)
	}
	if _, err := p.Reserve(t.Context(), strings.Repeat("k", 200), spec()); schemas.CodeOf(err) != schemas.Unsupported {
		t.Errorf("a key that is too long for a label: %v", err)
	}
}

// TestNoVolumes: an organization without volumes has no workspaces, and everything else. A personal token names its organization.
func TestNoVolumes(t *testing.T) {
	t.Parallel()
	p, s := start(t, denotest.Options{NoVolumes: true}, func(o *deno.Options) {
		o.Token, o.Organization = denotest.PersonalToken, denotest.Org
	})
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := ok(t, p, providers.Command{Script: "pwd; cd; pwd", Timeout: patience}); got != "/tmp\n/home/app" || s.Made() != 1 {
		t.Errorf("it ran in %s, and %d sandboxes were made", got, s.Made())
	}
}

// TestOpen: settings that are out of range are refused by their names.
func TestOpen(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]deno.Options{
		"deno-token":        {},
		"deno-organization": {Token: "ddp_0123456789"},
		"deno-region":       {Token: denotest.Token, Region: "../x"},
		"deno-root":         {Token: denotest.Token, Root: "a/b"},
		"deno-memory":       {Token: denotest.Token, Memory: 100},
		"deno-installation": {Token: denotest.Token, Installation: "a b"},
		"deno-volume-size":  {Token: denotest.Token, Volume: 1},
		"deno-api-url":      {Token: denotest.Token, APIURL: "console"},
		"deno-sandbox-url":  {Token: denotest.Token, SandboxURL: "ftp://x"},
		"deno-domain":       {Token: denotest.Token, Domain: "a/b c"},
	} {
		if _, err := deno.Open(o); schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for length, good := range map[int]bool{7: false, 8: true, 1000: true, 1001: false} {
		_, err := deno.Open(deno.Options{Token: "ddo_" + strings.Repeat("x", length-4)})
		if invalid := schemas.CodeOf(err) == schemas.Invalid; invalid == good {
			t.Errorf("a token of %d characters: %v", length, err)
		}
	}
	for length, good := range map[int]bool{1: true, 251: true, 252: false} {
		for _, port := range []string{"", ":65535"} {
			_, err := deno.Open(deno.Options{Token: denotest.Token, Domain: strings.Repeat("x", length) + port})
			if invalid := schemas.CodeOf(err) == schemas.Invalid; invalid == good {
				t.Errorf("a host of %d characters and the port %q: %v", length, port, err)
			}
		}
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	_, url := denotest.Start(t, denotest.Options{})
	_, bare := denotest.Start(t, denotest.Options{NoVolumes: true, Clock: 90 * 60e9})
	const token = denotest.Token
	for name, c := range map[string]struct {
		options deno.Options
		good    int // findings
		says    string
	}{
		"all is there":      {deno.Options{Token: token, APIURL: url, SandboxURL: url}, 4, "takes the token"},
		"no token":          {deno.Options{APIURL: url}, 0, "DENO_DEPLOY_TOKEN"},
		"another's token":   {deno.Options{Token: "ddo_another-one", APIURL: url, SandboxURL: url}, 0, "refuses the token"},
		"no such root":      {deno.Options{Token: token, APIURL: url, SandboxURL: url, Root: "none"}, 3, "no snapshot none"},
		"nobody answers":    {deno.Options{Token: token, APIURL: "http://127.0.0.1:1"}, 0, "does not answer"},
		"no sandboxes":      {deno.Options{Token: token, APIURL: url, SandboxURL: "http://127.0.0.1:1"}, 3, "does not answer"},
		"another clock":     {deno.Options{Token: token, APIURL: bare, SandboxURL: bare}, 4, "clock differs from the service's by 1h30m"},
		"without workspace": {deno.Options{Token: token, APIURL: url, SandboxURL: url, NoWorkspaces: true}, 4, "--deno-no-workspaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, text := 0, ""
			for _, d := range deno.Diagnose(t.Context(), c.options) {
				text += d.Says + "; "
				if d.Good {
					good++
				} else if d.Remedy == "" {
					t.Errorf("%q has no remedy", d.Says)
				}
			}
			if good != c.good || !strings.Contains(text, c.says) || strings.Contains(text, "another-one") {
				t.Errorf("%d good findings: %s", good, text)
			}
		})
	}
}
