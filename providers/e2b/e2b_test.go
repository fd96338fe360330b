package e2b_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNetworks: what the service is asked to keep for each mode, and what it cannot keep is refused.
func TestNetworks(t *testing.T) {
	t.Parallel()
	p, s := start(t, e2btest.Options{}, nil)
	for _, c := range []struct {
		network  schemas.Network
		internet bool
		rules    any
		code     schemas.Code
	}{
		{schemas.Network{}, false, nil, ""},
		{schemas.Network{Mode: schemas.DenyAll}, false, nil, ""},
		{schemas.Network{Mode: schemas.AllowAll}, true, nil, ""},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"*.example.com"}, AllowCIDRs: []string{"192.0.2.0/24"}}, true,
			map[string]any{"allowOut": []any{"192.0.2.0/24", "*.example.com"}, "denyOut": []any{"0.0.0.0/0"}}, ""},
		{schemas.Network{Mode: schemas.Restricted}, true, map[string]any{"denyOut": []any{"0.0.0.0/0"}}, ""},
		{schemas.Network{Mode: schemas.Restricted, DenyCIDRs: []string{"192.0.2.0/24"}}, false, nil, schemas.Unsupported},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"example.com:443"}}, false, nil, schemas.Unsupported},
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
		if body["allow_internet_access"] != c.internet || !reflect.DeepEqual(body["network"], c.rules) {
			t.Errorf("%+v: asked for %v and %v", c.network, body["allow_internet_access"], body["network"])
		}
		testwait.OK(t, p.Release(t.Context(), ref))
	}
}

// TestNoVolumes: a team without volumes has no workspaces, and everything else.
func TestNoVolumes(t *testing.T) {
	t.Parallel()
	p, s := start(t, e2btest.Options{NoVolumes: true}, nil)
	if res, err := p.Run(t.Context(), command("true")); schemas.CodeOf(err) != schemas.Unsupported || res.Started {
		t.Errorf("got %v, %+v", err, res)
	}
	if got := ok(t, p, providers.Command{Script: "pwd", Timeout: patience}); got != "/tmp" || s.Made() != 1 {
		t.Errorf("it ran in %s, and %d sandboxes were made", got, s.Made())
	}
}

func TestDiagnose(t *testing.T) {
	t.Parallel()
	_, url := e2btest.Start(t, e2btest.Options{})
	const key = e2btest.Key
	for name, c := range map[string]struct {
		options e2b.Options
		good    int // findings
		says    string
	}{
		"all is there":      {e2b.Options{Key: key, APIURL: url}, 3, "takes the key"},
		"no key":            {e2b.Options{APIURL: url}, 0, "E2B_API_KEY"},
		"not a key":         {e2b.Options{APIURL: url, Key: "sk-123"}, 0, "is not a key of E2B"},
		"another's key":     {e2b.Options{APIURL: url, Key: "e2b_00112233"}, 0, "refuses the key"},
		"no such template":  {e2b.Options{Key: key, APIURL: url, Template: "none"}, 2, "no template has the name none"},
		"nobody answers":    {e2b.Options{Key: key, APIURL: "http://127.0.0.1:1"}, 0, "does not answer"},
		"not an address":    {e2b.Options{Key: key, APIURL: "api"}, 0, "is not an address"},
		"without workspace": {e2b.Options{Key: key, APIURL: url, NoWorkspaces: true}, 3, "--e2b-no-workspaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, text := 0, ""
			for _, d := range e2b.Diagnose(t.Context(), c.options) {
				text += d.Says + "; "
				if d.Good {
					good++
				} else if d.Remedy == "" {
					t.Errorf("%q has no remedy", d.Says)
				}
			}
			if good != c.good || !strings.Contains(text, c.says) || strings.Contains(text, "e2b_00112233") {
				t.Errorf("%d good findings: %s", good, text)
			}
		})
	}
}
