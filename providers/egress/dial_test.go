package egress

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestAddressLiterals(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:443")
	w.Echo("93.184.217.34:9000")
	s := w.enter(schemas.Network{Mode: schemas.Restricted, AllowDomains: []string{"a.example"},
		AllowCIDRs: []string{"93.184.217.0/24"}}, Limits{})
	for _, to := range []string{"93.184.216.34:443", "127.0.0.1:80", "169.254.169.254:80", "10.0.0.1:443", "192.168.1.1:22",
		"198.18.5.5:443", "[::1]:80", "[fd00:ec2::254]:80"} {
		s.refusal(s.connect(to), RuleNotAllowed)
	}
	if reached := w.Dialled(); len(reached) != 0 {
		t.Fatalf("%v were connected to", reached)
	}
	c := s.connect("93.184.217.34:9000") // listed: any port, nothing is looked at
	_, _ = io.WriteString(c, "raw bytes")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "raw bytes" {
		t.Errorf("%q, %v", got, err)
	}
}

//guarantee:a-box-reaches-what-its-rules-name
func TestNamesThatLeadToClosedPlaces(t *testing.T) {
	for to, rule := range map[string]string{
		"127.0.0.1": RuleNotPublic, "10.0.0.1": RuleNotPublic, "169.254.169.254": RuleMetadata, "fd00:ec2::254": RuleMetadata,
		"::1":                RuleNotPublic,
		"::ffff:192.168.0.1": RuleNotPublic, "64:ff9b::a9fe:a9fe": RuleMetadata, "100.64.3.3": RuleNotPublic, "fe80::1": RuleNotPublic,
		"198.18.0.1":   RuleNotPublic,
		"93.184.216.1": RuleNotPublic, "93.184.99.1": RuleDenied,
	} {
		t.Run(to, func(t *testing.T) {
			for _, mode := range []schemas.NetworkMode{schemas.Restricted, schemas.AllowAll} {
				n := schemas.Network{Mode: mode}
				if mode == schemas.Restricted {
					n.AllowDomains, n.DenyCIDRs = []string{"a.example:22"}, []string{"93.184.99.0/24"}
				} else if rule == RuleDenied {
					continue
				}
				w := newWorld(t)
				w.Name("a.example", "93.184.216.34", to) // one good address does not help
				w.Echo("93.184.216.34:22")
				s := w.enter(n, Limits{})
				s.refusal(s.reach("a.example", 22), rule)
				if reached := w.Dialled(); len(reached) != 0 {
					t.Errorf("%s: %v were connected to", mode, reached)
				}
			}
		})
	}
}

// TestRebinding: what a name resolved to earlier does not matter, and what it resolves to later is checked.
//
//guarantee:a-box-reaches-what-its-rules-name
func TestRebinding(t *testing.T) {
	w := newWorld(t)
	w.Echo("93.184.216.34:22")
	s := w.enter(restricted("a.example:22"), Limits{})
	w.Name("a.example", "93.184.216.34")
	c := s.reach("a.example", 22)
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	w.Name("a.example", "127.0.0.1")
	s.refusal(s.reach("a.example", 22), RuleNotPublic)
	if reached := w.Dialled(); len(reached) != 1 || reached[0] != "93.184.216.34:22" {
		t.Errorf("%v were connected to", reached)
	}
}

func TestAllowedButNotThere(t *testing.T) {
	w := newWorld(t)
	w.Name("closed.example", "93.184.216.34")
	s := w.enter(restricted("*.example:22"), Limits{})
	s.refusal(s.reach("closed.example", 22), RuleUnreachable)
	s.refusal(s.reach("missing.example", 22), RuleUnreachable)
	list, _ := s.relay.Since(0)
	if len(list) != 2 || !strings.Contains(list[0].Text, "connection refused") || !strings.Contains(list[1].Text, "does not exist") {
		t.Errorf("%+v", list)
	}
}
