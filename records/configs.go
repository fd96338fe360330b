package records

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// capability finds the profile of a provider. Code: invalid, with those that there are.
func capability(providers schemas.Catalog, field, name string) (schemas.Profile, error) {
	p, ok := providers.Find(name)
	if !ok {
		return p, schemas.Invalidf(field, "%q is no provider of this build: use %s", schemas.Quotable(name), list(providers.Names()))
	}
	return p, nil
}

// CheckSandbox reports the first thing in a sandbox's config that is wrong, or that its provider cannot
// keep. It is pure. Errors are invalid, and name the field, the value and what is allowed.
func CheckSandbox(providers schemas.Catalog, c schemas.SandboxConfig) error {
	able, err := capability(providers, "config.provider", c.Provider)
	if err != nil {
		return err
	}
	for _, check := range []func(schemas.SandboxConfig, schemas.Profile) error{
		checkNetwork, checkModes, checkSizes, checkEnv, checkKept, checkJobs, checkOptions,
	} {
		if err := check(c, able); err != nil {
			return err
		}
	}
	return nil
}

func checkNetwork(c schemas.SandboxConfig, able schemas.Profile) error {
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
		if len(l.rules) > 0 && n.Mode != schemas.Restricted {
			return schemas.Invalidf(field, "is for the mode restricted: the mode is %s", n.Mode)
		}
		if len(l.rules) > schemas.MaxNetworkRules {
			return schemas.Invalidf(field, "has %d entries: at most %d", len(l.rules), schemas.MaxNetworkRules)
		}
		for i, rule := range l.rules {
			if err := l.check(rule); err != nil {
				return schemas.Invalidf(fmt.Sprintf("%s[%d]", field, i), "%q %v", schemas.Quotable(rule), err)
			}
		}
	}
	return nil
}

func checkCIDR(s string) error {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("is no network: write it as 10.0.0.0/8 or 2001:db8::/32")
	}
	if p.Masked() != p {
		return fmt.Errorf("has bits beyond its length: use %s", p.Masked())
	}
	return nil
}

func checkDomain(s string) error {
	const longest, longestLabel = 253, 63
	bad := func(label string) bool {
		return label == "" || len(label) > longestLabel || strings.Trim(label, "-") != label || strings.ContainsFunc(label, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
		})
	}
	if len(s) > longest || slices.ContainsFunc(strings.Split(strings.TrimPrefix(s, "*."), "."), bad) {
		return fmt.Errorf("is no domain: write it in lower case as example.com or *.example.com")
	}
	return nil
}

func checkModes(c schemas.SandboxConfig, _ schemas.Profile) error {
	modes := []schemas.PermissionMode{schemas.PermissionAsk, schemas.PermissionEdit, schemas.PermissionBypass}
	if !slices.Contains(modes, c.PermissionMode) {
		return unknown("config.permissionMode", c.PermissionMode, modes)
	}
	if guards := schemas.GuardPolicies(); !slices.Contains(guards, c.Guard) {
		return unknown("config.guard", c.Guard, guards)
	}
	for i, r := range c.Runtimes {
		field := fmt.Sprintf("config.runtimes[%d]", i)
		if known := []string{"bash", "python", "node"}; !slices.Contains(known, r) {
			return unknown(field, r, known)
		}
		if slices.Contains(c.Runtimes[:i], r) {
			return schemas.Invalidf(field, "%s is given twice", r)
		}
	}
	return nil
}

func checkSizes(c schemas.SandboxConfig, able schemas.Profile) error {
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
			return schemas.Invalidf("config."+r.field, "%d is out of range: 1 to %d %s for the provider %s", r.value, r.most, r.unit, able.Name)
		}
	}
	return nil
}

