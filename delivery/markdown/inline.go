package markdown

import (
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

// A token is a piece of a line: a word, or a part of a word that has other marks than its neighbours or was cut because of its length. The
// space before a word belongs to its token.
type token struct {
	space string // before the token; in text one blank or nothing, in code the original
	text  string
	kind  tokenKind
	marks []*mark // enclosing marks, outermost first
}

type tokenKind uint8

const (
	word   tokenKind = iota
	ready            // written without escaping
	pieced           // a piece of a word that was cut
	auto             // the address of a link that is shown as text
)

// A mark is inline markup that encloses tokens of one line.
type mark struct {
	kind markKind
	url  string // of a link
	self bool   // a link whose text is its address
	fill string // of code: padding at both ends
	off  bool   // not written, because the service would not recognize it there
}

type markKind uint8

const (
	bold markKind = iota
	italic
	strike
	code
	link
)

// maxToken is the maximal length of a token, in bytes.
const maxToken = 256

const joiner = "\u200b" // zero-width space

type inliner struct {
	*lowering
	lines [][]token
	text  strings.Builder // collected text that is not yet split into tokens
	marks []*mark         // enclosing marks of text
}

// inline returns the lines of a paragraph.
func (l *lowering) inline(n ast.Node) [][]token { return l.inlineIn(n, false) }

// inlineIn returns the lines of a node; with strong, all of them bold.
func (l *lowering) inlineIn(n ast.Node, strong bool) [][]token {
	in := &inliner{lowering: l, lines: [][]token{nil}}
	var marks []*mark
	if strong && l.d.has(bold) {
		marks = []*mark{{kind: bold}}
	}
	in.children(n, marks)
	in.end()
	for i, line := range in.lines {
		in.lines[i] = settle(line, l.d)
	}
	return in.lines
}

func (in *inliner) children(n ast.Node, marks []*mark) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		in.node(c, marks)
	}
}

func (in *inliner) node(n ast.Node, marks []*mark) {
	switch n := n.(type) {
	case *ast.Text:
		v := string(n.Value(in.source))
		if !n.IsRaw() {
			v = unescaped(v)
		}
		in.put(v, marks)
		if n.HardLineBreak() || n.SoftLineBreak() {
			in.newline()
		}
	case *ast.String:
		in.put(string(n.Value), marks)
	case *ast.CodeSpan:
		in.code(n, marks)
	case *ast.Emphasis:
		kind := italic
		if n.Level == 2 {
			kind = bold
		}
		in.children(n, with(marks, in.d, &mark{kind: kind}))
	case *extast.Strikethrough:
		in.children(n, with(marks, in.d, &mark{kind: strike}))
	case *ast.Link:
		in.link(n, string(n.Destination), marks)
	case *ast.Image:
		in.link(n, string(n.Destination), marks)
	case *ast.AutoLink:
		in.auto(n, marks)
	case *ast.RawHTML:
		in.rawHTML(n, marks)
	case *extast.TaskCheckBox:
		in.end()
		in.add(token{text: in.d.task(n.IsChecked), kind: ready})
		in.text.WriteByte(' ')
	default:
		in.children(n, marks)
	}
}

// with returns marks extended by m, unless the service does not support m there or it is present already.
func with(marks []*mark, d dialect, m *mark) []*mark {
	if !d.has(m.kind) || inLink(marks) && !d.marksInLinks() {
		return marks
	}
	for _, have := range marks {
		if have.kind == m.kind {
			return marks
		}
	}
	return append(slices.Clip(marks), m)
}

func (in *inliner) put(s string, marks []*mark) {
	if !same(marks, in.marks) {
		in.end()
		in.marks = marks
	}
	in.text.WriteString(s)
}

func same(a, b []*mark) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// end splits the collected text into tokens of the line.
func (in *inliner) end() {
	last := len(in.lines) - 1
	in.lines[last] = in.words(in.lines[last], in.text.String(), in.marks)
	in.text.Reset()
}

func (in *inliner) newline() {
	in.end()
	in.lines = append(in.lines, nil)
}

