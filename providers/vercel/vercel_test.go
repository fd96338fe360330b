package vercel_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/vercel"
	"github.com/sandjet/sandjet/providers/vercel/verceltest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNetworks: what the service is asked to keep for each mode, and what it cannot keep is refused.
func TestNetworks(t *testing.T) {
	t.Parallel()
	p, s := start(t, verceltest.Options{}, nil)
	for _, c := range []struct {
		network schemas.Network
		asked   string
		code    schemas.Code
	}{
		{schemas.Network{}, `{"mode":"deny-all"}`, ""},
		{schemas.Network{Mode: schemas.AllowAll}, `{"mode":"allow-all"}`, ""},
		{schemas.Network{Mode: schemas.Restricted}, `{"mode":"deny-all"}`, ""},
		{schemas.Network{Mode: schemas.Restricted, DenyCIDRs: []string{"192.0.2.0/24"}}, `{"mode":"deny-all"}`, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"*.example.com", "example.org"}},
			`{"allow":["*.example.com","example.org"]}`, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"192.0.2.0/24", "2001:db8::/32"}, DenyCIDRs: []string{"192.0.2.1/32"}},
			`{"allow":[],"subnets":{"allow":["192.0.2.0/24","2001:db8::/32"],"deny":["192.0.2.1/32"]}}`, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"example.com:443"}}, "", schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"nowhere"}}, "", schemas.Invalid},
		{schemas.Network{Mode: schemas.Restricted, Credentials: map[string][]string{"A": {"b"}}}, "", schemas.Unsupported},
	} {
		ref, err := p.Reserve(t.Context(), "key", providers.Spec{Account: account, Network: c.network})
		if (err == nil) != (c.code == "") || err != nil && schemas.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.network, err, c.code)
		}
		if err != nil {
			continue
		}
		if asked, err := json.Marshal(s.Created(ref.ID)["networkPolicy"]); err != nil || string(asked) != c.asked {
			t.Errorf("%+v is asked for with %s, want %s", c.network, asked, c.asked)
		}
		testwait.OK(t, p.Release(t.Context(), ref))
	}
}

// TestNetworkNotKept: a sandbox whose network the service has made another is not used.
func TestNetworkNotKept(t *testing.T) {
	t.Parallel()
	p, _ := start(t, verceltest.Options{OwnNetwork: true}, nil)
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
}

// TestRefused: what a sandbox of Vercel has not is refused before anything is asked for.
func TestRefused(t *testing.T) {
	t.Parallel()
	o := options("http://127.0.0.1:1")
	o.Networks = nil
	p, err := vercel.Open(o)
	testwait.OK(t, err)
	for name, change := range map[string]func(c *providers.Command){
		"memory":      func(c *providers.Command) { c.Spec.MemoryLimit = 1 << 30 },
		"processors":  func(c *providers.Command) { c.Spec.CPUs = 1 },
		"isolation":   func(c *providers.Command) { c.Spec.MinIsolation = "L4" },
		"network":     func(c *providers.Command) { c.Network.Mode = schemas.AllowAll },
		"files on S3": func(c *providers.Command) { c.Mounts = []providers.Mount{{Namespace: "x", Storage: "s3"}} },
		"two mounts":  func(c *providers.Command) { c.Mounts = []providers.Mount{{Namespace: "x"}, {Namespace: "y"}} },
	} {
		cmd := command("true")
		change(&cmd)
		if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
			t.Errorf("%s: got %v, %+v", name, err, res)
		}
	}
}

// TestMade: what a sandbox is made of, and that nothing of a command is in what the service keeps.
func TestMade(t *testing.T) {
	t.Parallel()
	p, s := start(t, verceltest.Options{}, func(o *vercel.Options) { o.Image, o.Region, o.VCPUs = "own:1", "fra1", 4 })
	ref := reserve(t, p)
	body := s.Created(ref.ID)
	for k, want := range map[string]any{
		"image": "own:1", "region": "fra1", "timeout": 900_000.0, "persistent": true, "snapshotExpiration": 31 * 86_400_000.0,
	} {
		if body[k] != want {
			t.Errorf("%s is %v, want %v", k, body[k], want)
		}
	}
	tags, _ := body["tags"].(map[string]any)
	if text, err := json.Marshal(body); err != nil || !bytes.Contains(text, []byte(`"resources":{"vcpus":4}`)) || len(tags) != 5 {
		t.Errorf("asked for with %s", text)
	}
	c := in(ref, "echo $SECRET; cat")
	c.Env, c.Stdin = map[string]string{"SECRET": "of-the-command"}, []byte("its-input")
	if got := ok(t, p, c); got != "of-the-command\nits-input" {
		t.Errorf("it printed %q", got)
	}
	kept := s.Arguments()
	if strings.Contains(kept, "of-the-command") || strings.Contains(kept, "its-input") || !strings.Contains(kept, "mkfifo") {
		t.Error("the service keeps what a command is given")
	}
}