// checkEnv never shows a value.
func checkEnv(c schemas.SandboxConfig, _ schemas.Profile) error {
	if len(c.EnvVars) > schemas.MaxEnvVars {
		return schemas.Invalidf("config.envVars", "has %d variables: at most %d", len(c.EnvVars), schemas.MaxEnvVars)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(c.EnvVars)) {
		bad := func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_'
		}
		if name == "" || len(name) > schemas.MaxName || strings.ContainsFunc(name, bad) || name[0] >= '0' && name[0] <= '9' {
			return schemas.Invalidf("config.envVars", "%q is no name of a variable: use A-Z a-z 0-9 _, no digit first", schemas.Quotable(name))
		}
		field := "config.envVars." + name
		switch v := c.EnvVars[name]; {
		case strings.IndexByte(v, 0) >= 0:
			return schemas.Invalidf(field, "has a NUL byte")
		case v == schemas.MaskedSecret:
			return schemas.Invalidf(field, "is %s, and there is no such value to keep: send the value itself", schemas.MaskedSecret)
		case isBadRef(v):
			return schemas.Invalidf(field, "begins with %s and names no variable after it: use A-Z a-z 0-9 _, no digit first; "+
				"a value that really begins so can be kept in a variable", schemas.VariablePrefix)
		default:
			total += len(name) + len(v)
		}
	}
	if total > schemas.MaxEnvBytes {
		return schemas.Invalidf("config.envVars", "is %d bytes long with all names and values: at most %d", total, schemas.MaxEnvBytes)
	}
	return nil
}

// isBadRef reports whether a value would name a variable of the account if that were a name.
func isBadRef(value string) bool {
	_, ok := schemas.VariableRef(value)
	return strings.HasPrefix(value, schemas.VariablePrefix) && !ok
}

// checkKept looks at what is only for boxes that are kept.
func checkKept(c schemas.SandboxConfig, able schemas.Profile) error {
	if c.Persistent && !able.Persistent {
		return schemas.Invalidf("config.persistent", "true: %s", cannot(able, "keep a box between calls: leave it out"))
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
			return schemas.Invalidf(field, "is given: %s", cannot(able, f.what+": leave it out"))
		case !c.Persistent:
			return schemas.Invalidf(field, "is for a box that is kept: set config.persistent to true")
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
			return schemas.Invalidf("config.lifecycle."+r.field, "%d is out of range: 1 to %d", r.value, seconds(r.most))
		}
	}
	return firstOf(checkHooks("config.onCreate", c.OnCreate), checkHooks("config.onResume", c.OnResume))
}

func checkHooks(field string, scripts []string) error {
	if len(scripts) > schemas.MaxHooks {
		return schemas.Invalidf(field, "has %d scripts: at most %d", len(scripts), schemas.MaxHooks)
	}
	for i, s := range scripts {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case strings.TrimSpace(s) == "":
			return schemas.Invalidf(at, "is empty")
		case len(s) > schemas.MaxHook:
			return schemas.Invalidf(at, "is %d bytes long: the limit is %d", len(s), schemas.MaxHook)
		case strings.IndexByte(s, 0) >= 0:
			return schemas.Invalidf(at, "has a NUL byte")
		}
	}
	return nil
}

func checkJobs(c schemas.SandboxConfig, able schemas.Profile) error {
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
			return schemas.Invalidf(field, "%d: %s", r.value, cannot(able, "run background jobs: leave it out"))
		case r.value < 0 || r.value > r.most:
			return schemas.Invalidf(field, "%d is out of range: 1 to %d", r.value, r.most)
		}
	}
	return nil
}

// checkOptions lets only options pass that are known: none of them is a secret.
func checkOptions(c schemas.SandboxConfig, able schemas.Profile) error {
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
			return schemas.Invalidf(field, "is no option of the provider %s, or the operator's alone: there is %s", able.Name, what)
		}
		o := able.Options[i]
		if o.Kept && !c.Persistent {
			return schemas.Invalidf(field, "is for a box that is kept: set config.persistent to true")
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
		return schemas.Invalidf(field, "%q is out of range: use %s", schemas.Quotable(fmt.Sprint(c.Options[name])), want)
	}
	return nil
}

// CheckStorage reports whether a workspace's files can be reached in a sandbox. It is pure.
func CheckStorage(providers schemas.Catalog, w schemas.Workspace, s schemas.Sandbox) error {
	if w.Storage == "" {
		return nil
	}
	able, err := capability(providers, "sandbox", s.Provider)
	if err != nil {
		return err
	}
	mounts, _ := s.Options[schemas.OptionMount].(bool)
	switch {
	case able.Storage == schemas.StorageNo || able.Storage == "":
		return schemas.Invalidf("config.storage.provider", "%s: %s", w.Storage, cannot(able, "reach it: sandbox "+schemas.Quotable(s.Name)+" is of that provider"))
	case able.Storage == schemas.StorageOption && !mounts:
		return schemas.Invalidf("config.storage.provider", "%s: sandbox %q needs config.options.%s", w.Storage, schemas.Quotable(s.Name), schemas.OptionMount)
	}
	return nil
}

// cannot says what a provider does not do.
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

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
