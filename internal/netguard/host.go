package netguard

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

const (
	longestName  = 253
	longestLabel = 63
)

// Host is a parsed host: a name or an address.
type Host struct {
	// Name is in lower case, in ASCII, without a final dot. Empty if the host is an address.
	Name string
	// Addr is the address. An IPv4 address that was mapped to IPv6 is an IPv4 address here.
	Addr netip.Addr
}

// String returns the name or the address.
func (h Host) String() string {
	if h.Name != "" {
		return h.Name
	}
	return h.Addr.String()
}

// The reasons why a text is not a host.
var (
	errEmpty  = errors.New("a host name is missing")
	errLong   = errors.New("the host name is longer than 253 characters, or a part of it than 63")
	errChars  = errors.New("the host name has characters that no name has")
	errLabel  = errors.New("a part of the host name is empty or begins or ends with a hyphen")
	errNumber = errors.New("the host ends in a number and is not an IPv4 address")
)

// ParseHost parses a host name or an address as in a URL, a header or a DNS question, without a port and, for IPv6, without brackets.
// Callers must use only the result from then on, never the text, so that checks, logs and connections refer to the same host.
//
// Different spellings of a host give the same result: upper case, a final dot, names in other scripts, and the forms that C libraries
// accept as IPv4 addresses, such as 127.1, 0x7f.0.0.1, 0177.0.0.1 and 2130706433. Ambiguous text (with NUL, spaces, %, @, brackets or
// slashes) is an error.
func ParseHost(s string) (Host, error) {
	if s == "" {
		return Host{}, errEmpty
	}
	if strings.Contains(s, ":") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return Host{}, errChars
		}
		return Host{Addr: a.Unmap()}, nil
	}
	if len(s) > 4*longestName {
		return Host{}, errLong
	}
	name, err := ascii(s)
	if err != nil {
		return Host{}, err
	}
	if len(name) > longestName {
		return Host{}, errLong
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		switch {
		case l == "" || l[0] == '-' || l[len(l)-1] == '-':
			return Host{}, errLabel
		case len(l) > longestLabel:
			return Host{}, errLong
		}
	}
	if last := labels[len(labels)-1]; numeric(last) {
		a, ok := parseIPv4(labels)
		if !ok {
			return Host{}, errNumber
		}
		return Host{Addr: a}, nil
	}
	return Host{Name: name}, nil
}

// ascii returns the name in lower case, in ASCII and without a final dot.
func ascii(s string) (string, error) {
	for i := range len(s) {
		if s[i] >= 0x80 {
			var err error
			if s, err = idna.Lookup.ToASCII(s); err != nil {
				return "", errChars
			}
			break
		}
	}
	s = strings.ToLower(s)
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return "", errChars
		}
	}
	if s = strings.TrimSuffix(s, "."); s == "" {
		return "", errEmpty
	}
	return s, nil
}

// numeric reports whether C libraries take a label for a number.
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// parseIPv4 parses one to four numbers, decimal, octal with 0 or hexadecimal with 0x. The last one fills the remaining bytes.
func parseIPv4(parts []string) (netip.Addr, bool) {
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var all uint64
	for i, part := range parts {
		n, ok := parseNumber(part)
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i)
		}
		if !ok || n >= 1<<bits {
			return netip.Addr{}, false
		}
		all = all<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(all >> 24), byte(all >> 16), byte(all >> 8), byte(all)}), true
}

func parseNumber(s string) (uint64, bool) {
	base := 10
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		if hex == "" {
			return 0, true
		}
		s, base = hex, 16
	} else if len(s) > 1 && s[0] == '0' {
		base = 8
	}
	n, err := strconv.ParseUint(s, base, 32)
	return n, err == nil
}
