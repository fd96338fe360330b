package guard

import (
	"path"
	"strings"
)

// command judges a simple command: first the wrappers around it, such as sudo, then the command itself. Stdin returns the text on its
// standard input, if that is known.
func (w *walker) command(args []value, stdin func() (string, bool)) {
	for w.refusal == nil && len(args) > 0 {
		name := args[0]
		if !name.whole || name.text == "" {
			break // the program is unknown; its arguments are still judged
		}
		if moves, declared := w.moves[name.text]; declared {
			if moves {
				w.lose()
			}
			break
		}
		w.run(name)
		rest, wraps := unwrap(path.Base(name.text), args[1:])
		if !wraps {
			break
		}
		for _, a := range args[1 : len(args)-len(rest)] {
			w.read(a)
		}
		args = rest
	}
	if w.refusal != nil || len(args) == 0 {
		return
	}
	name, args := path.Base(args[0].text), args[1:]
	if _, declared := w.moves[name]; declared {
		name = ""
	}
	switch name {
	case "cd", "pushd", "popd":
		w.move(name, args)
	case "eval":
		w.script(joined(args))
	case "trap":
		if len(args) > 0 && args[0].whole {
			defer w.isolate()()
			w.script(args[0].text)
		}
	case "bash", "sh", "dash", "zsh", "ksh", "ash":
		w.shell(args, stdin)
	case "watch":
		o := parseOptions(spec{values: "n"}, args)
		defer w.isolate()()
		w.script(joined(o.operands))
	case "find":
		w.find(args)
	case "openssl":
		w.openssl(args)
	case "dd":
		for _, a := range args {
			if target, ok := strings.CutPrefix(a.text, "of="); ok {
				w.write(value{target, a.whole})
			} else if source, ok := strings.CutPrefix(a.text, "if="); ok {
				w.read(value{source, a.whole})
			}
		}
	default:
		w.plain(name, args)
	}
}

// openssl judges the files of an openssl command. Its options are whole words, whose values are mostly text and not paths, such as the
// subject /CN=localhost.
func (w *walker) openssl(args []value) {
	for i := 0; i+1 < len(args); i++ {
		switch args[i].text {
		case "-out", "-keyout", "-outdir", "-writerand":
			w.write(args[i+1])
		case "-in", "-inkey", "-key", "-cert", "-CA", "-CAkey", "-CAfile", "-CApath", "-certfile", "-config", "-extfile", "-kfile",
			"-rand", "-signature", "-verify":
			w.read(args[i+1])
		}
	}
}

// joined returns the words joined by spaces, as a script; empty if one of them is unknown.
func joined(args []value) string {
	words := make([]string, 0, len(args))
	for _, a := range args {
		if !a.whole {
			return ""
		}
		words = append(words, a.text)
	}
	return strings.Join(words, " ")
}

// shell judges the script that a shell is given with -c or on its standard input.
func (w *walker) shell(args []value, stdin func() (string, bool)) {
	defer w.isolate()()
	for i, a := range args {
		switch {
		case len(a.text) < 2 || a.text[0] != '-' && a.text[0] != '+':
			w.read(a) // the file of a script
			return
		case a.text[1] != '-' && strings.Contains(a.text, "c"):
			if i+1 < len(args) && args[i+1].whole {
				w.script(args[i+1].text)
			}
			return
		}
	}
	if text, ok := stdin(); ok {
		w.script(text)
	}
}

