package records

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// capability returns the profile of a provider. Code: invalid, with the providers that exist.
func capability(providers schemas.Catalog, field, name string) (schemas.Profile, error) {
	p, ok := providers.Find(name)
	if !ok {
		return p, schemas.Invalidf(field, "%q is not a provider of this build: use %s", schemas.Quotable(name), list(providers.Names()))
	}
	return p, nil
}

// CheckSandbox returns all errors of a sandbox's config, and everything that its provider cannot do, see [schemas.Problems]. It is pure.
// Errors are invalid, and name the field, the value and what is allowed.
func CheckSandbox(providers schemas.Catalog, c schemas.SandboxConfig) error {
	var p schemas.Problems
	able, err := capability(providers, "config.provider", c.Provider)
	if err != nil { // what another one can do is not known
		p.Add("", err)
		for _, check := range []func(schemas.SandboxConfig) error{checkModes, checkEnv} {
			p.Add("", check(c))
		}
		return p.Err()
	}
	for _, err := range []error{
		checkNetwork(c, able), checkModes(c), checkSizes(c, able), checkEnv(c), checkKept(c, able), checkJobs(c, able), checkOptions(c, able),
	} {
		p.Add("", err)
	}
	return p.Err()
}

func checkNetwork(c schemas.SandboxConfig, able schemas.Profile) error {
	var p schemas.Problems
	n := c.Network
	every := []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}
	switch {
	case !slices.Contains(every, n.Mode):
		return unknown("config.network.mode", n.Mode, every)
	case !slices.Contains(able.Networks, n.Mode):
		return schemas.Invalidf("config.network.mode", "%s: %s", n.Mode, cannot(able, "take this mode: use "+list(able.Networks)))
	}
	for _, l := range []struct {
		field string
		rules []string
		check func(string) error
	}{
		{"allowDomains", n.AllowDomains, checkDomain},
		{"allowCidrs", n.AllowCIDRs, checkCIDR},
		{"denyCidrs", n.DenyCIDRs, checkCIDR},
	} {
		field := "config.network." + l.field
		switch {
		case len(l.rules) > 0 && n.Mode != schemas.Restricted:
			p.Add(field, schemas.Invalidf("", "is for the mode restricted: the mode is %s", n.Mode))
			continue
		case len(l.rules) > schemas.MaxNetworkRules:
			p.Add(field, schemas.Invalidf("", "has %d entries: at most %d", len(l.rules), schemas.MaxNetworkRules))
			continue
		}
		for i, rule := range l.rules {
			if err := l.check(rule); err != nil {
				p.Add(fmt.Sprintf("%s[%d]", field, i), schemas.Invalidf("", "%q %v", schemas.Quotable(rule), err))
			}
		}
	}
	p.Add("", checkCredentials(c, able))
	return p.Err()
}

// checkCredentials checks the bindings of variables to hosts. It never shows a value.
func checkCredentials(c schemas.SandboxConfig, able schemas.Profile) error {
	const field = "config.network.credentials"
	var p schemas.Problems
	bound := c.Network.Credentials
	switch {
	case len(bound) == 0:
		return nil
	case c.Network.Mode != schemas.Restricted:
		return schemas.Invalidf(field, "is for the mode restricted: the mode is %s", c.Network.Mode)
	case !able.Credentials:
		return schemas.Invalidf(field, "%s", cannot(able, "keep the value of a variable from its sandboxes: leave it out"))
	case len(bound) > schemas.MaxCredentials:
		return schemas.Invalidf(field, "has %d entries: at most %d", len(bound), schemas.MaxCredentials)
	}
	for _, name := range slices.Sorted(maps.Keys(bound)) {
		at := field + "." + schemas.Quotable(name)
		value, ok := c.EnvVars[name]
		_, named := schemas.VariableRef(value)
		if err := schemas.CheckCredential(value); !ok {
			p.Add(field, schemas.Invalidf("", "%q is not a variable of config.envVars", schemas.Quotable(name)))
		} else if err != nil && !named && value != schemas.MaskedSecret {
			p.Add("config.envVars."+schemas.Quotable(name), schemas.Invalidf("", "%v", err))
		}
		switch n := len(bound[name]); {
		case n == 0:
			p.Add(at, schemas.Invalidf("", "names no host"))
		case n > schemas.MaxCredentialHosts:
			p.Add(at, schemas.Invalidf("", "has %d hosts: at most %d", n, schemas.MaxCredentialHosts))
			continue
		}
		for i, host := range bound[name] {
			switch err := checkDomain(host); {
			case err != nil || strings.ContainsAny(host, "*:") || !strings.Contains(host, "."):
				p.Add(fmt.Sprintf("%s[%d]", at, i),
					schemas.Invalidf("", "%q is not a host: write a whole name, as api.example.com", schemas.Quotable(host)))
			case !slices.ContainsFunc(c.Network.AllowDomains, func(rule string) bool { return opens(rule, host) }):
				p.Add(fmt.Sprintf("%s[%d]", at, i), schemas.Invalidf("", "%q is not in allowDomains, with port 443", schemas.Quotable(host)))
			}
		}
	}
	return p.Err()
}

