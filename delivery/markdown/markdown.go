// Package markdown writes a Markdown document as messages of a chat service: in the service's own format, in parts that each stand alone
// and are no longer than the service takes.
//
// It is pure, keeps nothing, and may be called from any number of goroutines. Its work is linear in the document: what would cost more,
// such as a hundred thousand open brackets in one paragraph, is not read as Markdown but shown as it stands.
package markdown

import (
	"github.com/sandjet/sandjet/delivery/channel"
)

// Options say for which service a document is written.
type Options struct {
	Format channel.Format
	// Limit is how long a part may be, in Unit, its marks included. Less than 600 counts as 600.
	Limit int
	Unit  channel.Unit
	// MaxParts is how many parts there may be. 0: 8.
	MaxParts int
	// AllowMentions leaves mentions of people and groups as they are. Else a zero-width space behind the @ keeps the service from notifying
	// them.
	AllowMentions bool
}

// Part is one message.
type Part struct {
	// Text is written in the format asked for.
	Text string
	// Plain is the same without any marks. It is no longer than the limit either.
	Plain string
}

// Rendered is a document as messages.
type Rendered struct {
	// Parts are in their order. There is none where the document shows nothing.
	Parts []Part
	// Cut is whether the document is longer than the parts that it may have: they hold its beginning, and the last ends with a line that
	// says so. The whole goes another way, such as a file.
	Cut bool
}

const (
	leastLimit = 600
	someParts  = 8
	cutNote    = "… cut here: the whole text is too long for messages"
)

// Render writes a document, which may hold anything.
//
// Parts end between blocks if they can, else between lines, words or grapheme clusters, in that order. Only a cluster longer than half a
// part is cut, between code points. What is open at the end of a part (a fence, bold text, a quote) is closed there and opened again in the
// next. Links go to http, https, mailto and tel; other destinations are written out, and so is raw HTML. Images become links.
func Render(document string, o Options) Rendered {
	o.Limit = max(o.Limit, leastLimit)
	if o.MaxParts <= 0 {
		o.MaxParts = someParts
	}
	source, cut := bounded(clean(document), 2*o.MaxParts*o.Limit+64<<10)
	d := dialectOf(o)
	blocks := parse(source, d, o)
	p := newPacker(o, d)
	p.all(blocks)
	if !cut && !p.over() {
		return Rendered{Parts: p.finish()}
	}
	// Once more, with room for the note.
	p = newPacker(o, d)
	p.note = cutNote
	p.all(blocks)
	return Rendered{Parts: p.finish(), Cut: true}
}
