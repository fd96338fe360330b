package tools

import (
	"path"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// place is a path in the workspace.
type place struct {
	name string // relative and clean; "." is the workspace itself
	deep bool   // shown as an absolute path, as in bash
}

// newPlace validates a path of a call, before anything is run.
//
// A file has the same names in the file tools and in bash: relative to the workspace, or below the paths at which boxes have it. Other
// absolute paths are outside of the workspace, where only bash has access. In deepagents a leading slash also refers to the workspace,
// except where boxes have a folder of that name.
func newPlace(c schemas.Call, p string) (place, error) {
	const longestName = 255
	d := dialect(c.Dialect)
	if strings.ContainsAny(p, "\x00\n") {
		return place{}, schemas.Errorf(schemas.Invalid, "Invalid path: NUL and line breaks are not allowed")
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "..":
			return place{}, schemas.Errorf(schemas.Invalid, "Invalid path: directory traversal not allowed")
		case len(part) > longestName:
			return place{}, schemas.Errorf(schemas.Invalid, "Invalid path: a name is longer than %d bytes", longestName)
		}
	}
	name := path.Clean("./" + p)
	if strings.HasPrefix(p, "/") {
		below, inside := inWorkspace(c, path.Clean(p))
		switch {
		case inside:
			name = path.Clean("./" + below)
		case !d.deep() || ofBox(path.Clean(p)):
			return place{}, outside(p)
		}
	}
	return place{name: name, deep: d.deep()}, nil
}

// inWorkspace returns the part of an absolute, clean path below the workspace of the call; false if it is not in the workspace.
func inWorkspace(c schemas.Call, p string) (below string, ok bool) {
	mount := providers.Mount{Namespace: schemas.Namespace(c.Account, c.Workspace)}
	for _, root := range []string{providers.WorkspacePath, mount.Path()} {
		if rest, ok := strings.CutPrefix(p, root); ok && (rest == "" || rest[0] == '/') {
			return rest, true
		}
	}
	return "", false
}

// ofBox reports whether an absolute, clean path begins with a folder that boxes have outside of the workspace.
func ofBox(p string) bool {
	top, _, _ := strings.Cut(p[1:], "/")
	switch top {
	case "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "opt", "proc", "root", "run",
		"sbin", "sys", "tmp", "usr", "var":
		return true
	}
	return false
}

// pattern validates a pattern of names. If it begins with a slash, it removes the path of the workspace; the rest is relative to the
// folder that is searched.
func (p place) pattern(c schemas.Call, s string) (string, error) {
	if !strings.HasPrefix(s, "/") {
		return s, nil
	}
	below, inside := inWorkspace(c, s)
	switch {
	case inside && p.name != ".":
		return "", invalidGlob("it is an absolute path: leave path out")
	case inside:
		return "/" + strings.TrimPrefix(below, "/"), nil
	case ofBox(s):
		return "", outside(s)
	}
	return s, nil
}

func outside(p string) error {
	return schemas.Errorf(schemas.Invalid,
		"Invalid path: %s is outside the workspace: use a relative path or one below %s; only bash can reach other places",
		schemas.Quotable(p), providers.WorkspacePath)
}

// String returns the path as it is shown in texts.
func (p place) String() string { return p.show("") }

// show returns the path of an entry below p as it is shown in texts.
func (p place) show(below string) string {
	name := path.Join(p.name, below)
	switch {
	case !p.deep:
		return name
	case name == ".":
		return providers.WorkspacePath
	}
	return providers.WorkspacePath + "/" + name
}

// relative removes the path at which a workspace is mounted.
func relative(p string) string {
	if rest, ok := strings.CutPrefix(p, providers.WorkspacePath+"/"); ok {
		return rest
	}
	rest, ok := strings.CutPrefix(p, providers.Mount{}.Path())
	if !ok {
		return p
	}
	_, p, _ = strings.Cut(rest, "/")
	return p
}

// dialect is a [schemas.Dialect] with methods.
type dialect schemas.Dialect

func (d dialect) is(other schemas.Dialect) bool {
	if d == "" {
		return other == schemas.DialectClaude
	}
	return schemas.Dialect(d) == other
}

// deep reports whether the dialect is deepagents.
func (d dialect) deep() bool { return d.is(schemas.DialectDeepAgents) }

// either returns the call's value, or the dialect's default if it is nil.
func either[T any](said *T, byDefault T) T {
	if said != nil {
		return *said
	}
	return byDefault
}
