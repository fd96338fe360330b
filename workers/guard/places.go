package guard

import (
	"path"
	"strings"
)

const (
	mounts = "/mnt/workspaces"
	// workspace stands for the workspace of the call, whose real name does not matter here.
	workspace = mounts + "/this"
	// alias is its short name in a box.
	alias = "/workspace"
	// home is the home folder of a box: writable, and in a kept box it stays.
	home = "/home/sandbox"
)

// spot is a working directory.
type spot struct {
	dir   string // absolute
	known bool
}

// resolve returns the place that a path names from a spot, as far as text shows it: symbolic links are not followed. Of a path that is
// known in part it returns the known folders. Not ok: it cannot be known.
func (s spot) resolve(v value) (p string, ok bool) {
	text := v.text
	if !v.whole {
		i := strings.LastIndexByte(text, '/')
		if i < 0 {
			return "", false
		}
		text = text[:i+1]
	}
	switch {
	case text == "":
		return "", false
	case text[0] == '/':
		p = path.Clean(text)
		if below(p, alias) {
			p = workspace + strings.TrimPrefix(p, alias)
		}
	case !s.known:
		return "", false
	default:
		p = path.Join(s.dir, text)
		if mine, other := mountOf(s.dir), mountOf(p); other != "" && mine != other {
			p = mounts // out of one workspace and into another
		}
	}
	return p, v.whole || !mayReach(p)
}

// mountOf is the workspace that a place belongs to, if any.
func mountOf(p string) string {
	rest, ok := strings.CutPrefix(p, mounts+"/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// mayReach reports whether the unknown rest of a path after p may lead to a place that no policy covers.
func mayReach(p string) bool { return p == "/" || p == "/mnt" || p == mounts || p == "/var" }

// below reports whether p is one of the folders or in one.
func below(p string, folders ...string) bool {
	for _, f := range folders {
		if rest, ok := strings.CutPrefix(p, f); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

func temporary(p string) bool { return below(p, "/tmp", "/var/tmp") }

// writable reports whether it is safe to write to p: the file is kept in the workspace, or was temporary anyway.
func writable(p string) bool {
	return mountOf(p) != "" || temporary(p) || below(p, home, "/dev", "/proc")
}

// readable reports whether the policy strict allows p to be named.
func readable(p string) bool {
	return mountOf(p) != "" || temporary(p) ||
		below(p, home, "/dev/shm", "/dev/fd", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
			"/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr")
}

// program reports whether the policy strict allows p to be run.
func program(p string) bool { return below(p, "/bin", "/usr/bin", "/usr/local/bin") || readable(p) }

// everything reports whether a walk from p covers the whole file system: from the root, or from everything in it by a pattern.
func everything(p string) bool {
	return p == "/" || path.Dir(p) == "/" && strings.ContainsAny(p, "*?")
}

// climbs reports whether a path has a .. in it.
func climbs(text string) bool {
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// like reports whether a word looks like a path at all, and not like a program's text, a pattern or
// a sentence.
func like(text string) bool {
	return (strings.HasPrefix(text, "/") || climbs(text)) && !strings.ContainsAny(text, " \t\r\n(){}|^;\"'<>\\") &&
		!strings.Contains(text, "://")
}
