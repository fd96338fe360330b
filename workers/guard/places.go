package guard

import (
	"path"
	"strings"
)

const (
	mounts = "/mnt/workspaces"
	// workspace stands for the call's workspace, whose real name does not matter here.
	workspace = mounts + "/this"
	// alias is the short name of the workspace in a sandbox.
	alias = "/workspace"
	// home is the home folder in a sandbox. It is writable, and preserved in a persistent sandbox.
	home = "/home/sandbox"
)

// spot is a working directory.
type spot struct {
	dir   string // absolute
	known bool
}

// resolve returns the absolute path that a word names from a working directory, as far as the text shows it; symbolic links are not
// followed. If only a part of the word is known, it returns the known folders. It returns false if the path cannot be known.
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
			p = mounts // from one workspace into another
		}
	}
	return p, v.whole || !mayReach(p)
}

// mountOf returns the name of the workspace in which a path is; empty if it is in none.
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

// writable reports whether a write to p is harmless: the file is stored in the workspace or the home folder, or is temporary anyway.
func writable(p string) bool {
	return mountOf(p) != "" || temporary(p) || below(p, home, "/dev", "/proc")
}

// readable reports whether the strict policy allows a command to name p.
func readable(p string) bool {
	return mountOf(p) != "" || temporary(p) ||
		below(p, home, "/dev/shm", "/dev/fd", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
			"/dev/tty", "/dev/stdin", "/dev/stdout", "/dev/stderr")
}

// program reports whether the strict policy allows a command to run p.
func program(p string) bool { return below(p, "/bin", "/usr/bin", "/usr/local/bin") || readable(p) }

// everything reports whether a walk from p covers the whole file system: p is the root, or a pattern that matches all folders in it.
func everything(p string) bool {
	return p == "/" || path.Dir(p) == "/" && strings.ContainsAny(p, "*?")
}

// climbs reports whether a path contains "..".
func climbs(text string) bool {
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// like reports whether a word looks like a path, and not like the text of a program, a pattern or a sentence.
func like(text string) bool {
	return (strings.HasPrefix(text, "/") || climbs(text)) && !strings.ContainsAny(text, " \t\r\n(){}|^;\"'<>\\") &&
		!strings.Contains(text, "://")
}