// opens reports whether an entry of allowDomains allows HTTPS to a host.
func opens(rule, host string) bool {
	if name, port, ok := strings.Cut(rule, ":"); ok {
		if port != "443" {
			return false
		}
		rule = name
	}
	if above, ok := strings.CutPrefix(rule, "*"); ok {
		return strings.HasSuffix(host, above)
	}
	return rule == host
}

func checkCIDR(s string) error {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("is not a network: write it as 10.0.0.0/8 or 2001:db8::/32")
	}
	if p.Masked() != p {
		return fmt.Errorf("has bits beyond its length: use %s", p.Masked())
	}
	return nil
}

// checkDomain accepts a name or its sub-domains, each with or without a port.
func checkDomain(s string) error {
	if host, port, ok := strings.Cut(s, ":"); ok {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return fmt.Errorf("has no port behind its colon: write it as example.com:22")
		}
		s = host
	}
	const longest, longestLabel = 253, 63
	bad := func(label string) bool {
		return label == "" || len(label) > longestLabel || strings.Trim(label, "-") != label || strings.ContainsFunc(label, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
		})
	}
	if len(s) > longest || slices.ContainsFunc(strings.Split(strings.TrimPrefix(s, "*."), "."), bad) {
		return fmt.Errorf("is not a domain: write it in lower case as example.com, *.example.com or example.com:22")
	}
	return nil
}

// Runtimes are the programs that a sandbox may list as its own. Images of workers have all of them.
func Runtimes() []string { return []string{"bash", "python", "node"} }

func checkModes(c schemas.SandboxConfig) error {
	var p schemas.Problems
	modes := []schemas.PermissionMode{schemas.PermissionAsk, schemas.PermissionEdit, schemas.PermissionBypass}
	if !slices.Contains(modes, c.PermissionMode) {
		p.Add("", unknown("config.permissionMode", c.PermissionMode, modes))
	}
	if guards := schemas.GuardPolicies(); !slices.Contains(guards, c.Guard) {
		p.Add("", unknown("config.guard", c.Guard, guards))
	}
	for i, r := range c.Runtimes {
		field := fmt.Sprintf("config.runtimes[%d]", i)
		if known := Runtimes(); !slices.Contains(known, r) {
			p.Add("", unknown(field, r, known))
		} else if slices.Contains(c.Runtimes[:i], r) {
			p.Add(field, schemas.Invalidf("", "%s is given twice", r))
		}
	}
	if _, err := schemas.ParseArtifactPatterns("config.artifacts", c.Artifacts); err != nil {
		p.Add("", err)
	}
	return p.Err()
}

func checkSizes(c schemas.SandboxConfig, able schemas.Profile) error {
	var p schemas.Problems
	for _, r := range []struct {
		field       string
		value, most int64
		unit        string
	}{
		{"timeout", c.Timeout, seconds(able.LongestRun()), "seconds"},
		{"memoryLimit", c.MemoryLimit, able.MaxMemory / mebi, "MiB"},
		{"outputLimitBytes", int64(c.OutputLimit), schemas.MaxOutputLimit, "bytes"},
	} {
		if r.value < 0 || r.value > r.most {
			p.Add("config."+r.field,
				schemas.Invalidf("", "%d is out of range: 1 to %d %s for the provider %s", r.value, r.most, r.unit, able.Name))
		}
	}
	return p.Err()
}

