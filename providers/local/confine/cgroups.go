//go:build linux

package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are the limits of a cgroup, shared by all its processes. 0: no limit.
type Limits struct {
	MemoryBytes int64
	Pids        int
	CPUs        float64
}

// controllers are the parts of the kernel's cgroups that we use, in the order of a profile's words.
var controllers = [...]string{"memory", "pids", "cpu"} //nolint:gochecknoglobals // a constant in all but syntax

// CgroupSupport is which limits this host lets us enforce, and in which directories. The zero value enforces none.
type CgroupSupport struct {
	// Version is 2, 1 or 0 for none. Controllers of both versions are never mixed.
	Version int
	parents map[string]string // controller → directory that ours are made in; version 2: the same for all
	reasons []string          // why what is missing is missing
}

// ErrNoCgroup says that this host lets us enforce no limit by cgroups.
var ErrNoCgroup = errors.New("no cgroup can be made here")

// String names the version and the controllers, e.g. "v1 memory pids cpu".
func (s CgroupSupport) String() string {
	if s.Version == 0 {
		return "none"
	}
	return fmt.Sprintf("v%d %s", s.Version, strings.ReplaceAll(strings.Join(s.Words(), " "), "cgroup.", ""))
}

// Words lists the limits that can be enforced, in the words of a profile: cgroup.memory, cgroup.pids, cgroup.cpu.
func (s CgroupSupport) Words() []string { return s.list(true) }

// Missing lists the limits that cannot be enforced, in the words of a profile.
func (s CgroupSupport) Missing() []string { return s.list(false) }

// Reasons explains to operators why limits are missing.
func (s CgroupSupport) Reasons() []string { return s.reasons }

func (s CgroupSupport) list(there bool) []string {
	words := make([]string, 0, len(controllers))
	for _, c := range controllers {
		if _, ok := s.parents[c]; ok == there {
			words = append(words, "cgroup."+c)
		}
	}
	return words
}

// Cgroup is a group of processes with limits. Its methods are safe for concurrent use.
type Cgroup struct {
	version int
	dirs    map[string]string
	unique  []string // each directory once
	fd      *os.File // version 2: for clone into the group
}

// groupPrefix begins the name of every directory that we make.
const groupPrefix = "sandjet-"

// New makes a group with limits; limits whose controller is not in [CgroupSupport.Words] are ignored. Name becomes part of a file name.
// The directory's name also contains this process as the owner, so that [CgroupSupport.Sweep] can find groups of dead processes. Without
// any controller the error is ErrNoCgroup.
func (s CgroupSupport) New(name string, l Limits) (*Cgroup, error) {
	if s.Version == 0 {
		return nil, ErrNoCgroup
	}
	if name == "" || len(name) > 128 || strings.ContainsAny(name, "/\x00\n") {
		return nil, fmt.Errorf("%q cannot be a cgroup's name", name)
	}
	owner, err := thisOwner()
	if err != nil {
		return nil, err
	}
	g := &Cgroup{version: s.Version, dirs: make(map[string]string, len(s.parents))}
	for _, c := range controllers {
		parent, ok := s.parents[c]
		if !ok {
			continue
		}
		dir := filepath.Join(parent, groupPrefix+owner.String()+"-"+name)
		if err := g.add(c, dir); err != nil {
			return nil, errors.Join(fmt.Errorf("make cgroup: %w", err), g.Remove())
		}
	}
	if err := g.limit(l); err != nil {
		return nil, errors.Join(fmt.Errorf("limit cgroup: %w", err), g.Remove())
	}
	if g.version == 2 {
		if g.fd, err = os.Open(g.unique[0]); err != nil {
			return nil, errors.Join(fmt.Errorf("open cgroup: %w", err), g.Remove())
		}
	}
	return g, nil
}

// add makes the directory dir for controller c, once if several controllers share it.
func (g *Cgroup) add(c, dir string) error {
	g.dirs[c] = dir
	if slices.Contains(g.unique, dir) {
		return nil
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the kernel's files have modes of their own
		delete(g.dirs, c)
		return err
	}
	g.unique = append(g.unique, dir)
	return nil
}

// cpuPeriod is the time in microseconds over which processor time is counted.
const cpuPeriod = 100_000

