package main

import (
	"bytes"
	"io"

	"github.com/goccy/go-yaml"
)

// yamlWriter writes each line of JSON that comes as a document of YAML. What is no JSON passes as it is.
type yamlWriter struct {
	w    io.Writer
	rest []byte // of a line that has not ended
	next bool   // a document came before
}

// Write takes any part of the lines.
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