// checkEnv never shows a value.
func checkEnv(c schemas.SandboxConfig) error {
	var p schemas.Problems
	if len(c.EnvVars) > schemas.MaxEnvVars {
		return schemas.Invalidf("config.envVars", "has %d variables: at most %d", len(c.EnvVars), schemas.MaxEnvVars)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(c.EnvVars)) {
		bad := func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_'
		}
		if name == "" || len(name) > schemas.MaxName || strings.ContainsFunc(name, bad) || name[0] >= '0' && name[0] <= '9' {
			p.Add("config.envVars",
				schemas.Invalidf("", "%q is not the name of a variable: use A-Z a-z 0-9 _, no digit first", schemas.Quotable(name)))
			continue
		}
		field := "config.envVars." + name
		switch v := c.EnvVars[name]; {
		case strings.IndexByte(v, 0) >= 0:
			p.Add(field, schemas.Invalidf("", "has a NUL byte"))
		case v == schemas.MaskedSecret:
			p.Add(field, schemas.Invalidf("", "is %s, and there is no such value to keep: send the value itself", schemas.MaskedSecret))
		case isBadRef(v):
			p.Add(field, schemas.Invalidf("", "begins with %s and names no variable after it: use A-Z a-z 0-9 _, no digit first; "+
				"a value that really begins so can be kept in a variable", schemas.VariablePrefix))
		default:
			total += len(name) + len(v)
		}
	}
	if total > schemas.MaxEnvBytes {
		p.Add("config.envVars",
			schemas.Invalidf("", "is %d bytes long with all names and values: at most %d", total, schemas.MaxEnvBytes))
	}
	return p.Err()
}

// isBadRef reports whether a value looks like a reference to a variable with an invalid name.
func isBadRef(value string) bool {
	_, ok := schemas.VariableRef(value)
	return strings.HasPrefix(value, schemas.VariablePrefix) && !ok
}

// checkKept checks settings that apply to persistent sandboxes only.
func checkKept(c schemas.SandboxConfig, able schemas.Profile) error {
	var p schemas.Problems
	if c.Persistent && !able.Persistent {
		p.Add("config.persistent", schemas.Invalidf("", "true: %s", cannot(able, "keep a box between calls: leave it out")))
	}
	for _, f := range []struct {
		field string
		given bool
		able  bool
		what  string
	}{
		{"lifecycle.idleTimeoutSeconds", c.Lifecycle.IdleTimeout != 0, able.Persistent, "end idle boxes"},
		{"lifecycle.maxLifetimeSeconds", c.Lifecycle.MaxLifetime != 0, able.Persistent, "end old boxes"},
		{"onCreate", len(c.OnCreate) > 0, able.Persistent, "run hooks"},
		{"onResume", len(c.OnResume) > 0, able.Persistent, "run hooks"},
	} {
		switch field := "config." + f.field; {
		case !f.given:
		case !f.able:
			p.Add(field, schemas.Invalidf("", "is given: %s", cannot(able, f.what+": leave it out")))
		case !c.Persistent:
			p.Add(field, schemas.Invalidf("", "is for persistent sandboxes: set config.persistent to true"))
		}
	}
	for _, r := range []struct {
		field string
		value int64
		most  time.Duration
	}{
		{"idleTimeoutSeconds", c.Lifecycle.IdleTimeout, schemas.MaxIdleTimeout},
		{"maxLifetimeSeconds", c.Lifecycle.MaxLifetime, schemas.MaxLifetime},
	} {
		if r.value < 0 || r.value > seconds(r.most) {
			p.Add("config.lifecycle."+r.field, schemas.Invalidf("", "%d is out of range: 1 to %d", r.value, seconds(r.most)))
		}
	}
	p.Add("", checkHooks("config.onCreate", c.OnCreate))
	p.Add("", checkHooks("config.onResume", c.OnResume))
	return p.Err()
}

