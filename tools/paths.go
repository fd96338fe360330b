package tools

import (
	"path"
	"strings"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// place is a path in the workspace.
type place struct {
	name string // relative and clean; "." is the workspace
	deep bool   // shown as an absolute path, as bash knows it
}

// newPlace checks a path of a call. It is refused before anything is run.
//
// One file has one name, in the file tools and in bash: relative to the workspace, or below the places where
// a box has it. Any other absolute path is a place of the box, which only bash reaches. To deepagents a
// leading slash also means the workspace, but where boxes have a folder of that name.
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

// inWorkspace takes the place where a box has the call's workspace off an absolute, clean path.
func inWorkspace(c schemas.Call, p string) (below string, ok bool) {
	mount := providers.Mount{Namespace: schemas.Namespace(c.Account, c.Workspace)}
	for _, root := range []string{providers.WorkspacePath, mount.Path()} {
		if rest, ok := strings.CutPrefix(p, root); ok && (rest == "" || rest[0] == '/') {
			return rest, true
		}
	}
	return "", false
}

// ofBox reports whether an absolute, clean path begins with a folder that boxes have beside the workspace.
func ofBox(p string) bool {
	top, _, _ := strings.Cut(p[1:], "/")
	switch top {
	case "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "opt", "proc", "root", "run",
		"sbin", "sys", "tmp", "usr", "var":
		return true
	}
	return false
}

// pattern checks a pattern of names that begins with a slash, and takes the place of the workspace off it.
// What is left is found from where the search begins.
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

// String is the path as texts show it.
func (p place) String() string { return p.show("") }

// show is the path of what lies below p, as texts show it.
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

// relative takes the place where a workspace is mounted off a path.
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

// dialect answers questions about a [schemas.Dialect].
type dialect schemas.Dialect

func (d dialect) is(other schemas.Dialect) bool {
	if d == "" {
		return other == schemas.DialectClaude
	}
	return schemas.Dialect(d) == other
}

// deep reports whether it is deepagents.
func (d dialect) deep() bool { return d.is(schemas.DialectDeepAgents) }

// either returns what the call says, else the dialect's default.
func either[T any](said *T, byDefault T) T {
	if said != nil {
		return *said
	}
	return byDefault
}
