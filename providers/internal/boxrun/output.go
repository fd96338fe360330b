package boxrun

import (
	"bytes"
	"strings"
	"sync"
)

// longestWord is the maximal length of a message of the program.
const longestWord = 256

// output separates one of the program's output streams into the program's own messages and the output of the command.
type output struct {
	mark []byte // prefix of the program's messages
	take func([]byte)
	say  func(words []string)

	held  []byte // bytes that may be the beginning of a message
	ready bool   // the output that follows belongs to the command
	ended bool   // the output that follows is dropped
}

// Write processes the next bytes. It passes on the command's output at once, except for bytes that may be the beginning of a message of
// the program.
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
		case rest == nil && whole == nil: // a message that may be incomplete
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

// line splits a message of the program off the beginning of p. If p does not begin with a message, only rest is set; if it may be an
// incomplete one, both are nil.
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

// print passes on output. Output before the program is ready comes from the container engine or a shell and is passed on too: it says why
// the program did not start.
func (o *output) print(p []byte) {
	if len(p) > 0 {
		o.take(p)
	}
}

// flush passes on the bytes held back, at the end of the stream.
func (o *output) flush() {
	if !o.ended {
		o.print(o.held)
	}
	o.held = nil
}

// complaint stores the beginning of the output from before the program was ready.
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
