package guard

import "strings"

// option is an option of a command, with its value if it has one. The name is 0 for long options that the table does not know.
type option struct {
	name  rune
	value value
}

type options struct {
	options  []option
	operands []value
}

// has reports whether one of the options was given.
func (o options) has(names string) bool {
	for _, opt := range o.options {
		if opt.name != 0 && strings.ContainsRune(names, opt.name) {
			return true
		}
	}
	return false
}

// parseOptions parses a command line as getopt does, including options after operands.
func parseOptions(s spec, args []value) (o options) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		next := func() value {
			if i+1 >= len(args) {
				return value{whole: true}
			}
			i++
			return args[i]
		}
		switch {
		case a.text == "--" && a.whole:
			o.operands = append(o.operands, args[i+1:]...)
			return o
		case strings.HasPrefix(a.text, "--"):
			name, val, joined := strings.Cut(a.text[2:], "=")
			opt := option{name: s.long(name), value: value{val, a.whole}}
			if s.settings || patterns(name) { // the value is not a path that is read or written
				if opt.value = (value{whole: true}); !joined && patterns(name) {
					next()
				}
			}
			if !joined && opt.name != 0 && a.whole && strings.ContainsRune(s.values, opt.name) {
				opt.value = next()
			}
			o.options = append(o.options, opt)
		case len(a.text) > 1 && a.text[0] == '-' && s.words:
			o.options = append(o.options, s.word(a, next))
		case len(a.text) > 1 && a.text[0] == '-':
			for j, name := range a.text[1:] {
				opt := option{name: name, value: value{whole: true}}
				takes := strings.ContainsRune(s.values, name)
				if takes {
					if opt.value = (value{a.text[1+j+len(string(name)):], a.whole}); opt.value.text == "" && a.whole {
						opt.value = next()
					}
				}
				if o.options = append(o.options, opt); takes {
					break
				}
			}
		default:
			o.operands = append(o.operands, a)
		}
	}
	return o
}

// word parses an option of a program whose options are whole words after one dash. Only one-letter options have a name here.
func (s spec) word(a value, next func() value) option {
	opt := option{value: value{whole: true}}
	if len(a.text) == 2 {
		opt.name = rune(a.text[1])
	}
	if opt.name != 0 && a.whole && strings.ContainsRune(s.values, opt.name) {
		opt.value = next()
	}
	return opt
}

// patterns reports whether the value of a long option is a pattern for names, whatever the program is.
func patterns(name string) bool {
	switch name {
	case "exclude", "exclude-dir", "include", "include-dir":
		return true
	}
	return false
}

// unwrap removes a command that only runs another one, such as sudo. rest begins with that other command, and is empty if there is none.
func unwrap(name string, args []value) (rest []value, wraps bool) {
	values, operands := "", 0 // options with a value; operands before the command
	switch name {
	case "sudo":
		values = "CDghpRrTtUu"
	case "doas":
		values = "Cu"
	case "env":
		values = "uC"
	case "time":
		values = "fo"
	case "nice":
		values = "n"
	case "ionice":
		values = "cn"
	case "timeout":
		values, operands = "ks", 1
	case "flock":
		values, operands = "wE", 1
	case "stdbuf":
		values = "ioe"
	case "exec":
		values = "a"
	case "xargs":
		values = "IiLnPsdEa"
	case "nohup", "setsid", "command", "builtin", "busybox", "unbuffer", "chronic":
	default:
		return args, false
	}
	for len(args) > 0 {
		a := args[0]
		switch {
		case name == "command" && (a.text == "-v" || a.text == "-V"):
			return nil, true // it runs nothing
		case a.text == "--" && a.whole:
			return args[min(1+operands, len(args)):], true
		case len(a.text) > 1 && a.text[0] == '-':
			args = args[1:]
			if len(a.text) == 2 && strings.Contains(values, a.text[1:]) && len(args) > 0 {
				args = args[1:]
			}
		case (name == "env" || name == "sudo") && strings.Contains(a.text, "="):
			args = args[1:]
		default:
			return args[min(operands, len(args)):], true
		}
	}
	return nil, true
}
