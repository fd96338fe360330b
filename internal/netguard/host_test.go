package netguard_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/netguard"
)

func TestSpellingsOfOneHost(t *testing.T) {
	t.Parallel()
	for host, spellings := range map[string][]string{
		"example.com":           {"example.com", "EXAMPLE.com", "example.com.", "Example.Com.", "example。com", "ｅxample.com"},
		"xn--bcher-kva.example": {"bücher.example", "BÜCHER.example", "xn--bcher-kva.example"},
		"a_b.example":           {"a_b.example"},
		"127.0.0.1": {
			"127.0.0.1", "127.1", "127.0.1", "0x7f.1", "0x7f000001", "0177.0.0.1", "0177.1", "2130706433", "017700000001", "127.0.0.1.",
			"0X7F.0.0.0X1",
			"::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:127.0.0.1", "１２７.0.0.1",
		},
		"0.0.0.0":         {"0", "0x0", "0.0", "0x"},
		"169.254.169.254": {"2852039166", "0xa9fea9fe", "169.16689662", "0251.0376.0251.0376"},
		"::1":             {"::1", "0:0:0:0:0:0:0:1", "0000::0001"},
		"fd00:ec2::254":   {"fd00:ec2::254", "FD00:0EC2:0:0:0:0:0:0254"},
	} {
		for _, s := range spellings {
			h, err := netguard.ParseHost(s)
			if err != nil || h.String() != host {
				t.Errorf("%q: %v, %v, want %s", s, h, err, host)
			}
		}
	}
}

func TestHostsThatMeanTwoThings(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", ".", "..", "a..b", ".a", "a..", "a b", "a\tb", "a\x00.example", "a\r\n", "a%00", "a%2e", "[::1]", "[a]", "u@a", "a/b", `a\b`,
		"a:80", "::1%lo", "fe80::1%25x",
		"a#b", "a?b", "a,b", "a;b", "-a.example", "a-.example", "256.0.0.1", "1.2.3.4.5", "1.2.3.256", "08.0.0.1", "0x100000000",
		"4294967296", "a.1", "1.2.3.0xg1.7",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "bc", "a*b", "*.a", "１２７。0。0。999",
	} {
		if h, err := netguard.ParseHost(s); err == nil {
			t.Errorf("%q was taken for %s", s, h)
		}
	}
}

//guarantee:a-box-reaches-what-its-rules-name
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"example.com.", "127.1", "0x7f.1", "::ffff:1.2.3.4", "bücher.example", "a..b", "0377.0.1", "a_b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := netguard.ParseHost(s)
		if err != nil {
			return
		}
		again, err := netguard.ParseHost(h.String())
		if err != nil || again != h {
			t.Fatalf("%q is %s, and that is %v, %v", s, h, again, err)
		}
		if (h.Name == "") == !h.Addr.IsValid() {
			t.Fatalf("%q: %+v is a name and an address, or neither", s, h)
		}
		if strings.Trim(h.Name, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" || h.Addr.Zone() != "" || h.Addr.Is4In6() {
			t.Fatalf("%q: %+v is not canonical", s, h)
		}
		if a, err := netip.ParseAddr(s); err == nil && a.Unmap() != h.Addr {
			t.Fatalf("%q: %s, want %s", s, h, a)
		}
	})
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fd00:ec2::254",
		"100.100.100.200", "168.63.129.16"} {
		if !netguard.Metadata(netip.MustParseAddr(s)) {
			t.Errorf("%s is not known for a cloud's metadata", s)
		}
	}
	for _, s := range []string{"169.254.169.253", "1.1.1.1", "fd00:ec2::253"} {
		if netguard.Metadata(netip.MustParseAddr(s)) {
			t.Errorf("%s is taken for a cloud's metadata", s)
		}
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	for s, kind := range map[string]string{
		"10.1.0.0/16": "private", "10.0.0.0/8": "private", "127.0.0.1/32": "loopback", "fd00::/8": "private", "4000::/8": "reserved",
		"10.0.0.0/7": "", "0.0.0.0/0": "", "1.0.0.0/8": "", "::/0": "", "2000::/3": "", "64:ff9b::/96": "",
	} {
		if got := netguard.Within(netip.MustParsePrefix(s)); kind == "" && got != "" || !strings.Contains(got, kind) {
			t.Errorf("%s is within %q, want %q", s, got, kind)
		}
	}
}
