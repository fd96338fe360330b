// Package markdown converts a Markdown document to messages of a chat service: in the service's markup, split into parts that can each be
// read alone and do not exceed the service's limit.
//
// It has no side effects and no state, and is safe for concurrent use. Its work is linear in the document: input whose parsing would cost
// more, such as 100,000 open brackets in one paragraph, is shown as plain text.
package markdown

import (
	"github.com/sandjet/sandjet/delivery/channel"
)

// Options describe the messages for which a document is rendered.
type Options struct {
	Format channel.Format
	// Limit is the maximal length of a part, in Unit, including its markup. Values below 600 count as 600.
	Limit int
	Unit  channel.Unit
	// MaxParts is the maximal number of parts. 0: 8.
	MaxParts int
	// AllowMentions preserves mentions of people and groups. Otherwise a zero-width space after the @ prevents the service from notifying
	// them.
	AllowMentions bool
}

// Part is one message.
type Part struct {
	// Text has the markup of the requested format.
	Text string
	// Plain is the same text without markup. It does not exceed the limit either.
	Plain string
}

// Rendered is a document split into messages.
type Rendered struct {
	// Parts are in order. They are empty if the document shows nothing.
	Parts []Part
	// Cut is whether the document does not fit into the parts: they contain its beginning, and the last one ends with a line that says so.
	// The caller may send the whole document in another way, such as a file.
	Cut bool
}

const (
	leastLimit = 600
	someParts  = 8
	cutNote    = "… cut here: the whole text is too long for messages"
)

// Render converts a document, which may be any text.
//
// A part ends between blocks if possible, else between lines, words or grapheme clusters, in that order. Only a cluster longer than half a
// part is cut, between code points. Markup that is open at the end of a part (fenced code, bold text, a quote) is closed there and opened
// again in the next part. Only links to http, https, mailto and tel become links; other destinations are written as text, and so is raw
// HTML. Images become links.
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
	// Again, with room for the note.
	p = newPacker(o, d)
	p.note = cutNote
	p.all(blocks)
	return Rendered{Parts: p.finish(), Cut: true}
}
