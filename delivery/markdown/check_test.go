package markdown

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// readTelegram checks HTML as strictly as Telegram's parser and its rules for entities, and returns the visible text.
func readTelegram(s string) (string, error) {
	var seen strings.Builder
	var open []string
	in := func(tag string) bool {
		return slices.Contains(open, tag)
	}
	for len(s) > 0 {
		switch s[0] {
		case '&':
			i := strings.IndexByte(s, ';')
			if i < 0 || !slices.Contains([]string{"&amp;", "&lt;", "&gt;", "&quot;"}, s[:i+1]) {
				return "", fmt.Errorf("an ampersand that is no entity: %.20q", s)
			}
			seen.WriteString(html.UnescapeString(s[:i+1]))
			s = s[i+1:]
		case '<':
			i := strings.IndexByte(s, '>')
			if i < 0 {
				return "", fmt.Errorf("a tag without end: %.20q", s)
			}
			tag := s[1:i]
			s = s[i+1:]
			if name, closes := strings.CutPrefix(tag, "/"); closes {
				if len(open) == 0 || open[len(open)-1] != name {
					return "", fmt.Errorf("</%s> ends nothing: %v is open", name, open)
				}
				open = open[:len(open)-1]
				continue
			}
			name, attribute, _ := strings.Cut(tag, " ")
			switch {
			case in("code") || in("pre") && (name != "code" || !strings.HasPrefix(attribute, `class="language-`)):
				return "", fmt.Errorf("<%s> in %v", tag, open)
			case in(name):
				return "", fmt.Errorf("<%s> twice", name)
			case name == "a" && (!strings.HasPrefix(attribute, `href="`) || !strings.HasSuffix(attribute, `"`)):
				return "", fmt.Errorf("a link without address: <%s>", tag)
			case name != "a" && name != "code" && attribute != "", name == "code" && attribute != "" && !in("pre"):
				return "", fmt.Errorf("an attribute: <%s>", tag)
			case !slices.Contains([]string{"b", "i", "s", "code", "pre", "a", "blockquote"}, name):
				return "", fmt.Errorf("no tag of Telegram: <%s>", tag)
			case strings.HasPrefix(s, "</") && name != "pre" && !in("pre"):
				return "", fmt.Errorf("<%s> holds nothing", tag)
			}
			open = append(open, name)
		case '>':
			return "", fmt.Errorf("a bare >: %.20q", s)
		default:
			seen.WriteByte(s[0])
			s = s[1:]
		}
	}
	if len(open) > 0 {
		return "", fmt.Errorf("left open: %v", open)
	}
	return seen.String(), nil
}

// readSlack checks mrkdwn and returns the text, including the characters of marks.
func readSlack(s string) (string, error) {
	var seen strings.Builder
	fence := false
	for line := range strings.Lines(s) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "```") {
			if line != "```" {
				return "", fmt.Errorf("a fence within a line: %q", line)
			}
			fence = !fence
			continue
		}
		if !fence {
			line = strings.TrimLeft(line, "> •0123456789.")
		}
		rest := line
		for len(rest) > 0 {
			switch rest[0] {
			case '&':
				i := strings.IndexByte(rest, ';')
				if i < 0 || !slices.Contains([]string{"&amp;", "&lt;", "&gt;"}, rest[:i+1]) {
					return "", fmt.Errorf("an ampersand that is no entity: %.20q", rest)
				}
				seen.WriteString(html.UnescapeString(rest[:i+1]))
				rest = rest[i+1:]
			case '<':
				i := strings.IndexByte(rest, '>')
				if fence || i < 0 {
					return "", fmt.Errorf("a bare <: %q", line)
				}
				to, label, named := strings.Cut(rest[1:i], "|")
				if !strings.Contains(to, ":") || strings.ContainsAny(to[:1], "!@#") || strings.ContainsAny(rest[1:i], "<") || named && label == "" {
					return "", fmt.Errorf("no link: %q", rest[:i+1])
				}
				if !named {
					label = to
				}
				seen.WriteString(html.UnescapeString(label))
				rest = rest[i+1:]
			case '>':
				return "", fmt.Errorf("a bare >: %q", line)
			default:
				seen.WriteByte(rest[0])
				rest = rest[1:]
			}
		}
	}
	if fence {
		return "", fmt.Errorf("a fence is left open")
	}
	return seen.String(), nil
}

// readMarkdown returns the visible text of a document, with the numbers of its lists and the addresses that are not links.
func readMarkdown(source string) string {
	md := goldmark.New(goldmark.WithExtensions(extensions()...))
	src := []byte(source)
	var seen strings.Builder
	inLink := 0
	var walk func(n ast.Node)
	all := func(n ast.Node) {
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			walk(c)
		}
	}
	lines := func(n ast.Node) {
		for i := range n.Lines().Len() {
			seg := n.Lines().At(i)
			seen.Write(seg.Value(src))
		}
	}
	reference := func(n ast.Node, to string) {
		before := seen.Len()
		inLink++
		all(n)
		inLink--
		if inLink == 0 && (strings.TrimSpace(seen.String()[before:]) == "" || address(to) == "") {
			if a := address(to); a != "" {
				to = a
			}
			seen.WriteString(to)
		}
	}
	walk = func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Text:
			v := string(n.Value(src))
			if !n.IsRaw() {
				v = unescaped(v)
			}
			seen.WriteString(v)
		case *ast.String:
			seen.Write(n.Value)
		case *ast.AutoLink:
			seen.Write(n.Label(src))
		case *ast.RawHTML:
			var tag strings.Builder
			for i := range n.Segments.Len() {
				seg := n.Segments.At(i)
				tag.Write(seg.Value(src))
			}
			if t := strings.ReplaceAll(strings.ToLower(tag.String()), " ", ""); t != "<br>" && t != "<br/>" {
				seen.WriteString(tag.String())
			}
		case *ast.Link:
			reference(n, unescaped(string(n.Destination)))
		case *ast.Image:
			reference(n, unescaped(string(n.Destination)))
		case *ast.ListItem:
			if l, ok := n.Parent().(*ast.List); ok && l.IsOrdered() {
				k := l.Start
				for s := n.PreviousSibling(); s != nil; s = s.PreviousSibling() {
					k++
				}
				fmt.Fprint(&seen, k)
			}
			all(n)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			lines(n)
		case *ast.HTMLBlock:
			lines(n)
			if n.HasClosure() {
				seen.Write(n.ClosureLine.Value(src))
			}
		case *extast.TaskCheckBox:
		default:
			all(n)
		}
	}
	all(md.Parser().Parse(text.NewReader(src)))
	return seen.String()
}

// essence returns a text without the characters that renderers may add.
func essence(s, and string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || strings.ContainsRune("\u200b()•☐☑—│─┼."+and, r) {
			return -1
		}
		return r
	}, s)
}

func TestTheCheckersFindFaults(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a & b", "<b>x", "<b><i>x</b></i>", "<u>x</u>", "<code><b>x</b></code>", "<a>x</a>", "a > b", "<b></b>", "</b>",
		"<blockquote><blockquote>x</blockquote></blockquote>", "&nbsp;", "<b", "<pre><b>x</b></pre>", `<b class="x">x</b>`} {
		if _, err := readTelegram(s); err == nil {
			t.Errorf("Telegram: %q passes", s)
		}
	}
	for _, s := range []string{"a & b", "<!channel>", "<@U1>", "a > b", "```\nx", "x ```y```", "<http://x|>", "<http://x", "&quot;"} {
		if _, err := readSlack(s); err == nil {
			t.Errorf("Slack: %q passes", s)
		}
	}
}
