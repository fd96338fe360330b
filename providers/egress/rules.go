package egress

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

// The rules by which something is refused, as a [Refusal] names them.
const (
	RuleNotAllowed  = "not-allowed" // no rule allows it
	RulePort        = "port"        // the name is allowed, on other ports
	RuleNotPublic   = "not-public"  // the address is private, of this host, or reserved
	RuleMetadata    = "metadata"    // a cloud's credentials
	RuleDenied      = "deny-cidr"   // a network that is denied
	RuleTLS         = "tls"         // no TLS on port 443
	RuleServerName  = "server-name" // TLS for another name
	RuleHost        = "host"        // HTTP for another name
	RuleMalformed   = "malformed"   // cannot be understood for certain
	RuleLimit       = "limit"       // too much at a time
	RuleUnreachable = "unreachable" // allowed, but no server answers there
)

// domain is a rule for host names.
type domain struct {
	name string // without its "*."
	sub  bool   // strict sub-domains of name, not name itself
	port uint16 // 0: 80 and 443
}

// matches reports whether the rule applies to a name. It compares whole labels: evilexample.com is no sub-domain of example.com.
func (d domain) matches(name string) bool {
	if !d.sub {
		return name == d.name
	}
	return strings.HasSuffix(name, "."+d.name)
}

func (d domain) opens(port uint16) bool {
	if d.port != 0 {
		return port == d.port
	}
	return port == 80 || port == 443
}

// Rules is the compiled network of a sandbox. It is immutable and safe for concurrent use.
type Rules struct {
	mode    schemas.NetworkMode
	domains []domain
	allow   []netip.Prefix
	deny    []netip.Prefix
	private []netip.Prefix
	own     func() []netip.Addr
	listed  string // what is allowed, for people
	// credentials are the hosts that variables are bound to.
	credentials map[string][]string
}

// Compile compiles a network to rules. Private are the operator's networks that sandboxes may reach though they are not public, if their
// allow list names them too: the author of a record alone cannot open them.
//
// Codes: invalid (the error names the field), unsupported (the network lists addresses that are neither public nor in private).
func Compile(n schemas.Network, private []netip.Prefix) (*Rules, error) {
	r := &Rules{mode: cmp.Or(n.Mode, schemas.DenyAll), private: private, own: hostAddresses}
	if !slices.Contains([]schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}, r.mode) {
		return nil, schemas.OpErrorf(schemas.Unsupported, "network", "the network mode %q is unknown", schemas.Quotable(string(r.mode)))
	}
	if r.mode != schemas.Restricted {
		if len(n.AllowDomains)+len(n.AllowCIDRs)+len(n.DenyCIDRs)+len(n.Credentials) > 0 {
			return nil, schemas.Invalidf("network", "lists are for the mode %s: the mode is %s", schemas.Restricted, r.mode)
		}
		return r, nil
	}
	for i, text := range n.AllowDomains {
		d, err := parseDomain(text)
		if err != nil {
			return nil, schemas.Invalidf(fmt.Sprintf("network.allow_domains[%d]", i), "%q: %v", schemas.Quotable(text), err)
		}
		r.domains = append(r.domains, d)
	}
	for _, l := range []struct {
		field string
		texts []string
		to    *[]netip.Prefix
	}{{"allow_cidrs", n.AllowCIDRs, &r.allow}, {"deny_cidrs", n.DenyCIDRs, &r.deny}} {
		for i, text := range l.texts {
			p, err := netip.ParsePrefix(text)
			if err != nil || p.Masked() != p {
				return nil, schemas.Invalidf(fmt.Sprintf("network.%s[%d]", l.field, i), "%q is not a network such as 10.0.0.0/8",
					schemas.Quotable(text))
			}
			*l.to = append(*l.to, p)
		}
	}
	for i, p := range r.allow {
		kind := netguard.Closed(p, private)
		if kind == "" {
			continue
		}
		return nil, schemas.OpErrorf(schemas.Unsupported, "network",
			"allow_cidrs[%d]: %s is not public but %s network, and the operator of this worker does not open it "+
				"(--private-networks)", i, p, kind)
	}
	r.listed = listed(n)
	return r, r.bind(n.Credentials)
}

// bind reads which variables are bound to which hosts. Code: invalid.
func (r *Rules) bind(credentials map[string][]string) error {
	for _, name := range slices.Sorted(maps.Keys(credentials)) {
		field := "network.credentials." + name
		if len(credentials[name]) == 0 {
			return schemas.Invalidf(field, "names no host")
		}
		for _, text := range credentials[name] {
			h, err := netguard.ParseHost(text)
			if err != nil || h.Name == "" {
				return schemas.Invalidf(field, "%q is not a host: use a whole name such as api.example.com", schemas.Quotable(text))
			}
			if !r.Name(h.Name, portHTTPS).Allowed {
				return schemas.Invalidf(field, "%s is not in allow_domains, on port 443", h.Name)
			}
			if r.credentials == nil {
				r.credentials = map[string][]string{}
			}
			r.credentials[name] = append(r.credentials[name], h.Name)
		}
	}
	return nil
}

