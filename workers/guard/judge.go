package guard

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// write judges a path that a command would write to.
func (w *walker) write(v value) {
	if p, ok := w.at.resolve(v); ok && !writable(p) && v.text != "" {
		w.refuse(Write, fmt.Sprintf("it would write to %s, outside the workspace, where nothing is kept", w.named(v, p)),
			"Write below the workspace by a relative path, or what need not stay to /tmp")
	}
}

// read judges a path that is named in any other way, under the policy strict.
func (w *walker) read(v value) {
	if !w.strict() || !like(v.text) {
		return
	}
	p, ok := w.at.resolve(v)
	switch {
	case !ok || readable(p):
	case v.text[0] == '/':
		w.refuse(Absolute, shown(v.text)+" is outside the workspace", "Use paths relative to the workspace, or /tmp")
	default:
		w.refuse(Traversal, shown(v.text)+" leaves the workspace", "Use paths below the workspace")
	}
}

// scan judges the folder at which a walk over files starts.
func (w *walker) scan(command string, v value) {
	if p, ok := w.at.resolve(v); ok && v.whole && everything(p) {
		w.refuse(Scan, command+" would walk over the whole filesystem", "Search in the workspace: begin at . or at one of its folders")
	}
}

// named returns a path as written, with the place that it leads to if that is not obvious.
func (w *walker) named(v value, p string) string {
	text := v.text
	if !v.whole {
		text += "…"
	}
	if text = shown(text); strings.HasPrefix(text, "/") || below(p, workspace) || p == mounts || p == "/mnt" {
		return text
	}
	return fmt.Sprintf("%s (%s)", text, shown(p))
}

// run judges the name of a program.
func (w *walker) run(v value) {
	if strings.Contains(v.text, "/") && w.strict() {
		if p, ok := w.at.resolve(v); ok && !program(p) {
			w.read(v)
		}
	}
	if len(w.runtimes) == 0 {
		return
	}
	name := path.Base(v.text)
	if r := runtimeOf(name); r != "" && !slices.Contains(w.runtimes, r) {
		w.refuse(Runtime, fmt.Sprintf("%s needs the runtime %s, which this sandbox does not offer", shown(name), r),
			"Use what it offers: "+shown(strings.Join(w.runtimes, ", "))+", bash and the usual programs")
	}
}

// runtimeOf returns the runtime that a program belongs to, empty for others.
func runtimeOf(name string) string {
	switch name {
	case "node", "nodejs", "npm", "npx", "yarn", "pnpm":
		return "node"
	}
	if version := strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(name, "python"), "pip"), "0123456789."); version == "" &&
		name != "" && name[0] == 'p' {
		return "python"
	}
	return ""
}

// push saves a working directory for popd. Stacks are shared with subshells, so they are copied rather than changed.
func (w *walker) push(s spot) {
	const most = 100
	if len(w.stack) >= most {
		w.stack = nil
	}
	w.stack = append(slices.Clone(w.stack), s)
}

// move judges a change of the working directory and applies it.
func (w *walker) move(name string, args []value) {
	for len(args) > 0 && len(args[0].text) > 1 && args[0].text[0] == '-' && args[0].whole { // -P, -L, --
		args = args[1:]
	}
	from, to := w.at, spot{}
	switch {
	case name == "popd":
		if n := len(w.stack); n > 0 && len(args) == 0 {
			to, w.stack = w.stack[n-1], slices.Clone(w.stack[:n-1])
		} else {
			w.stack = nil
		}
	case len(args) == 0: // the home folder, or the top of the stack
	case args[0].whole && args[0].text == "-":
		to = w.old
	case args[0].whole && name == "pushd" && strings.HasPrefix(args[0].text, "+"):
	default:
		p, ok := w.at.resolve(args[0])
		if w.strict() && ok && !readable(p) {
			w.refuse(Leave, fmt.Sprintf("%s %s leaves the workspace", name, shown(args[0].text)),
				"Stay in the workspace: commands begin in its root")
			return
		}
		if ok && args[0].whole && len(p) <= schemas.MaxPath { // the kernel refuses longer paths
			to = spot{dir: p, known: true}
		}
		if name == "pushd" {
			w.push(from)
		}
	}
	w.at, w.old = to, from
}
