package main

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// syncPair is a file of both sides, or of the first side alone.
type syncPair struct {
	local  treeFile
	remote schemas.FileInfo
}

// syncPlan is the changes that make one folder like another.
type syncPlan struct {
	folders []treeFile // to create on the second side
	copies  []syncPair
	pairs   []syncPair // of equal size, to be compared by content
	first   []string   // to remove before copying, because an entry of another type gets the name
	last    []string   // to remove after copying
	left    int        // number of ignored entries: neither files nor folders, on either side
}

// planSync plans the changes. left are the names of local entries that are neither files nor folders: they are ignored, and so are entries
// of the same names on the other side. Code conflict: a name is a file on one side and a folder on the other.
func planSync(local []treeFile, left []string, remote []schemas.FileInfo, up, remove bool) (p syncPlan, err error) {
	mine, theirs, odd := map[string]treeFile{}, map[string]schemas.FileInfo{}, map[string]bool{}
	for _, f := range local {
		mine[f.path] = f
	}
	for _, name := range left {
		odd[name] = true
	}
	for _, f := range remote {
		if f.Type == schemas.TypeFile || f.Type == schemas.TypeDirectory {
			theirs[f.Path] = f
		} else {
			odd[f.Path] = true
		}
	}
	p.left = len(odd)
	alone := func(name string) bool { return odd[name] || below(odd, name) }
	names := make([]string, 0, len(mine)+len(theirs))
	for name := range mine {
		names = append(names, name)
	}
	for name := range theirs {
		if _, both := mine[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	cleared := map[string]bool{}
	for _, name := range names {
		m, here := mine[name]
		r, there := theirs[name]
		from, to := here, there
		if !up {
			from, to = there, here
		}
		folder := m.folder
		if there && (!here || !up) {
			folder = r.Type == schemas.TypeDirectory
		}
		switch {
		case alone(name):
		case !from && below(cleared, name):
			p.first = append(p.first, name)
		case !from && remove:
			p.last = append(p.last, name)
		case !from:
		case to && m.folder != (r.Type == schemas.TypeDirectory):
			if !remove || holds(odd, name) {
				return p, schemas.OpErrorf(schemas.Conflict, "to", "%q is a file on one side and a folder on the other: remove one, "+
					"or use --delete (which leaves links alone)", schemas.Quotable(name))
			}
			p.first, cleared[name] = append(p.first, name), true
			p.add(name, folder, m, r)
		case !to:
			p.add(name, folder, m, r)
		case folder:
		case m.size != r.Size:
			p.copies = append(p.copies, syncPair{m, r})
		default:
			p.pairs = append(p.pairs, syncPair{m, r})
		}
	}
	slices.Reverse(p.first) // the content of a folder precedes the folder
	slices.Reverse(p.last)
	return p, nil
}

func (p *syncPlan) add(name string, folder bool, m treeFile, r schemas.FileInfo) {
	if folder {
		p.folders = append(p.folders, treeFile{path: name, folder: true, modified: m.modified})
		return
	}
	p.copies = append(p.copies, syncPair{m, r})
}

// below reports whether a folder above a path is in a set.
func below(set map[string]bool, name string) bool {
	for i := range name {
		if name[i] == '/' && set[name[:i]] {
			return true
		}
	}
	return false
}

// holds reports whether a path below a folder is in a set.
func holds(set map[string]bool, folder string) bool {
	for name := range set {
		if strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

// changes returns the changes of the plan, sorted by path.
func (p *syncPlan) changes(up bool) (list []syncChange) {
	for _, f := range p.folders {
		list = append(list, syncChange{Do: "mkdir", Path: f.path})
	}
	for _, c := range p.copies {
		size, name := c.local.size, c.local.path
		if !up {
			size, name = c.remote.Size, c.remote.Path
		}
		list = append(list, syncChange{"copy", name, size})
	}
	for _, name := range slices.Concat(p.first, p.last) {
		list = append(list, syncChange{Do: "remove", Path: name})
	}
	slices.SortStableFunc(list, func(a, b syncChange) int { return strings.Compare(a.Path, b.Path) })
	return list
}
