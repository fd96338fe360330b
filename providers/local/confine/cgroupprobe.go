//go:build linux

package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ProbeCgroups finds out by trying which limits can be enforced: first with version 2 in a directory that was delegated to us, then with
// version 2 at its root, then with version 1. It leaves nothing behind, with one exception: in a delegated version 2 group of a service it
// moves the service's processes into a new group below, because the kernel allows limits only on groups without processes of their own.
func ProbeCgroups() CgroupSupport {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return CgroupSupport{reasons: []string{"/proc is not readable: " + err.Error()}}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return CgroupSupport{reasons: []string{"this process's cgroup is unknown: " + err.Error()}}
	}
	return probe(parseHierarchies(string(mounts), string(own)))
}

// hierarchy is one mounted cgroup hierarchy and this process's group in it.
type hierarchy struct {
	version     int
	controllers []string // version 1
	mount       string   // where the tree is mounted
	own         string   // directory of this process's group, below mount; mount when it is the root
}

// parseHierarchies returns the hierarchies that /proc/self/mountinfo and /proc/self/cgroup list.
func parseHierarchies(mountinfo, cgroup string) []hierarchy {
	places := map[string]string{} // controller list → path; version 2: ""
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			places[c] = parts[2]
		}
	}
	var hs []hierarchy
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		root, mount := unescape(fields[3]), unescape(fields[4])
		switch kind[0] {
		case "cgroup2":
			place, ok := places[""]
			if ok {
				hs = append(hs, hierarchy{version: 2, mount: mount, own: below(mount, root, place)})
			}
		case "cgroup":
			options := strings.Split(kind[2], ",")
			var cs []string
			for _, c := range controllers {
				if slices.Contains(options, c) {
					cs = append(cs, c)
				}
			}
			if len(cs) > 0 {
				hs = append(hs, hierarchy{version: 1, controllers: cs, mount: mount, own: below(mount, root, places[cs[0]])})
			}
		}
	}
	return hs
}

// below returns the directory of the group at place, in a hierarchy whose part root is mounted at mount. If place lies outside of root, it
// is mount itself: nothing above can be reached.
func below(mount, root, place string) string {
	outside := strings.Contains(place+"/", "/../")
	if rel, err := filepath.Rel(root, place); err == nil && filepath.IsLocal(rel) && !outside {
		return filepath.Join(mount, rel)
	}
	return mount
}

// unescape undoes the octal escapes of mountinfo for space, tab, newline and backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func probe(hs []hierarchy) CgroupSupport {
	best := CgroupSupport{}
	var reasons []string
	for _, h := range hs {
		if h.version != 2 {
			continue
		}
		for _, place := range places2(h) {
			s, err := try2(place)
			if err != nil {
				reasons = append(reasons, err.Error())
			}
			if len(s.parents) > len(best.parents) {
				best = s
			}
		}
	}
	if len(best.parents) == 0 {
		var err error
		if best, err = try1(hs); err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	if len(best.parents) == 0 {
		best = CgroupSupport{}
	}
	if len(best.parents) < len(controllers) {
		if len(hs) == 0 {
			reasons = append(reasons, "no cgroup file system is mounted")
		}
		best.reasons = reasons
	}
	return best
}

// place2 is a version 2 directory in which groups may be creatable.
type place2 struct {
	dir string
	// own: it is this process's own group, which must be emptied first.
	own bool
}

// places2 lists the candidate directories, closest first, so that the limits of the service that started us still apply: beside our group
// if its parent was delegated too, in our group, at the root.
func places2(h hierarchy) []place2 {
	if h.own == h.mount {
		return []place2{{dir: h.mount}, {dir: h.mount, own: true}}
	}
	return []place2{{dir: filepath.Dir(h.own)}, {dir: h.own, own: true}, {dir: h.mount}}
}

// try2 finds out which controllers work for groups in a version 2 directory.
func try2(p place2) (CgroupSupport, error) {
	offered, err := words(filepath.Join(p.dir, "cgroup.controllers"))
	if err != nil {
		return CgroupSupport{}, err
	}
	wanted := slices.DeleteFunc(slices.Clone(controllers[:]), func(c string) bool { return !slices.Contains(offered, c) })
	if len(wanted) == 0 {
		return CgroupSupport{}, fmt.Errorf("%s offers none of %s", p.dir, strings.Join(controllers[:], ", "))
	}
	if err := writable(p.dir); err != nil {
		return CgroupSupport{}, err
	}
	on, err := words(filepath.Join(p.dir, "cgroup.subtree_control"))
	if err != nil {
		return CgroupSupport{}, err
	}
	var errs []error
	for _, c := range wanted {
		if slices.Contains(on, c) {
			continue
		}
		if p.own {
			if err := step(p.dir); err != nil {
				return CgroupSupport{}, err
			}
			p.own = false
		}
		errs = append(errs, writeControl(filepath.Join(p.dir, "cgroup.subtree_control"), "+"+c))
	}
	s := CgroupSupport{Version: 2, parents: map[string]string{}}
	for _, c := range wanted {
		one := CgroupSupport{Version: 2, parents: map[string]string{c: p.dir}}
		if err := one.works(); err != nil {
			errs = append(errs, err)
			continue
		}
		s.parents[c] = p.dir
	}
	return s, errors.Join(errs...)
}

// step moves the processes of our own group into a group below it.
func step(dir string) error {
	leaf := filepath.Join(dir, "sandjet.self")
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // the kernel's files have modes of their own
		return err
	}
	pids, err := words(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := writeControl(filepath.Join(leaf, "cgroup.procs"), pid); err != nil {
			return fmt.Errorf("move process %s out of the way: %w", pid, err)
		}
	}
	return nil
}

// try1 finds out which version 1 controllers work below our own group, each in its hierarchy.
func try1(hs []hierarchy) (CgroupSupport, error) {
	s := CgroupSupport{Version: 1, parents: map[string]string{}}
	var errs []error
	for _, h := range hs {
		if h.version != 1 {
			continue
		}
		for _, c := range h.controllers {
			one := CgroupSupport{Version: 1, parents: map[string]string{c: h.own}}
			if err := one.works(); err != nil {
				errs = append(errs, err)
				continue
			}
			s.parents[c] = h.own
		}
	}
	return s, errors.Join(errs...)
}

// works returns an error unless a group with every limit can be made and removed.
func (s CgroupSupport) works() error {
	for _, dir := range s.parents {
		if err := writable(dir); err != nil {
			return err
		}
	}
	g, err := s.New("probe", Limits{MemoryBytes: 64 << 20, Pids: 16, CPUs: 1})
	if err != nil {
		return err
	}
	return g.Remove()
}

// writable returns an error unless groups can be made in dir and processes be moved into them. It changes nothing.
func writable(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// words returns the space-separated words of a file.
func words(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(data)), nil
}
