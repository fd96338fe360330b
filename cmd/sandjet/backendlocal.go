package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// localFlags are the flags of the provider local, whose sandboxes are Linux namespaces on the worker's host.
type localFlags struct {
	roomFlags
	boxFlags

	AllowUnisolated bool          `group:"Security" help:"Run commands without a full sandbox where this host cannot make one: confined by Landlock and seccomp if possible, else with all rights of this user."`
	Pool            int           `placeholder:"N" default:"2" group:"Worker" help:"Sandbox instances that are created in advance, so that a call need not wait for one; 0 creates none."`
	Box             string        `placeholder:"FILE" group:"Worker" help:"Program sandjet-box, which starts sandbox instances. Default: the one beside this program, else this program."`
	MaxCPUs         float64       `name:"max-cpus" placeholder:"N" default:"0" group:"Limits" help:"Processors that one sandbox may use at a time, such as 1.5, where this host has cgroups that limit them; 0 means half of the host's, at least one."`
	MaxBoxes        int           `placeholder:"N" default:"32" group:"Limits" help:"Persistent sandbox instances on this worker; above that an idle one is ended to make room."`
	AccountBoxes    int           `placeholder:"N" default:"16" group:"Limits" help:"Persistent sandbox instances of one account on this worker; above that an idle one is ended to make room."`
	LeftoverCPU     time.Duration `name:"leftover-cpu" placeholder:"DURATION" default:"1m" group:"Limits" help:"Processor time that processes left behind in a persistent sandbox instance may use while no call and no job runs in it, beyond a twentieth of a processor; then the instance is ended."`
}

var _ diagnosing = (*localFlags)(nil)

// check returns an error for the first flag that is out of range.
func (f *localFlags) check() error {
	switch {
	case f.MaxBoxes < 1:
		return schemas.Invalidf("max-boxes", "%d is out of range: at least 1", f.MaxBoxes)
	case f.AccountBoxes < 1:
		return schemas.Invalidf("account-boxes", "%d is out of range: at least 1", f.AccountBoxes)
	case f.LeftoverCPU < time.Second:
		return schemas.Invalidf("leftover-cpu", "%s is out of range: at least 1s", f.LeftoverCPU)
	case f.MaxCPUs < 0:
		return schemas.Invalidf("max-cpus", "%g is out of range: 0 for half of the host's, or more", f.MaxCPUs)
	case f.Pool < 0:
		return schemas.Invalidf("pool", "%d is out of range: 0 for none, or more", f.Pool)
	}
	if err := f.boxFlags.check(); err != nil {
		return err
	}
	return f.roomFlags.check()
}

// open opens the provider with the isolation that this host allows, and exports the free space of its disk as metrics and warnings.
func (f *localFlags) open(n *node, operator operatorFlags) (providers.Provider, error) {
	pool := f.Pool
	if pool == 0 {
		pool = -1 // local.Options takes 0 for its default
	}
	o := local.Options{
		StateDir: n.dir.local(), Workspaces: n.dir.workspaces(), Box: f.Box, AllowUnisolated: f.AllowUnisolated, Pool: pool,
		Networks: operator.modes(), PrivateNetworks: operator.PrivateNetworks, MaxMemory: int64(operator.MaxMemory), MaxCPUs: f.MaxCPUs,
		Boxes: f.MaxBoxes, AccountBoxes: f.AccountBoxes, LeftoverCPU: f.LeftoverCPU, Log: n.log.With("part", "local"),
	}
	f.roomFlags.set(&o)
	f.boxFlags.set(&o)
	p, err := local.New(o)
	if err != nil {
		if errors.Is(err, schemas.ErrUnsupported) {
			return nil,
				fmt.Errorf("this host cannot isolate commands: %w (\"sandjet doctor\" explains; --allow-unisolated continues with what is left)", err)
		}
		return nil, fmt.Errorf("provider local: %w", err)
	}
	n.onClose(func() {
		if err := p.Close(); err != nil {
			n.log.Warn("sandbox instances not ended cleanly", "error", err)
		}
	})
	roomMetrics(n.metrics, p)
	n.disk = func() string { return diskWarning(p) }
	return p, nil
}

// diagnose starts and ends a few boxes in the folder, to find out what this host can isolate.
func (f *localFlags) diagnose(ctx context.Context, folder string) []finding {
	d := local.Diagnose(ctx, local.Options{StateDir: filepath.Join(folder, "local"),
		Workspaces: filepath.Join(folder, "workspaces"), Box: f.Box})
	return append(describeIsolation(d, f.AllowUnisolated), describeProgram(d), f.describe())
}

// describeProgram reports which program starts sandboxes.
func describeProgram(d local.Diagnosis) finding {
	const remedy = "a small program of its own starts sandboxes faster: build both with make build, or name it with --box"
	switch {
	case d.BoxUnused != "":
		return finding{"box program", worth, d.Box + ": " + d.BoxUnused, remedy}
	case !filepath.IsAbs(d.Box):
		return finding{"box program", worth, d.Box, remedy}
	}
	return finding{"box program", good, d.Box, ""}
}

// describeIsolation converts a diagnosis to findings. If allowed is set (--allow-unisolated), missing isolation is a note rather than a
// failure.
func describeIsolation(d local.Diagnosis, allowed bool) []finding {
	var out []finding
	isolated, weaker := d.Level == "L3", d.Level == "L2"
	head := finding{About: "isolation", Level: good, Says: fmt.Sprintf("level %s: %s", d.Level, strings.Join(d.Isolation.Enforced, ", "))}
	if !isolated {
		head = finding{"isolation", failing, "none: this host cannot keep a command in a box",
			"see the obstacles below, or give --allow-unisolated"}
		if weaker {
			head.Says = "only level L2, no namespaces: " + strings.Join(d.Isolation.Enforced, ", ")
		}
		if allowed {
			head.Level, head.Remedy = worth, ""
		}
		if allowed && !weaker {
			head.Says = "none: commands run as this user, and may do what it may"
		}
	}
	out = append(out, head)
	if d.Err != nil {
		out = append(out, finding{"isolation", head.Level, d.Err.Error(), ""})
	}
	for _, o := range d.Obstacles {
		level := worth
		if !isolated && !allowed {
			level = failing
		}
		out = append(out, finding{"level " + o.Level, level, "not available: " + o.Reason, o.Remedy})
	}
	if isolated && len(d.Isolation.Missing) > 0 {
		out = append(out, finding{"lacking", worth, strings.Join(d.Isolation.Missing, ", "), strings.Join(d.Notes, "\n")})
	}
	switch {
	case !isolated:
	case d.NoRelay != "":
		out = append(out, finding{"network", worth, "sandboxes can only have deny-all: " + d.NoRelay,
			"restricted and allow-all need netlink in the network namespaces of sandboxes"})
	case !d.AllPorts:
		out = append(out, finding{"network", worth, "restricted and allow-all work for the ports that rules name, and 22, 80, 443, 8080 and 8443",
			"all ports need a kernel with nf_tables and nft_tproxy: modprobe nft_tproxy"})
	default:
		out = append(out, finding{"network", good, "deny-all, restricted by domain and network, and allow-all (--networks)", ""})
	}
	switch d.Cgroups {
	case "":
	case "none":
		out = append(out, finding{"limits", worth,
			"no cgroups: a watchdog limits the memory of sandboxes, and nothing limits their processors", ""})
	default:
		out = append(out, finding{"limits", good, "cgroups " + d.Cgroups, ""})
	}
	return out
}