// limit writes the limits to the kernel. A memory limit also limits swap: otherwise memory would only move to the disk.
func (g *Cgroup) limit(l Limits) error {
	var err error
	set := func(controller, file, value string, must bool) {
		dir, ok := g.dirs[controller]
		if !ok || err != nil {
			return
		}
		if e := writeControl(filepath.Join(dir, file), value); e != nil && (must || !errors.Is(e, os.ErrNotExist)) {
			err = e
		}
	}
	if l.MemoryBytes > 0 {
		bytes := strconv.FormatInt(l.MemoryBytes, 10)
		if g.version == 2 {
			set("memory", "memory.max", bytes, true)
			set("memory", "memory.swap.max", "0", false)
			set("memory", "memory.oom.group", "1", false)
		} else {
			set("memory", "memory.limit_in_bytes", bytes, true)
			set("memory", "memory.memsw.limit_in_bytes", bytes, false)
			// Version 1 counts what waits in TCP's buffers apart: a half of the memory again is enough for them.
			set("memory", "memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(l.MemoryBytes/2, 10), false)
		}
	}
	if l.Pids > 0 {
		set("pids", "pids.max", strconv.Itoa(l.Pids), true)
	}
	if l.CPUs > 0 {
		quota := strconv.Itoa(max(1000, int(l.CPUs*cpuPeriod)))
		if g.version == 2 {
			set("cpu", "cpu.max", quota+" "+strconv.Itoa(cpuPeriod), true)
		} else {
			set("cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), true)
			set("cpu", "cpu.cfs_quota_us", quota, true)
		}
	}
	return err
}

// FD returns the open directory for cloning a process into the group (version 2). It is 0 for version 1, where a process must be added
// after its start. It is valid until [Cgroup.Remove].
func (g *Cgroup) FD() int {
	if g.fd == nil {
		return 0
	}
	return int(g.fd.Fd())
}

// Tasks returns the tasks files of a version 1 group; nil for version 2, see [Cgroup.FD]. A thread that writes "0" to each moves itself
// into the group, and its children start there. That is some milliseconds faster than [Cgroup.AddPid], because no other thread is waited
// for.
func (g *Cgroup) Tasks() []string {
	if g.version != 1 {
		return nil
	}
	files := make([]string, 0, len(g.unique))
	for _, dir := range g.unique {
		files = append(files, filepath.Join(dir, "tasks"))
	}
	return files
}

// AddPid moves a process into the group; its later children are in the group too.
func (g *Cgroup) AddPid(pid int) error {
	for _, dir := range g.unique {
		if err := writeControl(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to cgroup: %w", pid, err)
		}
	}
	return nil
}

// Kill kills every process in the group. It returns when all have been signalled, which may be before they are gone. It makes a bounded
// number of passes; if processes still fork faster than they are found it returns an error. The group's limit on processes bounds such a
// race.
func (g *Cgroup) Kill() error {
	if g.version == 2 {
		err := writeControl(filepath.Join(g.unique[0], "cgroup.kill"), "1")
		if err == nil || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) { // others may have removed it
			return err
		}
	}
	return killListed(g.pids, startTime, func(pid int) error { return unix.Kill(pid, unix.SIGKILL) })
}

// killPasses bounds the passes of Kill.
const killPasses = 1000

// killListed kills the listed processes, and lists again until each one listed has been killed. A process that was sent SIGKILL forks no
// more, however long it takes to die, so one signal is enough; the start time distinguishes processes whose id was reused.
func killListed(list func() ([]int, error), started func(pid int) (uint64, error), kill func(pid int) error) error {
	type process struct {
		pid   int
		start uint64
	}
	killed := map[process]bool{}
	for range killPasses {
		pids, err := list()
		if err != nil {
			return err
		}
		fresh := false
		for _, pid := range pids {
			start, err := started(pid)
			p := process{pid, start}
			if err == nil && !killed[p] && kill(pid) == nil { // else it is gone
				killed[p], fresh = true, true
			}
		}
		if !fresh {
			return nil
		}
	}
	return errors.New("cgroup: its processes fork faster than they can be killed")
}

// pids returns the processes of the group, each once, from all its version 1 hierarchies.
func (g *Cgroup) pids() ([]int, error) {
	seen := map[int]bool{}
	var all []int
	for _, dir := range g.unique {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.FieldsSeq(string(data)) {
			pid, err := strconv.Atoi(line)
			if err == nil && pid > 0 && !seen[pid] { // 0: a process of another pid namespace
				seen[pid] = true
				all = append(all, pid)
			}
		}
	}
	return all, nil
}

// OOMKills returns how many processes of the group the kernel has killed because memory ran out.
func (g *Cgroup) OOMKills() (int, error) {
	dir, ok := g.dirs["memory"]
	if !ok {
		return 0, nil
	}
	file := "memory.events"
	if g.version == 1 {
		file = "memory.oom_control"
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return strconv.Atoi(n)
		}
	}
	return 0, nil
}

// Remove removes the group. It fails with EBUSY while processes are in the group: kill them and wait for their end first. Removing twice
// is no error.
func (g *Cgroup) Remove() error {
	var errs []error
	if g.fd != nil {
		errs = append(errs, closed(g.fd.Close()))
	}
	for _, dir := range g.unique {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func closed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// writeControl writes a value to a kernel control file, which must exist.
func writeControl(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