// TestNoDrives: a project that has no drives has no workspaces, and everything else.
func TestNoDrives(t *testing.T) {
	t.Parallel()
	p, s := start(t, verceltest.Options{NoDrives: true}, nil)
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := ok(t, p, providers.Command{Script: "pwd", Timeout: patience}); got != "/tmp" || s.Made() != 1 {
		t.Errorf("it ran in %s, and %d sandboxes were made", got, s.Made())
	}
}

// TestMuchOutput: what is printed faster than it is taken waits, and comes whole and in order on each output.
func TestMuchOutput(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, verceltest.Options{}, nil)
	lines := []int{longtest.Scale(120_000, 400_000), longtest.Scale(30_000, 100_000)}
	cmd := providers.Command{Script: fmt.Sprintf("seq %d; seq %d >&2; head -c 100000 /dev/zero", lines[0], lines[1]), Timeout: patience}
	var got [2]bytes.Buffer
	cmd.Output = func(c providers.Chunk) {
		i := 0
		if c.Stderr {
			i = 1
		}
		got[i].Write(c.Data)
	}
	res, err := p.Run(t.Context(), cmd)
	testwait.OK(t, err)
	for i, after := range []string{strings.Repeat("\x00", 100000), ""} {
		last := fmt.Sprintf("\n%d\n%s", lines[i], after)
		if text := got[i].String(); !strings.HasSuffix(text, last) || strings.Count(text, "\n") != lines[i] {
			t.Errorf("output %d has %d bytes and %d lines", i, len(text), strings.Count(text, "\n"))
		}
	}
	if res.StdoutBytes != int64(got[0].Len()) || !res.Truncated {
		t.Errorf("the result says %d bytes", res.StdoutBytes)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*vercel.Options){
		"no token":             func(o *vercel.Options) { o.Token = "" },
		"no team":              func(o *vercel.Options) { o.Team = "" },
		"no project":           func(o *vercel.Options) { o.Project = "a/b" },
		"an installation":      func(o *vercel.Options) { o.Installation = "a_b" },
		"a user":               func(o *vercel.Options) { o.User = "a b" },
		"an image of lines":    func(o *vercel.Options) { o.Image = "a\nb" },
		"a region":             func(o *vercel.Options) { o.Region = "nowhere" },
		"processors":           func(o *vercel.Options) { o.VCPUs = 33 },
		"a time that is short": func(o *vercel.Options) { o.Idle = 1 },
		"an address":           func(o *vercel.Options) { o.APIURL = "api" },
	} {
		o := options("http://127.0.0.1:1")
		change(&o)
		if _, err := vercel.Open(o); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	s, url := verceltest.Start(t, verceltest.Options{})
	_, poor := verceltest.Start(t, verceltest.Options{NoDrives: true})
	for name, c := range map[string]struct {
		url    string
		change func(*vercel.Options)
		good   int // findings
		says   string
	}{
		"all is there":      {url, func(*vercel.Options) {}, 2, "takes the token"},
		"no token":          {url, func(o *vercel.Options) { o.Token = "" }, 0, "VERCEL_TOKEN"},
		"another's token":   {url, func(o *vercel.Options) { o.Token = "vcp_00112233" }, 0, "refuses the token"},
		"another's team":    {url, func(o *vercel.Options) { o.Team = "team_other" }, 0, "team_other"},
		"another's project": {url, func(o *vercel.Options) { o.Project = "prj_other" }, 0, "no project prj_other"},
		"nobody answers":    {"http://127.0.0.1:1", func(*vercel.Options) {}, 0, "does not answer"},
		"no drives":         {poor, func(*vercel.Options) {}, 1, "has no drives"},
		"without workspace": {poor, func(o *vercel.Options) { o.NoWorkspaces = true }, 2, "--vercel-no-workspaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(c.url)
			c.change(&o)
			good, text := 0, ""
			for _, d := range vercel.Diagnose(t.Context(), o) {
				text += d.Says + "; "
				if d.Good {
					good++
				} else if d.Remedy == "" {
					t.Errorf("%q has no remedy", d.Says)
				}
			}
			if good != c.good || !strings.Contains(text, c.says) || strings.Contains(text, "vcp_00112233") {
				t.Errorf("%d good findings: %s", good, text)
			}
		})
	}
	if s.Made() != 0 {
		t.Error("it has made something")
	}
}
