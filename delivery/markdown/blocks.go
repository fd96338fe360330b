package markdown

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// A block is a paragraph, a heading, a fenced code block or a table: text between blank lines, or a block of a tight list.
type block struct {
	in    []*box // enclosing quotes and list items, outermost first
	lines [][]token
	code  bool     // fenced code
	info  string   // language of the fenced code
	ticks int      // length of the longest run of backticks in the code
	first string   // prefix of each line, repeated in each part: the mark of a heading
	tight bool     // no blank line precedes it
	keep  bool     // kept in one part with the next block: a heading
	other []*block // replacement if it does not fit into a part
}

// A box is a quote or a list item.
type box struct {
	quote  bool
	marker string // of an item: "1. "
	odd    bool   // of an item: its list directly follows another list, and is written with other markers
}

// maxBoxes is the maximal nesting of quotes and lists. Deeper blocks are written at this level.
const maxBoxes = 8

// maxInfo is the maximal length of a fenced code block's language, in bytes.
const maxInfo = 32

type lowering struct {
	source []byte
	d      dialect
	o      Options
	blocks []*block
}

// parse returns the blocks of a document. A document that cannot be parsed in linear time is returned as lines of plain text.
func parse(source string, d dialect, o Options) []*block {
	l := &lowering{source: []byte(source), d: d, o: o}
	if !tame(source) {
		for line := range strings.Lines(source) {
			b := &block{tight: true, lines: [][]token{l.bare(line)}}
			if len(b.lines[0]) > 0 {
				l.blocks = append(l.blocks, b)
			}
		}
		return l.blocks
	}
	md := goldmark.New(goldmark.WithExtensions(extensions()...))
	l.children(md.Parser().Parse(text.NewReader(l.source)), nil, false)
	return l.blocks
}

// emails matches email addresses in text as GitHub does (GFM, extended autolinks). Unlike goldmark's own pattern, it matches no asterisk.
var emails = regexp.MustCompile(`^[A-Za-z0-9.+_-]+@[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+`)

// extensions returns the parser's extensions to CommonMark.
func extensions() []goldmark.Extender {
	return []goldmark.Extender{
		extension.Table, extension.Strikethrough, extension.TaskList, extension.NewLinkify(extension.WithLinkifyEmailRegexp(emails)),
	}
}

// children adds the blocks of a node's children.
func (l *lowering) children(n ast.Node, in []*box, tight bool) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		l.node(c, in, tight)
	}
}

func (l *lowering) node(n ast.Node, in []*box, tight bool) {
	switch n := n.(type) {
	case *ast.Heading:
		l.heading(n, in)
	case *ast.Paragraph, *ast.TextBlock:
		l.add(&block{in: in, lines: l.inline(n), tight: tight})
	case *ast.Blockquote:
		l.children(n, within(in, &box{quote: true}), false)
	case *ast.List:
		l.list(n, in, tight)
	case *ast.FencedCodeBlock:
		l.fence(n, language(string(n.Language(l.source))), in, tight)
	case *ast.CodeBlock:
		l.fence(n, "", in, tight)
	case *ast.HTMLBlock:
		l.html(n, in, tight)
	case *ast.ThematicBreak:
		l.add(&block{in: in, lines: [][]token{{{text: l.d.rule(), kind: ready}}}})
	case *extast.Table:
		l.table(n, in)
	default:
		if n.Type() == ast.TypeBlock {
			l.children(n, in, tight)
		}
	}
}

// within returns in extended by a box; in itself if it has maxBoxes already.
func within(in []*box, b *box) []*box {
	if len(in) >= maxBoxes {
		return in
	}
	return append(slices.Clip(in), b)
}

func (l *lowering) add(b *block) {
	for _, line := range b.lines {
		for _, t := range line {
			if strings.Trim(t.text, joiner+"\u00a0\u3000") != "" {
				l.blocks = append(l.blocks, b)
				return
			}
		}
	}
	// A block without visible text is left out, except an empty list item.
	if len(b.in) > 0 && !b.in[len(b.in)-1].quote && !b.code {
		b.lines = [][]token{nil}
		l.blocks = append(l.blocks, b)
	}
}

