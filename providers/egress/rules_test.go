package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

// rules compiles a restricted network on a host that has the address 93.184.216.1.
func rules(t testing.TB, n schemas.Network, private ...netip.Prefix) *Rules {
	t.Helper()
	if n.Mode == "" {
		n.Mode = schemas.Restricted
	}
	r, err := Compile(n, private)
	if err != nil {
		t.Fatal(err)
	}
	r.own = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("93.184.216.1")} }
	return r
}

func TestNamesAreDecidedLabelByLabel(t *testing.T) {
	t.Parallel()
	r := rules(t, schemas.Network{AllowDomains: []string{"example.com", "*.wild.example", "git.example:22", "both.example",
		"both.example:8443"}})
	for _, c := range []struct {
		name string
		port uint16
		rule string // that refuses; empty: allowed
	}{
		{"example.com", 443, ""},
		{"example.com", 80, ""},
		{"example.com", 8080, RulePort},
		{"example.com", 22, RulePort},
		{"www.example.com", 443, RuleNotAllowed},
		{"evilexample.com", 443, RuleNotAllowed},
		{"example.com.evil.test", 443, RuleNotAllowed},
		{"a.wild.example", 443, ""},
		{"a.b.wild.example", 443, ""},
		{"wild.example", 443, RuleNotAllowed},
		{"evilwild.example", 443, RuleNotAllowed},
		{"git.example", 22, ""},
		{"git.example", 443, RulePort},
		{"both.example", 443, ""},
		{"both.example", 8443, ""},
		{"both.example", 8444, RulePort},
		{"com", 443, RuleNotAllowed},
	} {
		if v := r.Name(c.name, c.port); v.Allowed != (c.rule == "") || v.Rule != c.rule {
			t.Errorf("%s:%d: %+v, want %q", c.name, c.port, v, c.rule)
		}
	}
	if v := r.Name("evil.test", 443); !strings.Contains(v.Text, "evil.test") || !strings.Contains(v.Text,
		"example.com, *.wild.example, git.example:22") {
		t.Errorf("the refusal %q does not say what is allowed", v.Text)
	}
}