func checkHooks(field string, scripts []string) error {
	if len(scripts) > schemas.MaxHooks {
		return schemas.Invalidf(field, "has %d scripts: at most %d", len(scripts), schemas.MaxHooks)
	}
	var p schemas.Problems
	for i, s := range scripts {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case strings.TrimSpace(s) == "":
			p.Add(at, schemas.Invalidf("", "is empty"))
		case len(s) > schemas.MaxHook:
			p.Add(at, schemas.Invalidf("", "is %d bytes long: the limit is %d", len(s), schemas.MaxHook))
		case strings.IndexByte(s, 0) >= 0:
			p.Add(at, schemas.Invalidf("", "has a NUL byte"))
		}
	}
	return p.Err()
}

func checkJobs(c schemas.SandboxConfig, able schemas.Profile) error {
	var p schemas.Problems
	for _, r := range []struct {
		field       string
		value, most int64
	}{
		{"jobLimit", int64(c.JobLimit), schemas.MaxJobs},
		{"jobLifetimeSeconds", c.JobLifetime, seconds(schemas.MaxJobLifetime)},
	} {
		switch field := "config." + r.field; {
		case r.value == 0:
		case !able.Jobs:
			p.Add(field, schemas.Invalidf("", "%d: %s", r.value, cannot(able, "run background jobs: leave it out")))
		case r.value < 0 || r.value > r.most:
			p.Add(field, schemas.Invalidf("", "%d is out of range: 1 to %d", r.value, r.most))
		}
	}
	return p.Err()
}

// checkOptions accepts only known options: none of them is a secret.
func checkOptions(c schemas.SandboxConfig, able schemas.Profile) error {
	var p schemas.Problems
	var names []string
	for _, o := range able.Options {
		names = append(names, o.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Options)) {
		field := "config.options." + schemas.Quotable(name)
		i := slices.Index(names, name)
		if i < 0 {
			what := "none"
			if len(names) > 0 {
				what = list(names)
			}
			p.Add(field, schemas.Invalidf("", "is not an option of the provider %s, or the operator's alone: there is %s", able.Name, what))
			continue
		}
		o := able.Options[i]
		if o.Kept && !c.Persistent {
			p.Add(field, schemas.Invalidf("", "is for persistent sandboxes: set config.persistent to true"))
			continue
		}
		switch v := c.Options[name].(type) {
		case bool:
			if o.Most == 0 {
				continue
			}
		case float64:
			if o.Most > 0 && v >= 1 && v <= o.Most && v == float64(int64(v)) {
				continue
			}
		}
		want := "true or false"
		if o.Most > 0 {
			want = fmt.Sprintf("a whole number from 1 to %g", o.Most)
		}
		p.Add(field, schemas.Invalidf("", "%q is out of range: use %s", schemas.Quotable(fmt.Sprint(c.Options[name])), want))
	}
	return p.Err()
}

// CheckStorage reports whether a workspace's files can be reached in a sandbox. It is pure. Code: invalid.
func CheckStorage(providers schemas.Catalog, w schemas.Workspace, s schemas.Sandbox) error {
	if w.Storage == "" {
		return nil
	}
	able, err := capability(providers, "sandbox", s.Provider)
	if err != nil {
		return err
	}
	if err := able.Reaches(w, s); err != nil {
		p := schemas.Public(err)
		return schemas.Invalidf(p.Field, "%s", p.Message)
	}
	return nil
}

// cannot describes what a provider does not support.
func cannot(able schemas.Profile, what string) string {
	return "the provider " + able.Name + " does not " + what
}

func unknown[T ~string](field string, value T, allowed []T) error {
	return schemas.Invalidf(field, "%q is unknown: use %s", schemas.Quotable(string(value)), list(allowed))
}

// list writes "a, b or c".
func list[T ~string](values []T) string {
	var b strings.Builder
	for i, v := range values {
		switch {
		case i == 0:
		case i == len(values)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return b.String()
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
