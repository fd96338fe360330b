package guard

import (
	"errors"
	"io"
	"runtime"

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

// parse returns nil for what is no bash, or too much of it.
func parse(text string) (tree *syntax.File) {
	if len(text) > maxLength {
		return nil
	}
	// The parser is somebody else's and the text is anybody's. What it breaks on it has not parsed.
	defer func() {
		if recover() != nil {
			tree = nil
		}
	}()
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(&feed{rest: text}, "")
	if err != nil {
		return nil
	}
	return f
}

// feed is a text that ends with an error when its reader has called itself too often.
type feed struct{ rest string }

func (f *feed) Read(b []byte) (int, error) {
	if f.rest == "" {
		return 0, io.EOF
	}
	var beyond [1]uintptr
	if runtime.Callers(maxFrames, beyond[:]) > 0 {
		return 0, errTooDeep
	}
	n := copy(b[:min(len(b), step)], f.rest)
	f.rest = f.rest[n:]
	return n, nil
}
