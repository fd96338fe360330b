package tools

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

const (
	defaultHead = 1000
	mostHead    = 10_000
	grepBytes   = 64 << 10 // of the matches in one result
	// largestFile is the size of the largest file that grep searches, in bytes.
	largestFile = 32 << 20
	// cutLine is the length at which a matching line, with its number, is cut in the answer; shownLine is the length in the text for the
	// model.
	cutLine   = 4200
	shownLine = 2000
)

// GrepData is the structured result of grep: Files, Matches or Counts, depending on the mode. The other lists are empty.
type GrepData struct {
	Mode      schemas.GrepMode `json:"mode"`
	Files     []string         `json:"files"`
	Matches   []GrepMatch      `json:"matches"`
	Counts    []GrepCount      `json:"counts"`
	Truncated bool             `json:"truncated"`
	// TooLarge counts the files that were not searched because they are larger than 32 MiB.
	TooLarge int64 `json:"too_large,omitzero"`
}

// GrepMatch is one line that matches.
type GrepMatch struct {
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	Text string `json:"text"` // cut at 2,000 bytes
}

// GrepCount is the number of matching lines of a file.
type GrepCount struct {
	Path  string `json:"path"`
	Count int    `json:"count"`
}

// grep is a compiled call of grep.
type grep struct {
	place
	dialect dialect
	match   pattern
	only    *pattern // names of the files to search; nil: all
	mode    schemas.GrepMode
	numbers bool
	most    int
}

func newGrep(c schemas.Call, in schemas.GrepInput) (fileTool, error) {
	d := dialect(c.Dialect)
	p, err := newPlace(c, in.Path)
	if err != nil {
		return nil, err
	}
	t := grep{place: p, dialect: d, mode: in.OutputMode, numbers: in.LineNumbers, most: either(in.HeadLimit, defaultHead)}
	if t.mode == "" {
		t.mode = schemas.GrepFiles
	}
	if t.most <= 0 {
		t.most = defaultHead
	}
	t.most = min(t.most, mostHead)
	if either(in.Fixed, d.deep()) {
		t.match, err = newLiteral(in.Pattern, in.CaseInsensitive)
	} else {
		t.match, err = newPattern(in.Pattern, in.CaseInsensitive)
	}
	if err != nil || in.Glob == "" {
		return t, err
	}
	names, err := p.pattern(c, in.Glob)
	if err != nil {
		return nil, err
	}
	only, _, err := newGlobPattern(names, true)
	t.only = &only
	return t, err
}

func (t grep) stdin() []byte {
	only := ""
	if t.only != nil {
		only = t.only.ere
	}
	return fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%s %d %d %d %d\n", t.name, t.match.ere, t.match.rust, only, t.mode, t.most,
		grepBytes+1, largestFile, cutLine)
}

func (t grep) present(a answer) outcome {
	if a.word != wordOK {
		return outcome{err: failure(a.word, "path", t.String())}
	}
	data := GrepData{Mode: t.mode, Files: []string{}, Matches: []GrepMatch{}, Counts: []GrepCount{}, TooLarge: a.number(0)}
	part := a.part(0)
	if data.Truncated = len(part) > grepBytes; data.Truncated {
		part = part[:grepBytes]
	}
	text := t.parse(part, a.number(1) == 1, &data)
	if text == "" {
		text = "No matches found"
	}
	if data.Truncated {
		text += fmt.Sprintf("\n[truncated: showing the first %s; use a narrower pattern, path or glob]",
			plural(int64(len(data.Files)+len(data.Matches)+len(data.Counts)), "result"))
	}
	if data.TooLarge > 0 {
		text += fmt.Sprintf("\n[not searched: %s larger than %d MiB]", plural(data.TooLarge, "file"), largestFile>>20)
	}
	return outcome{text: text, data: data}
}

// parse parses the matches up to the limits, adds them to data, and returns them as text.
func (t grep) parse(part []byte, single bool, data *GrepData) string {
	show := t.show
	if single { // the call names a file rather than a folder
		show = func(string) string { return t.String() }
	}
	var lines []string
	path, shown, size := "", 0, 0
	for line := range bytes.Lines(part) {
		raw, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole { // cut off by the limit
			break
		}
		s := valid(raw)
		if name, ok := strings.CutPrefix(s, "F"); ok && t.mode == schemas.GrepContent {
			path = show(name)
			continue
		}
		number, found, _ := strings.Cut(s, ":")
		switch t.mode {
		case schemas.GrepContent:
			size += len(path) + len(s)
		case schemas.GrepCount:
			size += len(show(found))
		default:
			size += len(show(s))
		}
		// Each line may be shown with the whole path of its file.
		if shown++; shown > t.most || size > shownBytes {
			data.Truncated = true
			break
		}
		switch t.mode {
		case schemas.GrepContent:
			n, _ := strconv.Atoi(number)
			m := GrepMatch{Path: path, Line: n, Text: shorten(found)}
			if t.dialect.deep() && (len(data.Matches) == 0 || data.Matches[len(data.Matches)-1].Path != path) {
				lines = append(lines, path+":")
			}
			data.Matches = append(data.Matches, m)
			lines = append(lines, t.matched(m))
		case schemas.GrepCount:
			n, _ := strconv.Atoi(number)
			c := GrepCount{Path: show(found), Count: n}
			data.Counts = append(data.Counts, c)
			if t.dialect.deep() {
				lines = append(lines, fmt.Sprintf("%s: %d", c.Path, c.Count))
			} else {
				lines = append(lines, fmt.Sprintf("%s:%d", c.Path, c.Count))
			}
		default:
			data.Files = append(data.Files, show(s))
			lines = append(lines, show(s))
		}
	}
	return strings.Join(lines, "\n")
}

func (t grep) matched(m GrepMatch) string {
	switch {
	case t.dialect.deep():
		return fmt.Sprintf("  %d: %s", m.Line, m.Text)
	case t.numbers:
		return fmt.Sprintf("%s:%d:%s", m.Path, m.Line, m.Text)
	}
	return fmt.Sprintf("%s:%s", m.Path, m.Text)
}

// shorten cuts a long line.
func shorten(s string) string {
	if len(s) <= shownLine {
		return s
	}
	return strings.ToValidUTF8(s[:shownLine], "") + "…[cut]"
}