// add adds a token to the line.
func (in *inliner) add(t token) {
	last := len(in.lines) - 1
	in.lines[last] = push(in.lines[last], t)
}

// push adds a token to a line. A token without text is a space, which becomes the space of the next token.
func push(line []token, t token) []token {
	n := len(line)
	switch {
	case n == 0 && t.text == "":
		return line
	case n > 0 && line[n-1].text == "" && t.text == "":
		return line
	case n > 0 && line[n-1].text == "":
		t.space = " "
		line[n-1] = t
		return line
	}
	return append(line, t)
}

func (in *inliner) rawHTML(n *ast.RawHTML, marks []*mark) {
	var s strings.Builder
	for i := range n.Segments.Len() {
		seg := n.Segments.At(i)
		s.Write(seg.Value(in.source))
	}
	if tag := strings.ToLower(strings.ReplaceAll(s.String(), " ", "")); tag == "<br>" || tag == "<br/>" {
		in.newline()
		return
	}
	in.put(s.String(), marks)
}

func (in *inliner) code(n *ast.CodeSpan, marks []*mark) {
	var s strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if t, ok := c.(*ast.Text); ok {
			s.Write(t.Value(in.source))
		}
	}
	in.end()
	in.marks = nil
	content := strings.TrimSpace(strings.ReplaceAll(s.String(), "\n", " "))
	outer, m := in.d.codeIn(marks, content)
	if m == nil {
		in.put(content, marks)
		return
	}
	if strings.HasPrefix(s.String(), " ") {
		in.add(token{})
	}
	path := append(slices.Clip(outer), m)
	for i, t := range in.codeWords(content) {
		t.marks = path
		if i > 0 {
			last := len(in.lines) - 1
			in.lines[last] = append(in.lines[last], t)
			continue
		}
		in.add(t)
	}
	if strings.HasSuffix(s.String(), " ") {
		in.text.WriteByte(' ')
	}
}

func (in *inliner) link(n ast.Node, destination string, marks []*mark) {
	to := unescaped(destination)
	shown := func() [2]int {
		line := in.lines[len(in.lines)-1]
		n := len(line)
		if n > 0 && line[n-1].text == "" {
			n--
		}
		return [2]int{len(in.lines), n}
	}
	in.end()
	before := shown()
	switch m := in.linkMark(to); {
	case inLink(marks):
		in.children(n, marks)
	case m == nil:
		in.children(n, marks)
		in.end()
		if to != "" {
			if shown() != before {
				to = " (" + to + ")"
			}
			in.put(to, marks)
		}
	default:
		in.children(n, in.d.linkIn(marks, m))
		in.end()
		if shown() == before {
			in.address(to, to, marks)
		}
	}
}

func inLink(marks []*mark) bool {
	for _, m := range marks {
		if m.kind == link {
			return true
		}
	}
	return false
}

// linkMark returns the mark of a link to an address; nil if the link must be written as text.
func (in *inliner) linkMark(to string) *mark {
	to = address(to)
	m := &mark{kind: link, url: to}
	if to == "" || in.o.Limit < 4*(len(in.d.open(m))+max(len(in.d.end(m)), len(plain{}.end(m)))) {
		return nil
	}
	return m
}

