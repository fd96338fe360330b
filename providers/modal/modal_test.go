package modal_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/providers/modal/modaltest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNetworks: what the service is asked to keep for each mode, and what it cannot keep is refused.
func TestNetworks(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{}, nil)
	const open, blocked, listed = pb.NetworkAccess_OPEN, pb.NetworkAccess_BLOCKED, pb.NetworkAccess_ALLOWLIST
	for _, c := range []struct {
		network        schemas.Network
		kind           pb.NetworkAccess_NetworkAccessType
		cidrs, domains []string
		code           schemas.Code
	}{
		{schemas.Network{}, blocked, nil, nil, ""},
		{schemas.Network{Mode: schemas.AllowAll}, open, nil, nil, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"192.0.2.0/24"}}, listed, []string{"192.0.2.0/24"}, nil, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"example.com", "*.example.com"}}, listed, nil,
			[]string{"example.com", "*.example.com"}, ""},
		{schemas.Network{Mode: schemas.Restricted}, blocked, nil, nil, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"*.example.com"}}, 0, nil, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"example.com:22"}}, 0, nil, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, DenyCIDRs: []string{"192.0.2.0/24"}}, 0, nil, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"nowhere"}}, 0, nil, nil, schemas.Invalid},
		{schemas.Network{Mode: schemas.Restricted, Credentials: map[string][]string{"A": {"b"}}}, 0, nil, nil, schemas.Unsupported},
	} {
		ref, err := p.Reserve(t.Context(), "key", providers.Spec{Account: account, Network: c.network})
		if (err == nil) != (c.code == "") || err != nil && schemas.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.network, err, c.code)
		}
		if err != nil {
			continue
		}
		got := s.Created(ref.ID).GetDefinition().GetNetworkAccess()
		if got.GetNetworkAccessType() != c.kind || !slices.Equal(got.GetAllowedCidrs(), c.cidrs) ||
			!slices.Equal(got.GetAllowedDomains(), c.domains) {
			t.Errorf("%+v is asked for with %v", c.network, got)
		}
		testwait.OK(t, p.Release(t.Context(), ref))
	}
}

// TestRefused: what a sandbox of Modal has not is refused before anything is asked for.
func TestRefused(t *testing.T) {
	t.Parallel()
	p, err := modal.Open(modal.Options{TokenID: "ak", TokenSecret: "as", ServerURL: "http://127.0.0.1:1"})
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
	testwait.OK(t, p.Close())
}

// TestAskedFor: what sandboxes are made of, and for how long.
func TestAskedFor(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{}, func(o *modal.Options) {
		o.CPUs, o.Memory, o.Regions, o.Image, o.Idle = 0.5, 512, []string{"eu"}, modaltest.BuiltImage, 7*time.Minute
	})
	ref := reserve(t, p)
	d := s.Created(ref.ID).GetDefinition()
	r := d.GetResources()
	if r.GetMilliCpu() != 500 || r.GetMilliCpuMax() != 500 || r.GetMemoryMb() != 512 || r.GetMemoryMbMax() != 512 ||
		d.GetImageId() != modaltest.BuiltImage || !slices.Equal(d.GetSchedulerPlacement().GetRegions(), []string{"eu"}) {
		t.Errorf("asked for with %v", d)
	}
	if d.GetRuntime() != modal.RuntimeVM || d.GetTimeoutSecs() != 24*3600 || d.GetIdleTimeoutSecs() != 7*60 {
		t.Errorf("a kept one is asked for with %v", d)
	}
	cmd := command("echo ready; sleep 600")
	cmd.Timeout = 10 * time.Minute
	cmd.Output = func(providers.Chunk) {
		for _, id := range s.Boxes() {
			if d := s.Created(id).GetDefinition(); id != ref.ID {
				if d.GetRuntime() != "" || d.GetTimeoutSecs() < 600+60 || d.GetTimeoutSecs() > 900 || d.HasIdleTimeoutSecs() {
					t.Errorf("one of a run alone is asked for with %v", d)
				}
				go s.Expire(id)
			}
		}
	}
	if res, err := p.Run(t.Context(), cmd); schemas.CodeOf(err) != schemas.Interrupted || !res.Started {
		t.Errorf("%v, %+v", err, res)
	}
}

