package markdown

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"

	"github.com/sandjet/sandjet/delivery/channel"
)

// A packer writes blocks into parts. Callers copy it by value, and restore the copy to undo a write that did not fit. Therefore its slices
// are replaced instead of changed. Only the buffers are appended to: restoring a copy truncates these.
type packer struct {
	o     Options
	note  string
	outs  [2]out // with markup and plain; only the first if the format is plain text
	two   bool
	parts []Part
	work  *int // bytes written, including those undone

	boxes   []opened // of the last line
	block   *block   // of the last line
	inFence bool
	quoted  *box // the quote whose tag is open
	marks   []*mark
	before  rune // last rune of the line; 0: the line is empty
	broken  bool // the line began in the previous part
	blank   bool // the part contains nothing but reopened markup
	stopped bool // MaxParts is reached
}

type out struct {
	d   dialect
	buf []byte
	n   int // length of buf in Options.Unit
}

// opened is a box with the index of the part in which it began.
type opened struct {
	*box
	part int
}

func newPacker(o Options, d dialect) *packer {
	p := &packer{o: o, blank: true, work: new(int)}
	p.outs[0].d = d
	if o.Format != channel.PlainText {
		p.two = true
		p.outs[1].d = plain{mentions: o.AllowMentions}
	}
	return p
}

func (p *packer) over() bool { return p.stopped }

func (p *packer) each() []out {
	if p.two {
		return p.outs[:]
	}
	return p.outs[:1]
}

func (p *packer) write(i int, s string) {
	o := &p.outs[i]
	*p.work += len(s)
	o.buf = append(o.buf, s...)
	o.n += units(s, p.o.Unit)
}

// all writes blocks, until MaxParts is reached.
func (p *packer) all(blocks []*block) {
	for i := 0; i < len(blocks) && !p.stopped; i++ {
		b := blocks[i]
		if b.keep && i+1 < len(blocks) && p.both(b, blocks[i+1]) {
			i++
			continue
		}
		p.put(b)
	}
}

// both writes a heading and the next block into one part, if possible. If it returns false, nothing is written.
func (p *packer) both(a, b *block) bool {
	before := *p
	if p.whole(a) && p.whole(b) {
		return true
	}
	*p = before
	if p.blank {
		return false
	}
	p.flush()
	if p.stopped || p.whole(a) && p.whole(b) {
		return true
	}
	*p = before
	return false
}

// put writes a block, into several parts if necessary.
func (p *packer) put(b *block) {
	p.fit(func() bool { return p.whole(b) }, func() {
		if b.other != nil {
			p.all(b.other)
			return
		}
		for _, line := range b.lines {
			if p.stopped {
				return
			}
			p.fit(func() bool { return p.line(b, line) }, func() { p.words(b, line) }, p.flush)
		}
	}, p.flush)
}

// fit writes something as a whole, into this part or else into a new one. If it fits into neither, it is written by pieces.
func (p *packer) fit(whole func() bool, pieces, anew func()) {
	before := *p
	if whole() {
		return
	}
	*p = before
	if !p.blank {
		anew()
		if p.stopped || whole() {
			return
		}
		*p = before
		if p.room() < p.o.Limit/3 {
			anew()
		}
	}
	if !p.stopped {
		pieces()
	}
}

func (p *packer) room() int {
	least := p.limit()
	for i := range p.each() {
		least = min(least, p.limit()-p.outs[i].n-p.tail(i))
	}
	return least
}

func (p *packer) limit() int {
	if p.note == "" {
		return p.o.Limit
	}
	return p.o.Limit - units(p.note, p.o.Unit) - 2
}

// tail returns how many units of output i are needed to close the open markup.
func (p *packer) tail(i int) int {
	n := 0
	for _, m := range p.marks {
		n += units(p.outs[i].d.end(m), p.o.Unit)
	}
	if p.inFence {
		_, end, boxed := p.outs[i].d.fence(p.block)
		n += units(end, p.o.Unit)
		if boxed && end != "" {
			n += units(p.indent(i), p.o.Unit)
		}
	}
	if p.quoted != nil {
		_, _, end := p.outs[i].d.quote()
		n += units(end, p.o.Unit)
	}
	return n
}

// whole writes a block into the current part, and reports whether it fits.
func (p *packer) whole(b *block) bool {
	for _, line := range b.lines {
		if !p.line(b, line) {
			return false
		}
	}
	return true
}

// line writes a line into the current part, and reports whether it fits.
func (p *packer) line(b *block, line []token) bool {
	if !p.begin(b) {
		return false
	}
	for _, t := range line {
		if !p.token(t) {
			return false
		}
	}
	p.close(nil)
	p.blank = false
	return true
}

