package markdown

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
)

// A dialect is the markup of a service.
type dialect interface {
	blockWriter
	codeWriter
	markWriter
	textWriter
	// has reports whether the service supports a mark.
	has(k markKind) bool
	// tables reports whether the service supports tables.
	tables() bool
}

type blockWriter interface {
	// heading returns the prefix of a heading. "": headings are written in bold.
	heading(level int) string
	bullet(odd bool) string
	dot(odd bool) string // follows the number of a list item
	task(done bool) string
	rule() string
	// quote returns the prefix of each line of a quote, or, if line is empty, the tags that begin and end it.
	quote() (line, open, end string)
}

type codeWriter interface {
	// fence returns the beginning and the end of a fenced code block. Boxed is whether the code can be inside quotes and list items.
	fence(b *block) (open, end string, boxed bool)
	// longFences reports whether a fence may have more than three backticks, so that the code may contain three.
	longFences() bool
	fenced(s string) string
	// codeIn returns those of the marks that may enclose inline code, and the code's own mark; nil if the service cannot show the content
	// as code.
	codeIn(marks []*mark, content string) ([]*mark, *mark)
	code(s string) string
}

type markWriter interface {
	linkIn(marks []*mark, m *mark) []*mark
	marksInLinks() bool
	autoIn(marks []*mark) []*mark
	// stands reports whether the service recognizes a mark between these neighbours.
	stands(m *mark, a around) bool
	open(m *mark) string
	end(m *mark) string
}

type textWriter interface {
	// literal changes those characters of a line that the service would read as marks and that cannot be escaped.
	literal(line []token) []token
	// text returns a piece of text, escaped. Before is the rune before it, or 0; start is whether it is the beginning of its line.
	text(s string, before rune, start bool) string
	auto(url string) string
}

func dialectOf(o Options) dialect {
	switch o.Format {
	case channel.TelegramHTML:
		return telegram{}
	case channel.SlackMrkdwn:
		return slack{}
	case channel.DiscordText:
		return discord{}
	case channel.GitHubText:
		return github{}
	case channel.PlainText:
		return plain{mentions: o.AllowMentions}
	default:
		return plain{mentions: o.AllowMentions}
	}
}

// simple has the methods that are the same in dialects without lists, rules and tables of their own: it writes these with ordinary
// characters.
type simple struct{}

func (simple) heading(int) string      { return "" }
func (simple) bullet(bool) string      { return "• " }
func (simple) dot(bool) string         { return ". " }
func (simple) marksInLinks() bool      { return true }
func (slack) marksInLinks() bool       { return false }
func (simple) longFences() bool        { return true }
func (slack) longFences() bool         { return false }
func (discord) longFences() bool       { return false }
func (discord) fenced(s string) string { return s }
func (simple) rule() string            { return "———" }
func (simple) task(done bool) string {
	if done {
		return "☑"
	}
	return "☐"
}
func (simple) tables() bool                 { return false }
func (simple) literal(line []token) []token { return line }
func (simple) autoIn(marks []*mark) []*mark { return marks }
func (simple) stands(*mark, around) bool    { return true }
func (simple) linkIn(m []*mark, l *mark) []*mark {
	return append(slices.Clip(m), l)
}

// plain is the dialect of text without marks.
type plain struct {
	simple
	mentions bool
}

func (plain) has(k markKind) bool                             { return k == link }
func (plain) bullet(bool) string                              { return "- " }
func (plain) quote() (line, open, end string)                 { return "> ", "", "" }
func (plain) fence(*block) (open, end string, boxed bool)     { return "", "", true }
func (plain) codeIn(marks []*mark, _ string) ([]*mark, *mark) { return marks, &mark{kind: code} }
func (plain) open(*mark) string                               { return "" }
func (p plain) text(s string, _ rune, _ bool) string          { return s }
func (p plain) auto(url string) string                        { return url }
func (p plain) fenced(s string) string                        { return p.code(s) }
func (p plain) code(s string) string {
	if p.mentions {
		return s
	}
	return unmention(s)
}
func (plain) end(m *mark) string {
	if m.kind == link && !m.self {
		return " (" + m.url + ")"
	}
	return ""
}

// telegram is the dialect of Telegram's HTML (https://core.telegram.org/bots/api#html-style). It has a few tags; code and pre contain no
// other tags, and blockquotes cannot be nested.
type telegram struct{ simple }

func (telegram) has(markKind) bool               { return true }
func (telegram) quote() (line, open, end string) { return "", "<blockquote>", "</blockquote>" }
func (telegram) fence(b *block) (open, end string, boxed bool) {
	if b.info != "" {
		return `<pre><code class="language-` + b.info + `">`, "</code></pre>", false
	}
	return "<pre>", "</pre>", false
}

func (telegram) codeIn(marks []*mark, _ string) ([]*mark, *mark) {
	if inLink(marks) {
		return marks, nil
	}
	return nil, &mark{kind: code}
}

func (telegram) open(m *mark) string {
	if m.kind == link {
		return `<a href="` + htmlEscaped(m.url) + `">`
	}
	return "<" + telegramTag(m.kind) + ">"
}
func (telegram) end(m *mark) string { return "</" + telegramTag(m.kind) + ">" }

func telegramTag(k markKind) string {
	switch k {
	case bold:
		return "b"
	case italic:
		return "i"
	case strike:
		return "s"
	case code:
		return "code"
	default:
		return "a"
	}
}
func (telegram) text(s string, _ rune, _ bool) string { return htmlEscaped(s) }
func (telegram) code(s string) string                 { return htmlEscaped(s) }
func (telegram) fenced(s string) string               { return htmlEscaped(s) }
func (telegram) auto(url string) string               { return htmlEscaped(url) }