func TestEmptyListAllowsNothing(t *testing.T) {
	t.Parallel()
	for _, r := range []*Rules{rules(t, schemas.Network{}), rules(t, schemas.Network{Mode: schemas.DenyAll}), rules(t,
		schemas.Network{DenyCIDRs: []string{"10.0.0.0/8"}})} {
		if r.Name("example.com", 443).Allowed || r.Knows("example.com").Allowed || r.Addr(netip.MustParseAddr("93.184.216.34"), 443).Allowed {
			t.Errorf("something is allowed in %+v", r)
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	private := netip.MustParsePrefix("10.20.0.0/16")
	lists := rules(t, schemas.Network{
		AllowCIDRs: []string{"93.184.0.0/16", "10.20.1.0/24", "0.0.0.0/0", "2606:2800::/32"}, DenyCIDRs: []string{"93.184.217.0/24",
			"10.20.1.128/25"},
	}, private)
	few := rules(t, schemas.Network{AllowCIDRs: []string{"93.184.216.0/24"}})
	all := rules(t, schemas.Network{Mode: schemas.AllowAll}, private)
	for _, c := range []struct {
		rules *Rules
		addr  string
		rule  string
	}{
		{few, "93.184.216.34", ""},
		{few, "::ffff:93.184.216.34", ""},
		{few, "64:ff9b::5db8:d822", ""},
		{few, "93.184.217.1", RuleNotAllowed},
		{few, "10.0.0.1", RuleNotAllowed},
		{few, "93.184.216.1", RuleNotPublic}, // the host itself
		{lists, "93.184.216.34", ""},
		{lists, "93.184.217.1", RuleDenied}, // deny beats allow
		{lists, "64:ff9b::5db8:d901", RuleDenied},
		{lists, "8.8.8.8", ""},
		{lists, "10.20.1.1", ""},
		{lists, "10.20.1.129", RuleDenied},
		{lists, "10.20.2.1", ""}, // listed by 0.0.0.0/0, opened by the operator
		{lists, "10.21.0.1", RuleNotPublic},
		{lists, "127.0.0.1", RuleNotPublic},
		{lists, "2606:2800::1", ""},
		{lists, "2607:2800::1", RuleNotAllowed},
		{lists, "169.254.169.254", RuleMetadata},
		{all, "93.184.216.34", ""},
		{all, "93.184.216.1", RuleNotPublic},
		{all, "10.20.1.1", RuleNotPublic}, // more than the public needs a rule of the operator
		{all, "127.0.0.1", RuleNotPublic},
		{all, "0.0.0.0", RuleNotPublic},
		{all, "100.64.0.1", RuleNotPublic},
		{all, "192.168.1.1", RuleNotPublic},
		{all, "169.254.169.254", RuleMetadata},
		{all, "fd00:ec2::254", RuleMetadata},
		{all, "fe80::1%eth0", RuleNotPublic},
		{all, "fc00::1", RuleNotPublic},
		{all, "::1", RuleNotPublic},
		{all, "::ffff:10.0.0.1", RuleNotPublic},
		{all, "64:ff9b::a00:1", RuleNotPublic},
		{all, "2002:a00:1::1", RuleNotPublic},
		{all, "224.0.0.1", RuleNotPublic},
		{all, "255.255.255.255", RuleNotPublic},
		{all, "198.18.0.5", RuleNotPublic},
	} {
		if v := c.rules.Addr(netip.MustParseAddr(c.addr), 443); v.Allowed != (c.rule == "") || v.Rule != c.rule {
			t.Errorf("%s under %v: %+v, want %q", c.addr, c.rules.allow, v, c.rule)
		}
	}
	// Metadata stays closed even where everybody wants it open.
	open := rules(t, schemas.Network{AllowCIDRs: []string{"169.254.0.0/16", "fd00::/8"}}, netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("fd00::/8"))
	for _, a := range []string{"169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"} {
		if v := open.Addr(netip.MustParseAddr(a), 80); v.Rule != RuleMetadata {
			t.Errorf("%s: %+v, want it refused as metadata", a, v)
		}
	}
	if v := open.Addr(netip.MustParseAddr("169.254.1.1"), 80); !v.Allowed {
		t.Errorf("169.254.1.1 is listed and opened: %+v", v)
	}
}

func TestNetworksThatCannotBeKept(t *testing.T) {
	t.Parallel()
	private := []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}
	for _, c := range []struct {
		network schemas.Network
		code    error
		says    string
	}{
		{schemas.Network{Mode: "none"}, schemas.ErrUnsupported, "unknown"},
		{schemas.Network{Mode: schemas.AllowAll, AllowDomains: []string{"a.example"}}, schemas.ErrInvalid, "restricted"},
		{schemas.Network{Mode: schemas.DenyAll, AllowCIDRs: []string{"0.0.0.0/0"}}, schemas.ErrInvalid, "restricted"},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a b"}}, schemas.ErrInvalid, "allow_domains[0]"},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a.example", "*"}}, schemas.ErrInvalid, "allow_domains[1]"},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a.example:0"}}, schemas.ErrInvalid, "port"},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a.example:65536"}}, schemas.ErrInvalid, "port"},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a.example:022"}}, schemas.ErrInvalid, "port"},
		{schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"127.1"}}, schemas.ErrInvalid, "127.0.0.1/32"},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"10.20.1.1/8"}}, schemas.ErrInvalid, "allow_cidrs[0]"},
		{schemas.Network{Mode: schemas.Restricted, DenyCIDRs: []string{"x"}}, schemas.ErrInvalid, "deny_cidrs[0]"},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"1.0.0.0/8", "10.0.0.0/8"}}, schemas.ErrUnsupported,
			"--private-networks"},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"127.0.0.0/8"}}, schemas.ErrUnsupported, "loopback"},
		{schemas.Network{Mode: schemas.Restricted, AllowCIDRs: []string{"10.20.1.0/24", "0.0.0.0/0", "::/0"}}, nil, ""},
	} {
		_, err := Compile(c.network, private)
		if c.code == nil && err != nil || c.code != nil && (!errors.Is(err, c.code) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, want %v with %q", c.network, err, c.code, c.says)
		}
	}
}

func TestNamesGetAddressesOfTheirOwn(t *testing.T) {
	t.Parallel()
	n := newNames(100)
	seen := map[netip.Addr]string{}
	for i := range 1000 {
		name := strings.Repeat("a", i%60+1) + "." + string(rune('a'+i%26)) + ".example"
		a := n.addr(name)
		if !pool.Contains(a) || a == NameServer || seen[a] != "" && seen[a] != name {
			t.Fatalf("%s got %s, which is %q's", name, a, seen[a])
		}
		seen[a] = name
		if got, ok := n.name(a); !ok || got != name {
			t.Fatalf("%s belongs to %q, want %s", a, got, name)
		}
		if n.addr(name) != a {
			t.Fatalf("%s changed its address", name)
		}
	}
	if len(n.byAddr) > 100 || len(n.byName) > 100 || n.recent.Len() > 100 {
		t.Errorf("%d names are kept, want at most 100", len(n.byName))
	}
}

//guarantee:a-box-reaches-what-its-rules-name
func FuzzParseDomain(f *testing.F) {
	for _, s := range []string{"example.com", "*.example.com:22", "*.", "a:1", "127.1", "*.*.a"} {
		f.Add(s, "www.example.com")
	}
	f.Fuzz(func(t *testing.T, rule, name string) {
		d, err := parseDomain(rule)
		h, herr := netguard.ParseHost(name)
		if err != nil || herr != nil || h.Name == "" || !d.matches(h.Name) {
			return
		}
		labels, want := strings.Split(h.Name, "."), strings.Split(d.name, ".")
		if d.sub && len(labels) <= len(want) || !d.sub && len(labels) != len(want) || strings.Join(labels[len(labels)-len(want):],
			".") != d.name {
			t.Fatalf("%q matches %q", rule, h.Name)
		}
	})
}
