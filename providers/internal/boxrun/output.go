package boxrun

import (
	"bytes"
	"strings"
	"sync"
)

// longestWord is how long a line of the program may be.
const longestWord = 256

// output takes one of the program's outputs apart: what the program says, and what the command prints.
type output struct {
	mark []byte // what a line of the program begins with
	take func([]byte)
	say  func(words []string)

	held  []byte // the beginning of what may be a line of the program
	ready bool   // from here on it is the command's
	ended bool   // from here on it is dropped
}

// Write takes the next bytes. What is not the program's is handed on at once, but for what may become a line of its.
func (o *output) Write(p []byte) (int, error) {
	n := len(p)
	if len(o.held) > 0 {
		p = append(o.held, p...)
		o.held = nil
	}
	for len(p) > 0 && !o.ended {
		at := bytes.IndexByte(p, o.mark[0])
		if at < 0 {
			o.print(p)
			return n, nil
		}
		o.print(p[:at])
		p = p[at:]
		whole, rest := o.line(p)
		switch {
		case rest == nil && whole == nil: // it may continue
			o.held = bytes.Clone(p)
			return n, nil
		case whole == nil:
			o.print(p[:1])
			p = p[1:]
		default:
			p = rest
			o.takeLine(whole)
		}
	}
	return n, nil
}

// line cuts a line of the program off the beginning of p. Rest alone: there is no such line; neither: it may become one.
func (o *output) line(p []byte) (whole, rest []byte) {
	if len(p) < len(o.mark) {
		if bytes.HasPrefix(o.mark, p) {
			return nil, nil
		}
		return nil, p
	}
	if !bytes.HasPrefix(p, o.mark) {
		return nil, p
	}
	if end := bytes.IndexByte(p, '\n'); end >= 0 {
		return p[len(o.mark):end], p[end+1:]
	}
	if len(p) > longestWord {
		return nil, p
	}
	return nil, nil
}

func (o *output) takeLine(line []byte) {
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case "ready":
		o.ready = true
	case "end":
		o.ended = true
	}
	o.say(words)
}

// print hands on what the command prints. What comes before the program is ready is an engine's or a shell's, and
// handed on as well: it says why there is no program.
func (o *output) print(p []byte) {
	if len(p) > 0 {
		o.take(p)
	}
}

// flush hands on what was held back, at the end of the stream.
func (o *output) flush() {
	if !o.ended {
		o.print(o.held)
	}
	o.held = nil
}

// complaint keeps the beginning of what was printed before the program was ready.
type complaint struct {
	mu   sync.Mutex
	text []byte
}

const longestComplaint = 2 << 10

func (c *complaint) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, p[:min(len(p), longestComplaint-len(c.text))]...)
}

func (c *complaint) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(c.text), "")), " ")
}
