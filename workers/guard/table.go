package guard

// spec describes the command line of a program. Options are given as their letters.
type spec struct {
	values string // options that take a value
	data   string // of these, options whose value is text and not a path
	into   string // of these, options whose value is a path that is written to
	text   int    // how many leading operands are text and not paths; -1: all
	unless string // options that replace the leading text operands

	writes  which  // which operands are written to
	in      string // options without which no operand is written to
	walks   bool   // it walks folders recursively
	deep    string // options with which it walks folders recursively
	shallow string // options with which it does not

	words bool // options are whole words after one dash; only those of one letter are known
	// settings is whether the values of long options, and operands with an equals sign, are settings for later and not paths of this
	// command: --prefix=/usr/local.
	settings bool
}

// which says which operands are written to.
type which int

const (
	nothing which = iota
	all
	last
)

// long returns the letter of a long option, if the table uses it; otherwise 0.
func (s spec) long(name string) rune {
	switch name {
	case "target-directory":
		return 't'
	case "output", "output-document":
		if s.into == "OPo" {
			return 'O'
		}
		return 'o'
	case "directory-prefix":
		return 'P'
	case "directory":
		return 'C'
	case "extract", "get":
		return 'x'
	case "create":
		return 'c'
	case "file":
		return 'f'
	case "in-place":
		return 'i'
	case "expression", "regexp":
		return 'e'
	case "recursive":
		return 'r'
	case "message":
		return 'm'
	case "delimiter", "field-separator":
		return 'd'
	case "max-depth":
		return 'd'
	}
	return 0
}

// specOf returns the spec of a program. A program that is not listed takes paths as operands and writes nowhere.
func specOf(name string) spec {
	switch name {
	case "echo", "printf", ":", "true", "false", "test", "[", "expr", "tr", "basename", "dirname", "seq", "read", "let", "return", "exit",
		"shift", "set", "unset", "alias", "kill", "pkill", "pgrep", "sleep", "date", "hash", "type", "which", "logger", "getopts", "wait", "yes",
		"export", "declare", "local", "readonly", "typeset", "apt", "apt-get", "apk", "brew", "man", "help", "http", "ssh", "docker", "kubectl":
		return spec{text: -1}

	case "grep", "egrep", "fgrep", "zgrep":
		return spec{values: "efmABCdD", data: "emABCdD", text: 1, unless: "ef", deep: "rR"}
	case "rg", "ag", "ack":
		return spec{values: "efgtTmABCjMr", data: "egtTmABCjMr", text: 1, unless: "ef", walks: true, shallow: "d"}
	case "fd", "fdfind":
		return spec{values: "etdxXE", data: "etdxXE", text: 1, walks: true, shallow: "d"}
	case "du":
		return spec{values: "dBtX", data: "dBt", walks: true}
	case "tree":
		return spec{values: "LPIo", data: "LPI", into: "o", walks: true, shallow: "L"}
	case "ls":
		return spec{values: "IwT", data: "IwT", deep: "R"}

	case "sed":
		return spec{values: "efl", data: "el", text: 1, unless: "ef", writes: all, in: "i"}
	case "perl":
		return spec{values: "eEIF", data: "eEF", text: 1, unless: "eE", writes: all, in: "i"}
	case "awk", "gawk", "mawk":
		return spec{values: "fFv", data: "Fv", text: 1, unless: "f"}
	case "jq", "yq":
		return spec{values: "fL", text: 1, unless: "f"}
	case "python", "python2", "python3", "ruby", "php":
		return spec{values: "cmerWX", data: "cmerWX"}
	case "node":
		return spec{values: "epr", data: "ep"}
	case "psql", "mysql", "sqlite3", "redis-cli":
		return spec{values: "ceUhpPd", data: "ceUhpPd"}
	case "git":
		return spec{values: "bcCm", data: "bcm"}
	case "cut":
		return spec{values: "dfcb", data: "dfcb"}
	case "paste":
		return spec{values: "d", data: "d"}
	case "join":
		return spec{values: "toaev12", data: "toaev12"}
	case "column":
		return spec{values: "socN", data: "socN"}
	case "sort":
		return spec{values: "tkoST", data: "tkS", into: "o"}
	}
	return writerOf(name)
}

// writerOf is the part of [specOf] for programs that write.
func writerOf(name string) spec {
	switch name {
	case "tee", "rmdir", "rm", "unlink", "chmod", "chown", "chgrp":
		return spec{writes: all}
	case "mkdir", "mkfifo":
		return spec{values: "mZ", data: "mZ", writes: all}
	case "mv":
		return spec{values: "tS", data: "S", into: "t", writes: all}
	case "shred":
		return spec{values: "ns", data: "ns", writes: all}
	case "touch":
		return spec{values: "rdt", data: "dt", writes: all}
	case "truncate":
		return spec{values: "sr", data: "s", writes: all}
	case "mktemp":
		return spec{values: "p", into: "p", writes: all}
	case "patch":
		return spec{values: "piodrBFVYzD", data: "pFVYzDB", into: "od", writes: all}
	case "fallocate":
		return spec{values: "lo", data: "lo", writes: all}
	case "split":
		return spec{values: "abClnt", data: "abClnt", writes: last}
	case "cp", "ln", "install":
		return spec{values: "tmgoS", data: "mgoS", into: "t", writes: last}
	case "rsync", "scp":
		return spec{values: "eiPo", data: "ePo", writes: last}

	case "curl":
		return spec{values: "XHdoFuAbceTxmwKrEQ", data: "XHdFuAbewmrQ", into: "o"}
	case "wget":
		return spec{values: "OPoeUtTQ", data: "eUtTQ", into: "OPo"}
	case "tar":
		return spec{values: "fCTXbKHI", data: "bKHI"}
	case "unzip":
		return spec{values: "dxP", data: "xP", into: "d"}
	case "make", "gmake", "ninja":
		return spec{values: "CfIoWjl", data: "jl", text: -1}
	case "configure", "meson":
		return spec{text: -1, settings: true}
	case "cmake":
		return spec{values: "BSGDATPE", data: "GDAT", into: "B", settings: true}
	case "gcc", "g++", "cc", "c++", "clang", "clang++", "ld", "go", "rustc":
		return spec{values: "o", into: "o", words: true}
	}
	return spec{}
}