// TestRules: a kept sandbox that was made under other rules is not used, and another one is created.
func TestRules(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{}, nil)
	first := reserve(t, p)
	other := spec()
	other.Network.Mode = schemas.AllowAll
	second, err := p.Reserve(t.Context(), t.Name(), other)
	testwait.OK(t, err)
	if second.ID == first.ID || len(s.Boxes()) != 1 {
		t.Errorf("got %v after %v, and %v run", second, first, s.Boxes())
	}
	if _, err := p.Run(t.Context(), in(second, "true")); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a run under other rules: %v", err)
	}
	testwait.OK(t, p.Release(t.Context(), second))
}

// TestNoMarks: a sandbox in which commands cannot be distinguished is not kept. A sandbox of a single run is ended whole, and may be
// used.
func TestNoMarks(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{NoMarks: true}, nil)
	if _, err := p.Reserve(t.Context(), "key", spec()); schemas.CodeOf(err) != schemas.Unsupported {
		t.Errorf("got %v", err)
	}
	testwait.Eventually(t, "it is ended", func() bool { return len(s.Boxes()) == 0 })
	if got := ok(t, p, command("echo ran")); got != "ran" {
		t.Errorf("got %q", got)
	}
	cmd := command("setsid sleep 600 & sleep 600")
	cmd.Timeout = 500 * time.Millisecond
	if res, err := p.Run(t.Context(), cmd); err != nil || !res.TimedOut {
		t.Errorf("%v, %+v", err, res)
	}
}

// TestFilesAreKept: what a command writes is there for the next sandbox, also where its time was over. A kept sandbox shows the changes
// by other sandboxes, and where the service refuses to show them, the run continues.
func TestFilesAreKept(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{}, nil)
	cmd := command("echo late >file; sleep 600")
	cmd.Timeout = 2 * time.Second
	syncs := s.Starts()
	if res, err := p.Run(t.Context(), cmd); err != nil || !res.TimedOut || s.Starts()-syncs != 2 {
		t.Errorf("%v, %+v, %d processes", err, res, s.Starts()-syncs)
	}
	ref := reserve(t, p)
	s.Fail(modaltest.Fault{Method: reload, Code: codes.FailedPrecondition})
	for range 2 {
		if got := ok(t, p, in(ref, "cat file")); got != "late" {
			t.Errorf("got %q", got)
		}
	}
	if s.Reloads() != 1 {
		t.Errorf("volumes were reloaded %d times", s.Reloads())
	}
}

// TestNoVolumes: credentials that may not use volumes have no workspaces, and everything else.
func TestNoVolumes(t *testing.T) {
	t.Parallel()
	p, s := start(t, modaltest.Options{NoVolumes: true}, nil)
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := ok(t, p, providers.Command{Script: "pwd", Timeout: patience}); got != "/tmp" || s.Made() != 1 {
		t.Errorf("it ran in %s, and %d sandboxes were made", got, s.Made())
	}
}

// TestNoImage: an image that cannot be built, or is not there.
func TestNoImage(t *testing.T) {
	t.Parallel()
	_, url := modaltest.Start(t, modaltest.Options{})
	for _, image := range []string{"none:1", "im-none"} {
		p := on(t, url, func(o *modal.Options) { o.Image = image })
		if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
			t.Errorf("%s: %v, %+v", image, err, res)
		}
		testwait.OK(t, p.Close())
	}
}

