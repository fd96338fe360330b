package markdown

import (
	"strings"
	"unicode"

	extast "github.com/yuin/goldmark/extension/ast"
)

const (
	// maxWidth is the maximal width of a drawn table, in terminal columns. A wider table becomes a list of its rows.
	maxWidth = 100
	// maxRepeated is the maximal size of the headers repeated in such a list, in bytes.
	maxRepeated = 256 << 10
)

// table adds a table: in the service's own markup, or drawn in fenced code, or as a list of its rows.
func (l *lowering) table(n *extast.Table, in []*box) {
	var rows [][][]token // with marks
	var drawn [][]string // as plain text
	bare := &lowering{source: l.source, d: plain{mentions: l.o.AllowMentions}, o: l.o}
	for r := n.FirstChild(); r != nil; r = r.NextSibling() {
		var row [][]token
		var cells []string
		for c := r.FirstChild(); c != nil; c = c.NextSibling() {
			row = append(row, oneLine(l.inline(c)))
			cells = append(cells, flat(oneLine(bare.inline(c))))
		}
		rows = append(rows, row)
		drawn = append(drawn, cells)
	}
	if len(drawn) == 0 || len(drawn[0]) == 0 {
		return
	}
	instead := l.drawn(rows, drawn, n.Alignments, in)
	if !l.d.tables() {
		l.blocks = append(l.blocks, instead...)
		return
	}
	b := &block{in: in, other: instead}
	for i, row := range rows {
		b.lines = append(b.lines, tableRow(row))
		if i == 0 {
			b.lines = append(b.lines, tableRule(n.Alignments))
		}
	}
	l.blocks = append(l.blocks, b)
}

// oneLine joins the lines of a cell.
func oneLine(lines [][]token) []token {
	var line []token
	for _, l := range lines {
		if len(line) > 0 && len(l) > 0 {
			l[0].space = " "
		}
		line = append(line, l...)
	}
	return line
}

// flat returns a line as plain text.
func flat(line []token) string {
	var b strings.Builder
	var open *mark
	end := func() {
		if open != nil {
			b.WriteString(plain{}.end(open))
		}
		open = nil
	}
	for _, t := range line {
		var m *mark
		for _, have := range t.marks {
			if have.kind == link {
				m = have
			}
		}
		if m != open {
			end()
		}
		if t.space != "" && b.Len() > 0 {
			b.WriteByte(' ')
		}
		open = m
		b.WriteString(t.text)
	}
	end()
	return b.String()
}

func tableRow(cells [][]token) []token {
	line := []token{{text: "|", kind: ready}}
	for _, cell := range cells {
		for i, t := range cell {
			if i == 0 {
				t.space = " "
			}
			if k := len(t.marks); k > 0 && t.marks[k-1].kind == code && !t.marks[k-1].off {
				t.text = strings.ReplaceAll(t.text, "|", `\|`)
			}
			line = append(line, t)
		}
		line = append(line, token{space: " ", text: "|", kind: ready})
	}
	return line
}

func tableRule(alignments []extast.Alignment) []token {
	line := []token{{text: "|", kind: ready}}
	for _, a := range alignments {
		dashes := " --- |"
		switch a {
		case extast.AlignLeft:
			dashes = " :-- |"
		case extast.AlignRight:
			dashes = " --: |"
		case extast.AlignCenter:
			dashes = " :-: |"
		case extast.AlignNone:
		}
		line = append(line, token{text: dashes, kind: ready})
	}
	return line
}

// drawn returns the blocks of a table for a service without tables.
func (l *lowering) drawn(rows [][][]token, cells [][]string, alignments []extast.Alignment, in []*box) []*block {
	widths := make([]int, len(alignments))
	total, header := 0, 0
	for i := range alignments {
		for _, row := range cells {
			if i < len(row) {
				widths[i] = max(widths[i], width(row[i]))
			}
		}
		total += widths[i] + 3
		header += len(cells[0][min(i, len(cells[0])-1)])
	}
	if total > maxWidth && header*len(rows) <= maxRepeated && len(rows) > 1 {
		return l.records(rows, cells[0], in)
	}
	if total > maxWidth {
		clear(widths)
	}
	b := &block{in: in, code: true}
	for i, row := range cells {
		l.codeLine(b, drawnRow(row, widths, alignments))
		if i > 0 {
			continue
		}
		rule := make([]string, len(widths))
		for k, w := range widths {
			rule[k] = strings.Repeat("─", max(w, 1))
		}
		l.codeLine(b, strings.Join(rule, "─┼─"))
	}
	return []*block{b}
}

func drawnRow(row []string, widths []int, alignments []extast.Alignment) string {
	var b strings.Builder
	for i, w := range widths {
		cell := ""
		if i < len(row) {
			cell = row[i]
		}
		gap := max(0, w-width(cell))
		left := 0
		switch alignments[i] {
		case extast.AlignRight:
			left = gap
		case extast.AlignCenter:
			left = gap / 2
		case extast.AlignLeft, extast.AlignNone:
		}
		if i > 0 {
			b.WriteString(" │ ")
		}
		b.WriteString(strings.Repeat(" ", left))
		b.WriteString(cell)
		b.WriteString(strings.Repeat(" ", gap-left))
	}
	return b.String()
}

// records returns the rows of a table as list items, in which each cell follows the name of its column.
func (l *lowering) records(rows [][][]token, header []string, in []*box) []*block {
	var blocks []*block
	for _, row := range rows[1:] {
		b := &block{in: within(in, &box{marker: l.d.bullet(false)}), tight: len(blocks) > 0}
		for i, cell := range row {
			name := ""
			if i < len(header) && header[i] != "" {
				name = header[i] + ": "
			}
			line := l.bare(name)
			for k, t := range cell {
				if k == 0 && len(line) > 0 {
					t.space = " "
				}
				line = append(line, t)
			}
			if len(line) > 0 {
				b.lines = append(b.lines, line)
			}
		}
		if len(b.lines) > 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// width returns the approximate width of a text in terminal columns.
func width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r < 0x300:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
			r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
			n += 2
		default:
			n++
		}
	}
	return n
}