func htmlEscaped(s string) string {
	if !strings.ContainsAny(s, `&<>"`) {
		return s
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}

// slack is the dialect of Slack's mrkdwn (https://docs.slack.dev/messaging/formatting-message-text). Three characters are escaped, marks
// are recognized only at the edges of words, and a link is <address|text>.
type slack struct{ simple }

func (slack) has(markKind) bool               { return true }
func (slack) quote() (line, open, end string) { return "> ", "", "" }
func (slack) fence(*block) (open, end string, boxed bool) {
	return "```\n", "\n```", false
}

func (slack) codeIn(marks []*mark, content string) ([]*mark, *mark) {
	if inLink(marks) || content == "" || strings.Contains(content, "`") {
		return marks, nil
	}
	return nil, &mark{kind: code}
}

func (slack) linkIn(_ []*mark, m *mark) []*mark { return []*mark{m} }
func (slack) autoIn([]*mark) []*mark            { return nil }
func (slack) literal(line []token) []token      { return slackLiteral(line) }
func (slack) stands(m *mark, a around) bool {
	if m.kind == link {
		return true
	}
	return !wordly(a.before) && !wordly(a.after) && !a.glued && a.first != ' ' && a.last != ' '
}

func (slack) open(m *mark) string {
	if m.kind == link {
		return "<" + slackEscaped(m.url) + "|"
	}
	return slackSign(m.kind)
}

func (slack) end(m *mark) string {
	if m.kind == link {
		return ">"
	}
	return slackSign(m.kind)
}

func slackSign(k markKind) string {
	switch k {
	case bold:
		return "*"
	case italic:
		return "_"
	case strike:
		return "~"
	default:
		return "`"
	}
}

func (slack) text(s string, _ rune, start bool) string {
	if start && strings.HasPrefix(s, ">") {
		s = joiner + s // > begins a quote, even if it is escaped
	}
	return slackEscaped(s)
}
func (slack) code(s string) string   { return slackEscaped(s) }
func (slack) fenced(s string) string { return slackEscaped(s) }
func (slack) auto(url string) string { return "<" + slackEscaped(url) + ">" }

func slackEscaped(s string) string {
	if !strings.ContainsAny(s, "&<>") {
		return s
	}
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// discord is the dialect of Discord's Markdown: most of CommonMark, without entities, and with fences of exactly three backticks.
type discord struct{ simple }

func (discord) has(markKind) bool               { return true }
func (discord) heading(level int) string        { return hashes(level, 3) }
func (discord) bullet(odd bool) string          { return dashOrStar(odd) }
func (discord) quote() (line, open, end string) { return "> ", "", "" }
func (discord) fence(b *block) (open, end string, boxed bool) {
	return "```" + b.info + "\n", "\n```", false
}

func (discord) codeIn(marks []*mark, content string) ([]*mark, *mark) {
	switch {
	case content == "" || strings.Contains(content, "``") || inLink(marks) && strings.Contains(content, "`"):
		return marks, nil
	case strings.Contains(content, "`"):
		return marks, &mark{kind: code, fill: "``"}
	}
	return marks, &mark{kind: code, fill: "`"}
}
func (discord) stands(m *mark, a around) bool { return commonStands(m, a) }
func (discord) open(m *mark) string           { return commonOpen(m) }
func (discord) end(m *mark) string            { return commonEnd(m) }
func (discord) literal(line []token) []token  { return commonLiteral(line) }
func (discord) code(s string) string          { return s }
func (discord) auto(url string) string {
	return "<" + strings.NewReplacer("@everyone", "%40everyone", "@here", "%40here").Replace(url) + ">"
}

func (discord) text(s string, before rune, start bool) string {
	return commonText(s, before, start, "\\`*~|<[]", false)
}

// github is the dialect of GitHub's Markdown (https://github.github.com/gfm). Every character that could have a meaning is escaped.
type github struct{ simple }

func (github) has(markKind) bool               { return true }
func (github) heading(level int) string        { return hashes(level, 6) }
func (github) bullet(odd bool) string          { return dashOrStar(odd) }
func (github) rule() string                    { return "___" }
func (github) tables() bool                    { return true }
func (github) quote() (line, open, end string) { return "> ", "", "" }
func (github) dot(odd bool) string {
	if odd {
		return ") "
	}
	return ". "
}

func (github) task(done bool) string {
	if done {
		return "[x]"
	}
	return "[ ]"
}

func (github) fence(b *block) (open, end string, boxed bool) {
	fence := strings.Repeat("`", max(3, b.ticks+1))
	return fence + b.info + "\n", "\n" + fence, true
}

// tickRun returns the length of the longest run of backticks in a text.
func tickRun(s string) int {
	longest, run := 0, 0
	for i := range len(s) {
		if s[i] == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	return longest
}

func (github) codeIn(marks []*mark, content string) ([]*mark, *mark) {
	ticks := tickRun(content)
	if content == "" || ticks > 8 {
		return marks, nil
	}
	return marks, &mark{kind: code, fill: strings.Repeat("`", ticks+1)}
}
func (github) stands(m *mark, a around) bool { return commonStands(m, a) }
func (github) open(m *mark) string           { return commonOpen(m) }
func (github) end(m *mark) string            { return commonEnd(m) }
func (github) literal(line []token) []token  { return commonLiteral(line) }
func (github) code(s string) string          { return s }
func (github) fenced(s string) string        { return s }
func (github) auto(url string) string        { return "<" + url + ">" }
func (github) text(s string, before rune, start bool) string {
	return commonText(s, before, start, "\\`*~|<[]$", true)
}