// listed describes briefly what is allowed.
func listed(n schemas.Network) string {
	const most = 8
	all := slices.Concat(n.AllowDomains, n.AllowCIDRs)
	switch {
	case len(all) == 0:
		return "nothing"
	case len(all) > most:
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	default:
		return strings.Join(all, ", ")
	}
}

// parseDomain parses example.com or *.example.com, each optionally with a port.
func parseDomain(s string) (domain, error) {
	var d domain
	if host, port, ok := strings.Cut(s, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' {
			return d, fmt.Errorf("%q is not a port: use 1 to 65535", schemas.Quotable(port))
		}
		s, d.port = host, uint16(n)
	}
	s, d.sub = strings.CutPrefix(s, "*.")
	h, err := netguard.ParseHost(s)
	if err != nil {
		return d, err
	}
	if h.Name == "" {
		return d, fmt.Errorf("an address is not a domain: list it as a network, such as %s/%d", h.Addr, h.Addr.BitLen())
	}
	d.name = h.Name
	return d, nil
}

// Verdict is the decision of rules about a connection or name.
type Verdict struct {
	Allowed bool
	// Rule is why not, one of the Rule constants.
	Rule string
	// Text is why not, for the caller of the command, with what would be allowed.
	Text string
}

func (r *Rules) refuse(rule, format string, args ...any) Verdict {
	text := fmt.Sprintf(format, args...)
	if r.mode == schemas.Restricted && rule == RuleNotAllowed {
		text += "; allowed: " + r.listed
	}
	return Verdict{Rule: rule, Text: text}
}

var allowed = Verdict{Allowed: true} //nolint:gochecknoglobals // a constant

// Knows decides whether a name is allowed on any port, i.e. exists for the sandbox at all.
func (r *Rules) Knows(name string) Verdict {
	switch {
	case r.mode == schemas.AllowAll:
		return allowed
	case slices.ContainsFunc(r.domains, func(d domain) bool { return d.matches(name) }):
		return allowed
	default:
		return r.refuse(RuleNotAllowed, "host %s is not allowed by this sandbox's rules", name)
	}
}

// Name decides on a connection to a name. [Rules.Resolved] decides on its addresses.
func (r *Rules) Name(name string, port uint16) Verdict {
	if v := r.Knows(name); !v.Allowed || r.mode == schemas.AllowAll {
		return v
	}
	if slices.ContainsFunc(r.domains, func(d domain) bool { return d.matches(name) && d.opens(port) }) {
		return allowed
	}
	return r.refuse(RulePort, "host %s is not allowed on port %d: its rule opens %s", name, port, r.ports(name))
}

// ports describes the ports that are open for a name.
func (r *Rules) ports(name string) string {
	var ports []string
	for _, d := range r.domains {
		switch {
		case !d.matches(name):
		case d.port == 0:
			ports = append(ports, "80 and 443")
		default:
			ports = append(ports, strconv.Itoa(int(d.port)))
		}
	}
	slices.Sort(ports)
	return strings.Join(slices.Compact(ports), ", ")
}

// Addr decides on a connection to an address that was requested without a name.
func (r *Rules) Addr(a netip.Addr, port uint16) Verdict {
	a = netguard.Carried(a)
	if r.mode != schemas.AllowAll && !contains(r.allow, a) {
		return r.refuse(RuleNotAllowed, "address %s is not allowed by this sandbox's rules", netip.AddrPortFrom(a, port))
	}
	return r.Resolved(a)
}

// Resolved decides on an address that an allowed name resolves to, or that the rules allow as an address.
func (r *Rules) Resolved(a netip.Addr) Verdict {
	if a.Zone() != "" || !a.IsValid() {
		return r.refuse(RuleNotPublic, "an address with a zone is not allowed")
	}
	plain := a.Unmap()
	a = netguard.Carried(a)
	switch kind := netguard.Kind(a); {
	case netguard.Metadata(a):
		return r.refuse(RuleMetadata, "address %s is a cloud's metadata service, which no sandbox reaches", a)
	case contains(r.deny, a) || contains(r.deny, plain):
		return r.refuse(RuleDenied, "address %s is in a network that this sandbox's rules deny", a)
	case kind == "" && !slices.Contains(r.own(), a):
		return allowed
	case contains(r.allow, a) && contains(r.private, a):
		return allowed
	case kind == "":
		return r.refuse(RuleNotPublic, "address %s is one of the host of this sandbox", a)
	default:
		return r.refuse(RuleNotPublic, "address %s is %s address, which this sandbox's rules and its operator do not open", a, kind)
	}
}

// checksNames reports whether the data on a connection must be for the name that the connection was opened for.
func (r *Rules) checksNames() bool { return r.mode == schemas.Restricted }

// Ports returns the TCP ports that a sandbox may want to reach, for providers that must listen on each. It is never empty.
func (r *Rules) Ports() []uint16 {
	ports := []uint16{80, 443}
	for _, d := range r.domains {
		if d.port != 0 {
			ports = append(ports, d.port)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
