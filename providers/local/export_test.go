//go:build linux

package local

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

// Filled waits until the pool has all its boxes of spec's shape.
func (p *Provider) Filled(tb testing.TB, spec providers.Spec) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.mu.Lock()
		full := len(p.pool.idle[p.shape(spec)]) >= p.pool.size
		p.mu.Unlock()
		if full {
			return
		}
	}
	tb.Fatal("the pool was not filled")
}

// NewAt is New where the host can do no more than level.
func NewAt(o Options, level string) (*Provider, error) {
	p, err := prepare(o)
	if err != nil {
		return nil, err
	}
	switch level {
	case levelIsolated:
	case levelLandlocked:
		p.modes, p.opt.AllowUnisolated = []box.Mode{box.Landlocked}, true
	default:
		p.modes = nil
	}
	return p.start()
}

// ListenOnPorts makes boxes as on a kernel that cannot redirect connections to all ports.
func (p *Provider) ListenOnPorts() { p.redirects = false }

// LimitLandlock makes boxes as on a kernel whose Landlock has that ABI.
func (p *Provider) LimitLandlock(abi int) { p.mostABI = abi }

// KeptPid is process 1 of a kept box, as this process sees it.
func (p *Provider) KeptPid(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept[key].sb.Pid()
}

// Owed is the rule of left-overs.
var Owed = owed

// LookForLeftovers takes one sample as if that stood for the given time.
func (p *Provider) LookForLeftovers(standsFor time.Duration) {
	p.look(standsFor)
}

// Keeps reports whether a box is kept under a key.
func (p *Provider) Keeps(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kept[key]
	return k != nil && k.alive()
}

// Measured reports whether a workspace has been measured since it was last used.
func (p *Provider) Measured(a schemas.AccountID, w schemas.WorkspaceID) bool {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	s := p.quotas.spaces[schemas.Namespace(a, w)]
	return s != nil && s.seen
}

// Gauge is what a workspace takes.
type Gauge struct{ gauge }

// NewGauge makes a gauge with a limit.
func NewGauge(limit safefs.Taken) *Gauge { return &Gauge{gauge{limit: limit}} }

// Observe takes note of a measurement.
func (g *Gauge) Observe(m safefs.Measured) (end, full bool) { return g.observe(m), g.full() }

// JobDir is the directory of a job's files.
func (p *Provider) JobDir(ref schemas.JobRef) string {
	return p.jobs.dirs.path(jobName(ref.Sandbox, ref.ID))
}

// StallMaking has the making of a workspace's directory wait, as on a disk that stalls, until release is called.
func (p *Provider) StallMaking(a schemas.AccountID, w schemas.WorkspaceID) (release func()) {
	return p.making.take(schemas.Namespace(a, w))
}
