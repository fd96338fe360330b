package main

import (
	"bytes"
	"io"

	"github.com/goccy/go-yaml"
)

// yamlWriter converts each line of JSON to a YAML document. Other lines pass unchanged.
type yamlWriter struct {
	w    io.Writer
	rest []byte // the beginning of an incomplete line
	next bool   // a document was written before
}

// Write accepts any part of the lines. It returns len(p) or an error.
func (y *yamlWriter) Write(p []byte) (int, error) {
	y.rest = append(y.rest, p...)
	for {
		line, rest, whole := bytes.Cut(y.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		text, err := yaml.JSONToYAML(line)
		if err != nil {
			text = append(bytes.Clone(line), '\n')
		} else if y.next {
			text = append([]byte("---\n"), text...)
		}
		y.next, y.rest = true, rest
		if _, err := io.WriteString(y.w, printable(string(text))); err != nil {
			return 0, wrapOutput(err)
		}
	}
}
