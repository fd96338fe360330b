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

// Limits is what a cgroup allows all its processes together. 0: no limit.
type Limits struct {
	MemoryBytes int64
	Pids        int
	CPUs        float64
}

// controllers are the parts of the kernel's cgroups that we use, in the order of a profile's words.
var controllers = [...]string{"memory", "pids", "cpu"} //nolint:gochecknoglobals // a constant in all but syntax

// CgroupSupport says which limits this host lets us enforce, and where. The zero value is none.
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

// Words lists what can be enforced as a profile says it: cgroup.memory, cgroup.pids, cgroup.cpu.
func (s CgroupSupport) Words() []string { return s.list(true) }

// Missing lists what cannot.
func (s CgroupSupport) Missing() []string { return s.list(false) }

// Reasons says for people why something is missing.
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

// Cgroup is one group of processes with limits. Its methods may be called from several goroutines.
type Cgroup struct {
	version int
	dirs    map[string]string
	unique  []string // each directory once
	fd      *os.File // version 2: for clone into the group
}

// groupPrefix begins the name of every directory that we make.
const groupPrefix = "sandjet-"

// New makes a group with limits; those whose controller is not in [CgroupSupport.Words] are left out. Name is a part of a file name. The
// group carries its owner in its name, this process, so that [CgroupSupport.Sweep] can find groups that no process needs any more. Without
// any controller it is ErrNoCgroup.
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

// add makes dir for controller c, once where several controllers share it.
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

// limit writes the limits. A swap limit belongs to a memory limit: without it the limit would only
// move memory to the disk.
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

// FD is the open directory to clone a process into the group (version 2). It is 0 for version 1,
// where the process has to be added after it was made. It is valid until [Cgroup.Remove].
func (g *Cgroup) FD() int {
	if g.fd == nil {
		return 0
	}
	return int(g.fd.Fd())
}

// Tasks lists the files of a version 1 group that take "0" from a thread to move it in. A thread
// that moves itself waits for no other, and what it forks is born in the group: that is some
// milliseconds faster than [Cgroup.AddPid]. Nil for version 2, see [Cgroup.FD].
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

// AddPid moves a process into the group; what it starts from then on is in it as well.
func (g *Cgroup) AddPid(pid int) error {
	for _, dir := range g.unique {
		if err := writeControl(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to cgroup: %w", pid, err)
		}
	}
	return nil
}

// Kill kills every process in the group. It returns when all have been signalled, not when they
// are gone. Processes that fork faster than they are found are outrun by a bounded number of passes, after
// which it is an error; the group's limit on processes ends such a race.
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

// killListed kills what list lists until all of it was killed. A process that has been sent SIGKILL forks no
// more, however long it takes to die, so one signal is enough for each; a number is used again.
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

// pids lists the processes of the group, each once. Version 1 answers for each hierarchy.
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

// OOMKills counts the processes of the group that the kernel killed for want of memory.
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

// Remove takes the group away. Processes that are still in it make it fail with EBUSY: kill them
// and wait for them first. Removing twice is no error.
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

// writeControl writes a value to one of the kernel's files, which must be there.
func writeControl(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
