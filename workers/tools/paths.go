package tools

import (
	"path"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// place is a path in the workspace.
type place struct {
	name string // relative and clean; "." is the workspace
	deep bool   // shown with a leading /
}

// newPlace checks a path of a call. It is refused before anything is run.
func newPlace(d dialect, p string) (place, error) {
	const longestName = 255
	if strings.ContainsAny(p, "\x00\n") {
		return place{}, schemas.Errorf(schemas.Invalid, "", "Invalid path: NUL and line breaks are not allowed")
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "..":
			return place{}, schemas.Errorf(schemas.Invalid, "", "Invalid path: directory traversal not allowed")
		case len(part) > longestName:
			return place{}, schemas.Errorf(schemas.Invalid, "", "Invalid path: a name is longer than %d bytes", longestName)
		}
	}
	return place{name: path.Clean("./" + strings.TrimLeft(p, "/")), deep: d.is(schemas.DialectDeepAgents)}, nil
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
		return "/"
	}
	return "/" + name
}

// relative takes the place where a workspace is mounted off a path.
func relative(p string) string {
	rest, ok := strings.CutPrefix(p, "/mnt/workspaces/")
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
