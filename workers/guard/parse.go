package guard

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxLength is the maximal length of a command that is checked, in bytes. A syntax tree takes up to 200 times as much as its text.
	maxLength = 256 << 10
	// maxFrames is the maximal depth of the stack in the parser. The parser does not limit its recursion, and a stack overflow would end
	// the process. Commands that people write stay below 300.
	maxFrames = 2000
	// step is how many bytes are passed to the parser at a time, and so how much it can nest between two checks of the stack.
	step = 512
)

var errTooDeep = errors.New("nested too deeply")

// parse parses bash. It returns nil for text that is not bash, or too complex.
func parse(text string) (tree *syntax.File) {
	if len(text) > maxLength {
		return nil
	}
	// The parser is a dependency, and the text is not trusted. A text on which it panics counts as not parsed.
	defer func() {
		if recover() != nil {
			tree = nil
		}
	}()
	p, _ := parsers.Get().(*syntax.Parser)
	f, err := p.Parse(&feed{rest: text}, "")
	parsers.Put(p) // a parser that panicked is not reused
	if err != nil {
		return nil
	}
	return f
}

// parsers are reused, because each takes several KiB. A parser does not retain what it has parsed.
var parsers = sync.Pool{ //nolint:gochecknoglobals // a pool is shared
	New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash)) },
}

// feed is the input of the parser. Its Read returns errTooDeep if the parser's stack is too deep. The first read does not check, because
// nothing was parsed yet, and counting frames costs as much as parsing a short command.
type feed struct {
	rest  string
	begun bool
}

func (f *feed) Read(b []byte) (int, error) {
	if f.rest == "" {
		return 0, io.EOF
	}
	var beyond [1]uintptr
	if f.begun && runtime.Callers(maxFrames, beyond[:]) > 0 {
		return 0, errTooDeep
	}
	f.begun = true
	n := copy(b[:min(len(b), step)], f.rest)
	f.rest = f.rest[n:]
	return n, nil
}
