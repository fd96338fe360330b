package markdown

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandjet/sandjet/delivery/channel"
)

// begin begins a line of a block, and reports whether it fits.
func (p *packer) begin(b *block) bool {
	if p.stopped {
		return true
	}
	p.close(nil)
	if p.block != b {
		p.endFence()
	}
	shared := 0
	for shared < len(p.boxes) && shared < len(b.in) && p.boxes[shared].box == b.in[shared] {
		shared++
	}
	boxes := p.boxes[:shared:shared]
	for _, box := range b.in[shared:] {
		boxes = append(boxes, opened{box, len(p.parts)})
	}
	inside := outermost(b.in)
	if !p.inBoxes(0, b) {
		inside = nil
	}
	p.endQuote(inside)
	for i := range p.each() {
		p.boxes = boxes[:shared]
		p.separate(i, b)
		p.boxes = boxes
		p.prefix(i, b, shared, inside)
		if i == 0 && p.two {
			p.write(i, b.first)
		}
	}
	if _, tag, _ := p.outs[0].d.quote(); tag != "" {
		p.quoted = inside
	}
	p.block, p.before = b, 0
	if b.code && !p.inFence {
		p.inFence = true
		for i := range p.each() {
			open, _, boxed := p.outs[i].d.fence(b)
			p.write(i, open)
			if boxed && open != "" {
				p.write(i, p.indent(i))
			}
		}
	}
	return p.fits()
}

// inBoxes reports whether a block is written inside its quotes and list items. In some dialects fenced code is not.
func (p *packer) inBoxes(i int, b *block) bool {
	_, _, boxed := p.outs[i].d.fence(b)
	return boxed || !b.code
}

// outermost returns the outermost quote of a block's boxes; nil if there is none.
func outermost(in []*box) *box {
	for _, b := range in {
		if b.quote {
			return b
		}
	}
	return nil
}

// separate writes the line breaks between the last line and the first line of a block.
func (p *packer) separate(i int, b *block) {
	if len(p.outs[i].buf) == 0 {
		return
	}
	p.write(i, "\n")
	if p.block != b && !b.tight {
		if p.inBoxes(i, b) && p.inBoxes(i, p.block) {
			p.write(i, strings.TrimRight(p.indent(i), " "))
		}
		p.write(i, "\n")
	}
}

// prefix writes the prefix of a line: the marks of its quotes and list items. The first shared boxes are those of the line before.
func (p *packer) prefix(i int, b *block, shared int, inside *box) {
	d := p.outs[i].d
	line, tag, _ := d.quote()
	_, _, boxed := d.fence(b)
	bare := b.code && !boxed
	alone := false
	for k, o := range p.boxes {
		switch {
		case o.quote && tag != "":
			if o.box == inside && p.quoted != inside {
				p.write(i, tag)
			}
		case o.quote:
			if !bare {
				p.write(i, line)
			}
		case k >= shared:
			p.write(i, o.marker)
			alone = bare
		case !bare && o.part == len(p.parts):
			p.write(i, spaces(o.marker))
		}
	}
	if alone {
		p.write(i, "\n")
	}
}

// indent returns the prefix of a further line in the current boxes.
func (p *packer) indent(i int) string {
	line, _, _ := p.outs[i].d.quote()
	var s strings.Builder
	for _, o := range p.boxes {
		switch {
		case o.quote:
			s.WriteString(line)
		case o.part == len(p.parts):
			s.WriteString(spaces(o.marker))
		}
	}
	return s.String()
}

func spaces(marker string) string { return strings.Repeat(" ", utf8.RuneCountInString(marker)) }

func (p *packer) endFence() {
	if !p.inFence {
		return
	}
	for i := range p.each() {
		_, end, boxed := p.outs[i].d.fence(p.block)
		if rest, found := strings.CutPrefix(end, "\n"); found && boxed {
			p.write(i, "\n")
			p.write(i, p.indent(i))
			end = rest
		}
		p.write(i, end)
	}
	p.inFence = false
}

// endQuote writes the end tag of the current quote, unless the next line is in the same quote.
func (p *packer) endQuote(next *box) {
	if p.quoted == nil || p.quoted == next {
		return
	}
	_, open, end := p.outs[0].d.quote()
	p.quoted = nil
	o := &p.outs[0]
	if rest, empty := bytes.CutSuffix(o.buf, []byte(open)); empty { // nothing was written in it: its content is in the next part
		o.buf = slices.Clone(bytes.TrimRight(rest, "\n")) // a copy, because an earlier copy of the packer may share the bytes
		o.n = units(string(o.buf), p.o.Unit)
		return
	}
	p.write(0, end)
}

// units returns the length of a text in a unit.
func units(s string, u channel.Unit) int {
	switch u {
	case channel.Bytes:
		return len(s)
	case channel.CodePoints:
		return utf8.RuneCountInString(s)
	case channel.UTF16:
	}
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}
