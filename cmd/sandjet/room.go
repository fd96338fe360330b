package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// roomFlags limit the disk space of accounts on a worker of the provider local.
type roomFlags struct {
	WorkspaceQuota        byteSize `placeholder:"SIZE" default:"10GiB" group:"Limits" help:"Maximum disk space of one workspace. Above it writes are refused until files are deleted, and running commands are ended; 0 means no limit."`
	WorkspaceFiles        int64    `placeholder:"N" default:"1000000" group:"Limits" help:"Maximum number of files and directories in one workspace; 0 means no limit."`
	AccountWorkspaceQuota byteSize `placeholder:"SIZE" default:"50GiB" group:"Limits" help:"Maximum disk space of all workspaces of an account on this worker; the number of files is limited in proportion. 0 means no limit."`
	HomeQuota             byteSize `placeholder:"SIZE" default:"5GiB" group:"Limits" help:"Maximum disk space of the home folder of one sandbox, which holds the caches of package managers. It counts for --account-workspace-quota; 0 means no limit."`
	MinFree               minFree  `placeholder:"SIZE|N%" default:"auto" group:"Limits" help:"Free space to keep on the file system of the data folder, such as 5GiB or 5%. Below it nothing is written to workspaces; below half of it everything that writes is ended. auto means a tenth of it, 1 GiB at most; 0 means nothing."`
}

// check returns an error for the first flag that is out of range.
func (f roomFlags) check() error {
	const leastBytes, leastFiles = 1 << 20, 100
	switch {
	case f.WorkspaceQuota != 0 && f.WorkspaceQuota < leastBytes:
		return schemas.Invalidf("workspace-quota", "%s is out of range: at least %s, or 0 for no limit", f.WorkspaceQuota, byteSize(leastBytes))
	case f.WorkspaceFiles != 0 && f.WorkspaceFiles < leastFiles:
		return schemas.Invalidf("workspace-files", "%d is out of range: at least %d, or 0 for no limit", f.WorkspaceFiles, leastFiles)
	case f.HomeQuota != 0 && f.HomeQuota < leastBytes:
		return schemas.Invalidf("home-quota", "%s is out of range: at least %s, or 0 for no limit", f.HomeQuota, byteSize(leastBytes))
	case f.AccountWorkspaceQuota != 0 && f.AccountWorkspaceQuota < leastBytes:
		return schemas.Invalidf("account-workspace-quota", "%s is out of range: at least %s, or 0 for no limit",
			f.AccountWorkspaceQuota, byteSize(leastBytes))
	}
	return nil
}

// set copies the flags to the provider's options. There 0 means the default, and -1 no limit.
func (f roomFlags) set(o *local.Options) {
	orNone := func(n int64) int64 {
		if n == 0 {
			return -1
		}
		return n
	}
	o.WorkspaceQuota, o.WorkspaceFiles, o.AccountQuota = orNone(int64(f.WorkspaceQuota)), orNone(f.WorkspaceFiles),
		orNone(int64(f.AccountWorkspaceQuota))
	o.HomeQuota = orNone(int64(f.HomeQuota))
	o.MinFree = local.Reserve(f.MinFree)
}

// minFree is the space to keep free: a number of bytes, a share of the file system, or auto.
type minFree local.Reserve

// UnmarshalText parses 5GiB, 5%, 0 or auto.
func (m *minFree) UnmarshalText(text []byte) error {
	const all = 100
	s := strings.TrimSpace(string(text))
	if s == "auto" {
		*m = minFree{}
		return nil
	}
	if number, ok := strings.CutSuffix(s, "%"); ok {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent > 0 && percent < all) {
			return schemas.Invalidf("", "%q is not a share of a file system: write more than 0%% and less than 100%%", schemas.Quotable(s))
		}
		*m = minFree{Percent: percent}
		return nil
	}
	var b byteSize
	if err := b.UnmarshalText([]byte(s)); err != nil {
		return schemas.Invalidf("", "%q is not what may stay free: write a size such as 5GiB, a part such as 5%%, auto, or 0 for nothing",
			schemas.Quotable(s))
	}
	if *m = (minFree{Bytes: int64(b)}); b == 0 {
		m.Bytes = -1
	}
	return nil
}

// of returns how many bytes must stay free on a file system of that size.
func (m minFree) of(size byteSize) byteSize { return byteSize(local.Reserve(m).Of(int64(size))) }

// roomMetrics exports the free space on the disk of a worker, and how often a full disk or quota refused writes or ended sandboxes.
func roomMetrics(r *prometheus.Registry, p *local.Provider) {
	gauge := func(name, help string, value func(local.Room) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(p.Room())) })
	}
	r.MustRegister(
		gauge("sandjet_disk_free_bytes", "Room on the file system of the data folder.", func(r local.Room) int64 { return r.Free }),
		gauge("sandjet_disk_free_inodes", "Inodes that are free there.", func(r local.Room) int64 { return r.Files }),
		gauge("sandjet_disk_reserve_bytes", "What must stay free there: with less nothing is written to workspaces.",
			func(r local.Room) int64 { return r.Reserve }),
	)
	counters := func(name, help string, value func(p *local.Provider, why string) int64) {
		for _, why := range local.FullReasons() {
			r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"why": why}},
				func() float64 { return float64(value(p, why)) }))
		}
	}
	counters("sandjet_writes_refused_total", "Commands and writes of file tools that found a workspace, an account or the disk full.",
		func(p *local.Provider, why string) int64 { refused, _ := p.Refusals(); return refused[why] })
	counters("sandjet_full_ended_total", "Sandboxes that were ended because they filled a workspace, an account or the disk.",
		func(p *local.Provider, why string) int64 { _, ended := p.Refusals(); return ended[why] })
}

// diskWarning describes the lack of space for a worker's workspaces; empty while there is enough.
func diskWarning(p *local.Provider) string {
	r := p.Room()
	if !r.Short() {
		return ""
	}
	return fmt.Sprintf("little room: %s and %d inodes are free, %s must stay free (--min-free): nothing is written to workspaces",
		byteSize(r.Free), r.Files, byteSize(r.Reserve))
}

// freeAt returns the free and the total space of the file system of a folder.
func freeAt(folder string) (free, size byteSize, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", folder, err)
	}
	return byteSize(fs.Bavail) * byteSize(fs.Bsize), byteSize(fs.Blocks) * byteSize(fs.Bsize), nil // the product cannot overflow: disks are smaller
}
