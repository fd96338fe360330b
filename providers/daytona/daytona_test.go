package daytona_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/daytona"
	"github.com/sandjet/sandjet/providers/daytona/daytonatest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNetworks: what the service is asked to keep for each mode, and what it cannot keep is refused.
func TestNetworks(t *testing.T) {
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, nil)
	many := strings.Split(strings.Repeat("192.0.2.0/24,", 10)+"192.0.2.0/24", ",")
	for _, c := range []struct {
		network  schemas.Network
		blockAll bool
		allowed  any
		code     schemas.Code
	}{
		{schemas.Network{}, true, nil, ""},
		{schemas.Network{Mode: schemas.AllowAll}, false, nil, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"192.0.2.0/24", "198.51.100.7/32"}}, false,
			"192.0.2.0/24,198.51.100.7/32", ""},
		{schemas.Network{Mode: schemas.Restricted}, true, nil, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: many}, false, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"2001:db8::/32"}}, false, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"*.example.com"}}, false, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, DenyCIDRs: []string{"192.0.2.0/24"}}, false, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"nowhere"}}, false, nil, schemas.Invalid},
		{schemas.Network{Mode: schemas.Restricted, Credentials: map[string][]string{"A": {"b"}}}, false, nil, schemas.Unsupported},
	} {
		ref, err := p.Reserve(t.Context(), "key", providers.Spec{Account: account, Network: c.network})
		if (err == nil) != (c.code == "") || err != nil && schemas.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.network, err, c.code)
		}
		if err != nil {
			continue
		}
		body := s.Created(ref.ID)
		if body["networkBlockAll"] != c.blockAll || !reflect.DeepEqual(body["networkAllowList"], c.allowed) {
			t.Errorf("%+v is asked for with %v", c.network, body)
		}
		testwait.OK(t, p.Release(t.Context(), ref))
	}
}

// TestDroppedDomains: where the operator says so, a restricted network may name domains; they are left out of the list, and the result says
// so.
func TestDroppedDomains(t *testing.T) {
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, func(o *daytona.Options) { o.DropDomains = true })
	ref, err := p.Reserve(t.Context(), "key", providers.Spec{Account: account, Network: schemas.Network{
		Mode: schemas.Restricted, AllowDomains: []string{"*.example.com"}, AllowCIDRs: []string{"192.0.2.0/24"},
	}})
	testwait.OK(t, err)
	if body := s.Created(ref.ID); body["networkBlockAll"] != false || body["networkAllowList"] != "192.0.2.0/24" {
		t.Errorf("it is asked for with %v", body)
	}
	testwait.OK(t, p.Release(t.Context(), ref))
	for domain, said := range map[string]int{"example.com": 1, "": 0} {
		cmd := command("true")
		if cmd.Network = (schemas.Network{Mode: schemas.Restricted}); domain != "" {
			cmd.Network.AllowDomains = []string{domain}
		}
		res, err := p.Run(t.Context(), cmd)
		if err != nil || len(res.Notices) != said {
			t.Errorf("%q: %v, %q", domain, err, res.Notices)
		}
	}
}

// TestNetworkNotKept: a sandbox whose network the service has made another is not used.
func TestNetworkNotKept(t *testing.T) {
	t.Parallel()
	p, _ := start(t, daytonatest.Options{OwnNetwork: true}, nil)
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
}

// TestRefused: what a sandbox of Daytona has not is refused before anything is asked for.
func TestRefused(t *testing.T) {
	t.Parallel()
	p, err := daytona.Open(daytona.Options{Key: "key", APIURL: "http://127.0.0.1:1"})
	testwait.OK(t, err)
	for name, change := range map[string]func(c *providers.Command){
		"memory":      func(c *providers.Command) { c.Spec.MemoryLimit = 1 << 30 },
		"processors":  func(c *providers.Command) { c.Spec.CPUs = 1 },
		"isolation":   func(c *providers.Command) { c.Spec.MinIsolation = "L3" },
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

// TestImage: a sandbox of an image is one that the service builds.
func TestImage(t *testing.T) {
	t.Parallel()
	p, s := start(t, daytonatest.Options{}, func(o *daytona.Options) { o.Image, o.Target = "debian:12", "eu" })
	ref := reserve(t, p)
	body := s.Created(ref.ID)
	if want := map[string]any{"dockerfileContent": "FROM debian:12\n"}; !reflect.DeepEqual(body["buildInfo"], want) || body["target"] != "eu" {
		t.Errorf("asked for with %v", body)
	}
}

// TestNoVolumes: a key that may not use volumes has no workspaces, and everything else.
func TestNoVolumes(t *testing.T) {
	t.Parallel()
	p, s := start(t, daytonatest.Options{NoVolumes: true}, nil)
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := ok(t, p, providers.Command{Script: "pwd", Timeout: patience}); got != "/tmp" || s.Made() != 1 {
		t.Errorf("it ran in %s, and %d sandboxes were made", got, s.Made())
	}
}

// TestMuchOutput: what is printed faster than it is fetched waits, and comes whole and in order on each output.
func TestMuchOutput(t *testing.T) {
	longtest.Only(t, "tens of processes and seconds of waiting")
	t.Parallel()
	p, _ := start(t, daytonatest.Options{}, nil)
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
	for name, o := range map[string]daytona.Options{
		"no key":               {},
		"an installation":      {Key: "key", Installation: "a/b"},
		"a user":               {Key: "key", User: "a b"},
		"snapshot and image":   {Key: "key", Snapshot: "a", Image: "b"},
		"an image of lines":    {Key: "key", Image: "a\nRUN true"},
		"a time that is short": {Key: "key", Idle: 1},
		"an address":           {Key: "key", APIURL: "api"},
	} {
		if _, err := daytona.Open(o); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	_, url := daytonatest.Start(t, daytonatest.Options{})
	_, poor := daytonatest.Start(t, daytonatest.Options{NoVolumes: true})
	const key = daytonatest.Key
	for name, c := range map[string]struct {
		options daytona.Options
		good    int // findings
		says    string
	}{
		"all is there":      {daytona.Options{Key: key, APIURL: url, Snapshot: daytonatest.Snapshot}, 3, "takes the key"},
		"the own snapshot":  {daytona.Options{Key: key, APIURL: url}, 3, "the service's own"},
		"an image":          {daytona.Options{Key: key, APIURL: url, Image: "debian:12"}, 3, "of the image debian:12"},
		"no key":            {daytona.Options{APIURL: url}, 0, "DAYTONA_API_KEY"},
		"another's key":     {daytona.Options{APIURL: url, Key: "dtn_00112233"}, 0, "refuses the key"},
		"no such snapshot":  {daytona.Options{Key: key, APIURL: url, Snapshot: "none"}, 2, "there is no snapshot none"},
		"nobody answers":    {daytona.Options{Key: key, APIURL: "http://127.0.0.1:1"}, 0, "does not answer"},
		"no volumes":        {daytona.Options{Key: key, APIURL: poor}, 2, "may not see volumes"},
		"without workspace": {daytona.Options{Key: key, APIURL: poor, NoWorkspaces: true}, 3, "--daytona-no-workspaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, text := 0, ""
			for _, d := range daytona.Diagnose(t.Context(), c.options) {
				text += d.Says + "; "
				if d.Good {
					good++
				} else if d.Remedy == "" {
					t.Errorf("%q has no remedy", d.Says)
				}
			}
			if good != c.good || !strings.Contains(text, c.says) || strings.Contains(text, "dtn_00112233") {
				t.Errorf("%d good findings: %s", good, text)
			}
		})
	}
}