// words writes a line that does not fit into one part.
func (p *packer) words(b *block, line []token) {
	begun := false
	anew := func() {
		p.flush()
		if begun {
			p.broken = true
			p.begin(b)
		}
	}
	for i := 0; i < len(line) && !p.stopped; {
		end := i + 1
		for end < len(line) && line[end].space == "" {
			end++
		}
		word := line[i:end]
		p.fit(func() bool {
			if !begun && !p.begin(b) {
				return false
			}
			for _, t := range word {
				if !p.token(t) {
					return false
				}
			}
			begun = true
			return true
		}, func() {
			if !begun {
				p.beginWithRoom(b)
			}
			begun = true
			for _, t := range word {
				p.fit(func() bool { return p.token(t) }, func() { p.clusters(t, anew) }, anew)
			}
		}, anew)
		i = end
	}
	p.close(nil)
	p.broken = false
}

// beginWithRoom begins a line in a part that has room for some of its text. Otherwise the part could end with an empty quote or list item.
func (p *packer) beginWithRoom(b *block) {
	before := *p
	p.begin(b)
	if p.room() >= p.o.Limit/3 || before.blank {
		return
	}
	*p = before
	p.flush()
	p.begin(b)
}

// clusters writes a token that does not fit into one part.
func (p *packer) clusters(t token, anew func()) {
	g := graphemes.FromString(t.text)
	for g.Next() && !p.stopped {
		piece := t
		piece.text = g.Value()
		t.space = ""
		p.fit(func() bool { return p.token(piece) }, func() {
			for _, r := range piece.text {
				one := piece
				one.text = string(r)
				piece.space = ""
				p.fit(func() bool { return p.token(one) }, func() {}, anew)
			}
		}, anew)
	}
}

// token writes a token, and reports whether it fits.
func (p *packer) token(t token) bool {
	if p.stopped {
		return true
	}
	marks := effective(t.marks)
	common := 0
	for common < len(marks) && common < len(p.marks) && p.marks[common] == marks[common] {
		common++
	}
	p.close(marks[:common])
	space := t.space
	if p.before == 0 && (!p.block.code || p.broken) {
		space = ""
	}
	before := p.before
	if space != "" {
		before = ' '
	}
	for i := range p.each() {
		d := p.outs[i].d
		p.write(i, space)
		for _, m := range marks[common:] {
			p.write(i, d.open(m))
		}
		p.write(i, p.shown(d, t, marks, before, before == 0 && len(marks) == common))
	}
	p.marks = marks
	p.before, _ = utf8.DecodeLastRuneInString(t.text)
	p.blank = false
	return p.fits()
}

// shown returns the text of a token, escaped for a dialect.
func (p *packer) shown(d dialect, t token, marks []*mark, before rune, start bool) string {
	inCode := len(marks) > 0 && marks[len(marks)-1].kind == code
	switch {
	case t.kind == ready:
		return t.text
	case t.kind == auto:
		return d.auto(t.text)
	case p.block.code:
		return d.fenced(t.text)
	case inCode:
		return d.code(t.text)
	case len(t.marks) > 0 && t.marks[len(t.marks)-1].kind == code && !p.o.AllowMentions:
		return d.text(unmention(t.text), before, start)
	default:
		return d.text(t.text, before, start)
	}
}

// effective returns the marks that are not off.
func effective(marks []*mark) []*mark {
	for i, m := range marks {
		if !m.off {
			continue
		}
		kept := append([]*mark(nil), marks[:i]...)
		for _, m := range marks[i:] {
			if !m.off {
				kept = append(kept, m)
			}
		}
		return kept
	}
	return marks
}

// close closes the open marks, except the outermost ones in but.
func (p *packer) close(but []*mark) {
	if len(p.marks) == len(but) {
		return
	}
	for i := range p.each() {
		for k := len(p.marks) - 1; k >= len(but); k-- {
			p.write(i, p.outs[i].d.end(p.marks[k]))
		}
	}
	p.marks = but
}

func (p *packer) fits() bool {
	for i := range p.each() {
		if p.outs[i].n+p.tail(i) > p.limit() {
			return false
		}
	}
	return true
}

// flush ends the current part, unless it is blank.
func (p *packer) flush() {
	if p.blank {
		return
	}
	p.end()
	p.stopped = len(p.parts) >= p.o.MaxParts
}

func (p *packer) end() {
	p.close(nil)
	p.endFence()
	p.endQuote(nil)
	part := Part{Text: string(p.outs[0].buf)}
	part.Plain = part.Text
	if p.two {
		part.Plain = string(p.outs[1].buf)
	}
	if strings.TrimSpace(part.Text) != "" && strings.TrimSpace(part.Plain) != "" { // otherwise it is only an indent
		p.parts = append(slices.Clip(p.parts), part)
	}
	for i := range p.each() {
		p.outs[i].buf, p.outs[i].n = nil, 0
	}
	p.blank, p.before = true, 0
}

// finish returns the parts.
func (p *packer) finish() []Part {
	if !p.blank && !p.stopped {
		p.end()
	}
	if p.note == "" {
		return p.parts
	}
	if len(p.parts) == 0 {
		return []Part{{Text: p.note, Plain: p.note}}
	}
	last := &p.parts[len(p.parts)-1]
	last.Text += "\n\n" + p.note
	last.Plain += "\n\n" + p.note
	return p.parts
}