func (l *lowering) heading(n *ast.Heading, in []*box) {
	mark := l.d.heading(n.Level)
	var line []token
	for i, part := range l.inlineIn(n, mark == "") {
		if i > 0 && len(part) > 0 && len(line) > 0 {
			part[0].space = " "
		}
		line = append(line, part...)
	}
	if len(line) == 0 {
		return
	}
	l.add(&block{in: in, lines: [][]token{line}, first: mark, keep: true})
}

func (l *lowering) list(n *ast.List, in []*box, tight bool) {
	odd := l.besideList(in)
	number := n.Start
	first := true
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		marker := l.d.bullet(odd)
		if n.IsOrdered() {
			marker = strconv.Itoa(number) + l.d.dot(odd)
			number++
		}
		item := &box{marker: marker, odd: odd}
		path := within(in, item)
		before := len(l.blocks)
		l.children(c, path, n.IsTight)
		if len(l.blocks) == before {
			l.add(&block{in: path})
		}
		if len(l.blocks) == before {
			continue
		}
		begins := l.blocks[before]
		begins.tight = n.IsTight
		if first {
			// A list may follow a paragraph without a blank line only if its first line cannot be read as a part of the paragraph.
			empty := len(begins.lines[0]) == 0 && !begins.code
			begins.tight = tight && !empty && (!n.IsOrdered() || n.Start == 1) && !odd
		}
		first = false
	}
}

// bare returns the tokens of a line of text without marks.
func (l *lowering) bare(s string) []token { return settle(l.words(nil, s, nil), l.d) }

// besideList reports whether a list that begins now directly follows another one. Only their markers distinguish them.
func (l *lowering) besideList(in []*box) bool {
	if len(l.blocks) == 0 {
		return false
	}
	last := l.blocks[len(l.blocks)-1].in
	if len(last) <= len(in) || last[len(in)].quote || last[len(in)].odd {
		return false
	}
	for i, b := range in {
		if last[i] != b {
			return false
		}
	}
	return true
}

// language returns the beginning of a fence's info string that every service accepts as a language.
func language(info string) string {
	var b strings.Builder
	for _, r := range info {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("+-_.#", r)
		if !ok || b.Len() == maxInfo {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (l *lowering) fence(n ast.Node, info string, in []*box, tight bool) {
	b := &block{in: in, code: true, info: info, tight: tight}
	for i := range n.Lines().Len() {
		seg := n.Lines().At(i)
		l.codeLine(b, string(seg.Value(l.source)))
	}
	l.add(b)
}

// maxTicks is the maximal length of a run of backticks in fenced code, because the fence must be longer.
const maxTicks = 32

// codeLine adds a line of code to a block. Runs of backticks that would end the fence are broken by zero-width spaces.
func (l *lowering) codeLine(b *block, s string) {
	if !l.d.longFences() {
		s = strings.ReplaceAll(s, "``", "`"+joiner+"`")
	}
	for tickRun(s) > maxTicks {
		long := strings.Repeat("`", maxTicks)
		s = strings.ReplaceAll(s, long, long[1:]+joiner+"`"+joiner)
	}
	b.ticks = max(b.ticks, tickRun(s))
	b.lines = append(b.lines, l.codeWords(s))
}

func (l *lowering) html(n *ast.HTMLBlock, in []*box, tight bool) {
	b := &block{in: in, tight: tight}
	line := func(s []byte) {
		if words := l.bare(string(s)); len(words) > 0 {
			b.lines = append(b.lines, words)
		}
	}
	for i := range n.Lines().Len() {
		seg := n.Lines().At(i)
		line(seg.Value(l.source))
	}
	if n.HasClosure() {
		line(n.ClosureLine.Value(l.source))
	}
	l.add(b)
}
