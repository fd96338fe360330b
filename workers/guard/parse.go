package guard

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxLength is the longest command that is looked at, in bytes. A tree takes up to 200 times as much
	// as its text.
	maxLength = 256 << 10
	// maxFrames is how deep the parser may call itself. It has no bound of its own, and a stack that
	// outgrows the process's limit ends the process. People's commands stay below 300.
	maxFrames = 2000
	// step is how much the parser gets at a time, and so how much it can nest between two looks.
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
	parsers.Put(p) // one that panicked is not used again
	if err != nil {
		return nil
	}
	return f
}

// parsers are used again: one is several KiB. What they have parsed is not theirs any more.
var parsers = sync.Pool{ //nolint:gochecknoglobals // a pool is shared
	New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash)) },
}

// feed is a text that ends with an error when its reader has called itself too often. It is not looked before the first piece,
// of which nothing was read yet: to count calls costs as much as to parse a short command.
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