// address returns an address escaped so that it is valid in a link of every service; "" if links to its scheme are not allowed.
func address(to string) string {
	scheme, _, found := strings.Cut(to, ":")
	switch strings.ToLower(scheme) {
	case "http", "https", "mailto", "tel":
	default:
		return ""
	}
	if !found {
		return ""
	}
	var b strings.Builder
	for _, r := range to {
		if r <= ' ' || r == 0x7f || strings.ContainsRune("<>()[]|\"`\\^{}*~", r) || unicode.IsSpace(r) {
			for _, c := range []byte(string(r)) {
				const digits = "0123456789ABCDEF"
				b.Write([]byte{'%', digits[c>>4], digits[c&15]})
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (in *inliner) auto(n *ast.AutoLink, marks []*mark) {
	to, label := string(n.URL(in.source)), string(n.Label(in.source))
	if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(to), "mailto:") {
		to = "mailto:" + to
	}
	in.address(to, label, marks)
}

// address adds a link whose text is its address.
func (in *inliner) address(to, label string, marks []*mark) {
	m := in.linkMark(to)
	switch {
	case m == nil || inLink(marks):
		in.put(label, marks)
	case label == to && m.url == to:
		in.end()
		in.add(token{text: to, kind: auto, marks: in.d.autoIn(marks)})
	default:
		m.self = true
		in.put(label, in.d.linkIn(marks, m))
	}
}

// words splits text into tokens and adds them to line.
func (l *lowering) words(line []token, s string, marks []*mark) []token {
	if s == "" {
		return line
	}
	if !l.o.AllowMentions {
		s = unmention(s)
	}
	for len(s) > 0 {
		i := strings.IndexFunc(s, breaks)
		if i == 0 {
			line = push(line, token{})
			s = strings.TrimLeftFunc(s, breaks)
			continue
		}
		if i < 0 {
			i = len(s)
		}
		line = pieces(line, token{text: s[:i], marks: marks})
		s = s[i:]
	}
	return line
}

// breaks reports whether a line may be broken at a space character.
func breaks(r rune) bool {
	return unicode.IsSpace(r) && r != '\u00a0' && r != '\u202f' && r != '\u2007'
}

// codeWords splits a line of code into tokens and preserves the spaces between them.
func (l *lowering) codeWords(s string) []token {
	var line []token
	s = strings.TrimRight(s, " \t\n")
	for len(s) > 0 {
		rest := strings.TrimLeft(s, " \t")
		space := s[:len(s)-len(rest)]
		if len(space) > maxToken {
			space = space[:maxToken]
		}
		i := strings.IndexAny(rest, " \t")
		if i < 0 {
			i = len(rest)
		}
		line = pieces(line, token{space: space, text: rest[:i]})
		s = rest[i:]
	}
	return line
}

// pieces adds a token to line, cut between grapheme clusters if it is longer than maxToken.
func pieces(line []token, t token) []token {
	if len(t.text) <= maxToken {
		return push(line, t)
	}
	g := graphemes.FromString(t.text)
	from, to := 0, 0
	for g.Next() {
		if g.End()-from > maxToken && to > from {
			line = push(line, token{space: t.space, text: t.text[from:to], marks: t.marks})
			t.space = ""
			from = to
		}
		to = g.End()
	}
	return push(line, token{space: t.space, text: t.text[from:], marks: t.marks})
}

// unescaped returns text without backslash escapes and with entities decoded.
func unescaped(s string) string {
	if !strings.ContainsAny(s, `\&`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && isPunct(s[i+1]):
			i++
			b.WriteByte(s[i])
		case c == '&':
			end := strings.IndexByte(s[i:min(len(s), i+40)], ';')
			if end < 0 {
				b.WriteByte(c)
				continue
			}
			entity := s[i : i+end+1]
			if plain := html.UnescapeString(entity); plain != entity && !strings.HasSuffix(plain, ";") || entity == "&semi;" {
				b.WriteString(clean(plain))
				i += end
				continue
			}
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isPunct(c byte) bool {
	return c >= '!' && c <= '/' || c >= ':' && c <= '@' || c >= '[' && c <= '`' || c >= '{' && c <= '~'
}

// unmention adds a zero-width space after each @ that could mention a person.
func unmention(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	var b strings.Builder
	before := rune(0)
	for i, r := range s {
		b.WriteRune(r)
		if r == '@' {
			rest := s[i+1:]
			next, _ := utf8.DecodeRuneInString(rest)
			all := strings.HasPrefix(rest, "everyone") || strings.HasPrefix(rest, "here")
			if all || !wordly(before) && (rest == "" || wordly(next) || next == '&' || next == '!') {
				b.WriteString(joiner)
			}
		}
		before = r
	}
	return b.String()
}

func wordly(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
