package webhook

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestAllowedAddresses(t *testing.T) {
	t.Parallel()
	for address, kind := range map[string]string{
		"93.184.216.34":                      "",
		"1.1.1.1":                            "",
		"172.15.255.255":                     "",
		"172.32.0.0":                         "",
		"100.63.255.255":                     "",
		"100.128.0.0":                        "",
		"198.17.255.255":                     "",
		"198.20.0.0":                         "",
		"223.255.255.255":                    "",
		"2606:2800:220:1:248:1893:25c8:1946": "",
		"2a00:1450:4001:81b::200e":           "",
		"::ffff:93.184.216.34":               "",
		"64:ff9b::93.184.216.34":             "",
		"2002:5db8:d822::1":                  "",
		"0.0.0.0":                            "unspecified",
		"0.1.2.3":                            "unspecified",
		"127.0.0.1":                          "loopback",
		"127.255.255.254":                    "loopback",
		"10.0.0.1":                           "private",
		"172.16.0.1":                         "private",
		"172.31.255.255":                     "private",
		"192.168.1.1":                        "private",
		"100.64.0.1":                         "carrier",
		"100.127.255.255":                    "carrier",
		"100.100.100.200":                    "carrier", // a cloud's metadata
		"169.254.169.254":                    "link-local",
		"169.254.170.2":                      "link-local",
		"168.63.129.16":                      "cloud",
		"192.0.0.192":                        "reserved", // another's metadata
		"192.0.2.1":                          "documentation",
		"198.51.100.1":                       "documentation",
		"203.0.113.1":                        "documentation",
		"192.88.99.1":                        "relay",
		"198.18.0.1":                         "benchmarking",
		"198.19.255.255":                     "benchmarking",
		"224.0.0.1":                          "multicast",
		"239.255.255.255":                    "multicast",
		"240.0.0.1":                          "reserved",
		"255.255.255.255":                    "reserved",
		"::":                                 "unspecified",
		"::1":                                "loopback",
		"::127.0.0.1":                        "reserved",
		"::ffff:127.0.0.1":                   "loopback",
		"::ffff:169.254.169.254":             "link-local",
		"::ffff:0:10.0.0.1":                  "reserved",
		"64:ff9b::10.0.0.1":                  "private",
		"64:ff9b::169.254.169.254":           "link-local",
		"64:ff9b:1::1":                       "translated",
		"2002:a00:1::1":                      "private",    // 10.0.0.1
		"2002:a9fe:a9fe::1":                  "link-local", // 169.254.169.254
		"2002:7f00:1::":                      "loopback",
		"2001:0:53aa:64c:8e6:be56:7b7b:f5ff": "Teredo",
		"2001:2::1":                          "reserved",
		"2001:10::1":                         "reserved",
		"2001:db8::1":                        "documentation",
		"3fff::1":                            "documentation",
		"fc00::1":                            "private",
		"fd00:ec2::254":                      "private",
		"fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "private",
		"fe80::1":      "link-local",
		"fe80::1%eth0": "link-local",
		"fec0::1":      "reserved",
		"ff02::1":      "multicast",
		"100::1":       "reserved",
		"4000::1":      "reserved",
		"5f00::1":      "reserved",
	} {
		a := netip.MustParseAddr(address)
		err := allowed(netip.AddrPortFrom(a, 443), Policy{})
		if kind == "" && err != nil || kind != "" && (!errors.Is(err, schemas.ErrDenied) || !strings.Contains(err.Error(), kind)) {
			t.Errorf("%s: %v, want it %q", address, err, kind)
		}
		// What is for development opens loopback and nothing else.
		err = allowed(netip.AddrPortFrom(a, 443), Policy{AllowLoopback: true, AllowHTTP: true})
		if loopback := a.Unmap().IsLoopback(); (err == nil) != (kind == "" || loopback) {
			t.Errorf("%s with loopback allowed: %v", address, err)
		}
	}
	if err := allowed(netip.AddrPort{}, Policy{AllowLoopback: true}); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("no address at all: %v, want denied", err)
	}
}

func TestAllowedPorts(t *testing.T) {
	t.Parallel()
	own := Policy{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Ports: []uint16{9000}}
	for _, c := range []struct {
		to     string
		policy Policy
		want   bool
	}{
		{"1.1.1.1:443", Policy{}, true},
		{"1.1.1.1:8443", Policy{}, true},
		{"1.1.1.1:80", Policy{}, false},
		{"1.1.1.1:80", Policy{AllowHTTP: true}, true},
		{"1.1.1.1:22", Policy{AllowHTTP: true, AllowLoopback: true}, false},
		{"1.1.1.1:0", Policy{}, false},
		{"1.1.1.1:9000", own, true},
		{"127.0.0.1:31234", Policy{AllowLoopback: true}, true},
		{"[::1]:31234", Policy{AllowLoopback: true}, true},
		{"127.0.0.1:443", Policy{AllowHTTP: true}, false},
		{"10.1.2.3:5000", own, true},
		{"[::ffff:10.1.2.3]:5000", own, true},
		{"10.2.0.1:443", own, false},
	} {
		if err := allowed(netip.MustParseAddrPort(c.to), c.policy); (err == nil) != c.want {
			t.Errorf("%s under %+v: %v, want allowed %t", c.to, c.policy, err, c.want)
		}
	}
}

func FuzzAllowed(f *testing.F) {
	for _, s := range []string{"127.0.0.1:443", "[::ffff:10.0.0.1]:443", "[fe80::1%x]:443", "1.1.1.1:443", "localhost:443", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		to, err := netip.ParseAddrPort(s)
		if err != nil {
			return // refused before it comes here
		}
		if allowed(to, Policy{}) != nil {
			return
		}
		a := to.Addr().Unmap()
		if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.Zone() != "" {
			t.Fatalf("%s may be dialled", s)
		}
	})
}