// find judges the start folders of a find command and its actions.
func (w *walker) find(args []value) {
	var roots []value
	i := 0
	for ; i < len(args) && args[i].whole && (args[i].text == "-H" || args[i].text == "-L" || args[i].text == "-P"); i++ {
	}
	for ; i < len(args) && (args[i].text == "" || !strings.ContainsAny(args[i].text[:1], "-(!")); i++ {
		roots = append(roots, args[i])
	}
	if len(roots) == 0 {
		roots = []value{{".", true}}
	}
	tests := args[i:]
	deletes, shallow := false, false
	for i := 0; i < len(tests); i++ {
		next := value{whole: true}
		if i+1 < len(tests) {
			next = tests[i+1]
		}
		switch tests[i].text {
		case "-delete":
			deletes = true
		case "-maxdepth":
			shallow = true
		case "-exec", "-execdir", "-ok", "-okdir":
			end := until(tests, i+1)
			w.within(tests[i+1 : end])
			i = end
		case "-fprint", "-fprint0", "-fls", "-fprintf":
			w.write(next)
		case "-newer", "-anewer", "-cnewer", "-samefile":
			w.read(next)
		}
	}
	for _, r := range roots {
		if !shallow {
			w.scan("find", r)
		}
		if deletes {
			w.write(r)
		}
		w.read(r)
	}
}

// within judges a command that another command runs.
func (w *walker) within(args []value) {
	if w.nested > maxNested {
		return
	}
	w.nested++
	defer w.isolate()()
	w.command(args, func() (string, bool) { return "", false })
	w.nested--
}

// until returns the index of the end of an -exec command that begins at i.
func until(args []value, i int) int {
	for ; i < len(args); i++ {
		if args[i].text == ";" || args[i].text == "+" {
			return i
		}
	}
	return len(args)
}

// plain judges any other command, as described by [specOf].
func (w *walker) plain(name string, args []value) {
	s := specOf(name)
	if name == "tar" && len(args) > 0 && !strings.HasPrefix(args[0].text, "-") { // tar xzf: the traditional form without a dash
		args = append([]value{{"-" + args[0].text, args[0].whole}}, args[1:]...)
	}
	o := parseOptions(s, args)
	text := s.text
	if o.has(s.unless) {
		text = 0
	}
	files := o.operands
	if text < 0 {
		files = nil
	} else {
		files = files[min(text, len(files)):]
	}
	if s.walks && !o.has(s.shallow) || o.has(s.deep) {
		if len(files) == 0 {
			w.scan(name, value{".", true})
		}
		for _, f := range files {
			w.scan(name, f)
		}
	}
	switch {
	case name == "tar":
		s.into = tarWrites(o)
	case name == "install" && o.has("d"): // it creates folders
		s.writes = all
	}
	for _, opt := range o.options {
		switch {
		case opt.name != 0 && strings.ContainsRune(s.into, opt.name):
			w.write(opt.value)
		case opt.name == 0 || !strings.ContainsRune(s.data, opt.name):
			w.read(opt.value)
		}
	}
	targets := files
	switch {
	case s.writes == nothing, s.in != "" && !o.has(s.in):
		targets = nil
	case s.writes == last:
		targets = files[min(1, len(files)):] // a single one is a source
		targets = targets[max(0, len(targets)-1):]
		if o.has(s.into) {
			targets = nil
		}
	}
	if name == "git" {
		targets = gitWrites(files)
	}
	for _, t := range targets {
		w.write(t)
	}
	for _, f := range files {
		if _, after, ok := strings.Cut(f.text, "="); ok && !like(f.text) {
			f.text = after
		}
		w.read(f)
	}
}

// tarWrites returns the options of a tar command whose values are paths that it writes to.
func tarWrites(o options) string {
	switch {
	case o.has("x"):
		return "C"
	case o.has("cru"):
		return "f"
	}
	return ""
}

// gitWrites returns those of a git command's operands that are folders it creates. The operands include the values of long options, so the
// operand before the folder of a clone must look like the address of a repository.
func gitWrites(operands []value) []value {
	if len(operands) == 0 {
		return nil
	}
	command, rest := operands[0].text, operands[1:]
	n := len(rest)
	switch {
	case command == "init":
		return rest
	case command == "clone" && n > 1 && strings.ContainsAny(rest[n-2].text, "/:"):
		return rest[n-1:]
	case command == "worktree" && n > 1 && rest[0].text == "add":
		return rest[1:2]
	}
	return nil
}