// TestMuchOutput: what is printed faster than it is taken waits, and comes whole and in order on each output.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	p, _ := start(t, modaltest.Options{}, nil)
	cmd := providers.Command{Script: "seq 400000; seq 100000 >&2; head -c 100000 /dev/zero", Timeout: patience}
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
	for i, last := range []string{"\n400000\n" + strings.Repeat("\x00", 100000), "\n100000\n"} {
		if text := got[i].String(); !strings.HasSuffix(text, last) || strings.Count(text, "\n") != []int{400000, 100000}[i] {
			t.Errorf("output %d has %d bytes and %d lines", i, len(text), strings.Count(text, "\n"))
		}
	}
	if res.StdoutBytes != int64(got[0].Len()) || !res.Truncated {
		t.Errorf("the result says %d bytes", res.StdoutBytes)
	}
}

// TestLongKeys: a key of any length and characters is found again in a list.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	p, _ := start(t, modaltest.Options{}, nil)
	key := strings.Repeat("k/ä \n", 60)
	of := spec()
	of.Deployment = "dep"
	ref, err := p.Reserve(t.Context(), key, of)
	testwait.OK(t, err)
	all, err := p.ListKept(t.Context(), "dep")
	if err != nil || len(all) != 1 || all[0].Key != key || all[0].Ref != ref {
		t.Errorf("listed are %+v, %v", all, err)
	}
	testwait.OK(t, p.Release(t.Context(), ref))
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*modal.Options){
		"no token":         func(o *modal.Options) { o.TokenID = "" },
		"no secret":        func(o *modal.Options) { o.TokenSecret = "" },
		"an app":           func(o *modal.Options) { o.App = "a/b" },
		"an image":         func(o *modal.Options) { o.Image = "a\nRUN true" },
		"a runtime":        func(o *modal.Options) { o.Runtime = "runc" },
		"processors":       func(o *modal.Options) { o.CPUs = 0.01 },
		"memory":           func(o *modal.Options) { o.Memory = 1 },
		"a time too short": func(o *modal.Options) { o.Idle = 1 },
		"a long build":     func(o *modal.Options) { o.Build = 2 * time.Hour },
		"an address":       func(o *modal.Options) { o.ServerURL = "api" },
	} {
		o := modal.Options{TokenID: "ak", TokenSecret: "as"}
		change(&o)
		if _, err := modal.Open(o); schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	_, url := modaltest.Start(t, modaltest.Options{})
	for name, c := range map[string]struct {
		change func(*modal.Options)
		good   int // findings
		says   string
	}{
		"all is there":      {func(o *modal.Options) { o.Image = modaltest.BuiltImage }, 3, "takes the token"},
		"a name of image":   {func(*modal.Options) {}, 3, "builds one of debian:12"},
		"no token":          {func(o *modal.Options) { o.TokenID = "" }, 0, "MODAL_TOKEN_ID"},
		"another's token":   {func(o *modal.Options) { o.TokenSecret = "as-another-secret" }, 0, "refuses the token"},
		"no such image":     {func(o *modal.Options) { o.Image = "im-none" }, 2, "there is no image im-none"},
		"nobody answers":    {func(o *modal.Options) { o.ServerURL = "http://127.0.0.1:1" }, 0, "does not answer"},
		"without workspace": {func(o *modal.Options) { o.NoWorkspaces = true }, 3, "--modal-no-workspaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := modal.Options{TokenID: modaltest.TokenID, TokenSecret: modaltest.TokenSecret, ServerURL: url}
			c.change(&o)
			good, text := 0, ""
			for _, d := range modal.Diagnose(t.Context(), o) {
				text += d.Says + "; "
				if d.Good {
					good++
				} else if d.Remedy == "" {
					t.Errorf("%q has no remedy", d.Says)
				}
			}
			if good != c.good || !strings.Contains(text, c.says) || strings.Contains(text, "as-another-secret") {
				t.Errorf("%d good findings: %s", good, text)
			}
		})
	}
}
