package tools

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

const (
	defaultLines = 2000
	mostLines    = 1_000_000
	// maxPage is the maximum number of bytes that one read returns, about 16,000 tokens.
	maxPage = 64 << 10
	// peekBytes is how much of a file is read to detect binary files.
	peekBytes = 8 << 10
	// maxBinary is the size of the largest binary file that is returned in deepagents, as base64.
	maxBinary = 96 << 10
	// countedSize is the size of a file up to which its lines are always counted.
	countedSize = 1 << 20
	// longLine is the length at which deepagents breaks lines, in characters.
	longLine = 5000
)

// ReadData is the structured result of read. Pages are contiguous: the content of a page is followed by that of the page that begins at
// its NextOffset.
type ReadData struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Encoding   string `json:"encoding"` // utf-8, or base64 (deepagents, binary files)
	Content    string `json:"content"`
	StartLine  int64  `json:"start_line"`           // number of the first line of Content, from 1; 0 if there is none
	EndLine    int64  `json:"end_line"`             // number of the last line
	TotalLines *int64 `json:"total_lines"`          // null: not counted, the file is larger than 1 MiB
	NextOffset *int64 `json:"next_offset,omitzero"` // where to continue, counted like offset; absent at the end of the file
	// NoLinesRequested is true when limit was 0 or less.
	NoLinesRequested bool   `json:"no_lines_requested,omitzero"`
	Truncated        bool   `json:"truncated,omitzero"` // the page is full, although limit was not reached
	ETag             string `json:"etag,omitzero"`      // SHA-256 in hex, for write's if_match; absent above 1 MiB
}

// read is a compiled call of read.
type read struct {
	place
	dialect dialect
	base    int64 // number that the call's dialect gives to the first line
	skip    int64 // number of lines before the page
	limit   int64 // number of lines of the page
	none    bool  // no lines were requested
}

func newRead(c schemas.Call, in schemas.ReadInput) (fileTool, error) {
	d := dialect(c.Dialect)
	p, err := newPlace(c, in.FilePath)
	if err != nil {
		return nil, err
	}
	t := read{place: p, dialect: d}
	first := 1
	if d.deep() {
		first = 0
	}
	t.base = int64(either(in.Base, first))
	t.skip = min(max(int64(either(in.Offset, 0))-t.base, 0), 1<<40)
	limit := either(in.Limit, defaultLines)
	t.none = limit <= 0
	t.limit = int64(min(max(limit, 1), mostLines))
	return t, nil
}

// peek returns how many bytes of the beginning are needed.
func (t read) peek() int64 {
	if t.dialect.deep() {
		return maxBinary
	}
	return peekBytes
}

// stdin requests one line more than is shown, to know whether there is more.
func (t read) stdin() []byte {
	return fmt.Appendf(nil, "%s\n%d %d %d %d\n", t.name, t.skip, t.limit+1, maxPage+1, t.peek())
}

func (t read) present(a answer) outcome {
	if a.word != wordOK {
		return outcome{err: failure(a.word, "file", t.String())}
	}
	size, newlines, ended := a.number(0), a.number(1), a.number(2)
	data := ReadData{Path: t.String(), Size: size, Encoding: "utf-8", ETag: a.text(0)}
	if newlines >= 0 {
		data.TotalLines = new(newlines)
		if size > 0 && ended == 0 { // the last line has no end
			*data.TotalLines++
		}
	}
	if t.none {
		data.NoLinesRequested = true
		return outcome{text: "[no lines requested]", data: data}
	}
	if t.isBinary(a.part(0)) {
		return t.binary(a.part(0), data)
	}
	if size == 0 {
		if t.dialect.deep() {
			return outcome{text: "System reminder: File exists but has empty contents", data: data}
		}
		return outcome{text: "[the file is empty]", data: data}
	}
	return t.page(a.part(1), data)
}

// page makes the text of the lines that were read.
func (t read) page(page []byte, data ReadData) outcome {
	if len(page) == 0 {
		total := either(data.TotalLines, 0)
		if t.dialect.deep() {
			return outcome{err: &schemas.Error{Code: schemas.Invalid,
				Message: fmt.Sprintf("Line offset %d exceeds file length (%d lines)", t.skip+t.base, total)}}
		}
		return outcome{err: &schemas.Error{Code: schemas.Invalid,
			Message: fmt.Sprintf("offset %d is past the end of %s (%s)", t.skip+t.base, t, plural(total, "line"))}}
	}
	page, lines, more, cut := t.fit(page)
	if data.TotalLines == nil && !more {
		data.TotalLines = new(t.skip + lines)
	}
	data.StartLine, data.EndLine = t.skip+1, t.skip+lines
	if more {
		data.NextOffset = new(t.skip + lines + t.base)
	}
	data.Truncated = more && lines < t.limit
	text := page
	if t.dialect.deep() { // deepagents normalizes line ends
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	}
	data.Content = valid(text)
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(data.Content, "\n"), "\n") {
		t.line(&b, data.StartLine+int64(i), line)
	}
	s := strings.TrimSuffix(b.String(), "\n")
	if cut {
		s += fmt.Sprintf("\n[truncated: line %d is longer than %d bytes; use bash to see all of it]", data.EndLine, maxPage)
	}
	switch {
	case data.Truncated && !cut:
		s += fmt.Sprintf("\n[truncated: the page limit is %d bytes; continue with offset %d]", maxPage, *data.NextOffset)
	case more:
		s += fmt.Sprintf("\n[more lines follow; continue with offset %d]", *data.NextOffset)
	}
	if n := schemas.InvalidBytes(page); n > 0 {
		s += fmt.Sprintf("\n[not UTF-8 in these lines: %s, shown as U+FFFD; edit keeps such bytes, write would lose them]", plural(n, "byte"))
	}
	return outcome{text: s, data: data}
}

// fit returns the complete lines that were requested and fit into a page. A first line that is too long is cut.
func (t read) fit(page []byte) (kept []byte, lines int64, more, cut bool) {
	full := len(page) > maxPage
	if full {
		page = page[:maxPage]
	}
	end := 0
	for end < len(page) && lines < t.limit {
		n := bytes.IndexByte(page[end:], '\n') + 1
		if n == 0 { // the last line has no end, because the file or the page ends there
			if full && lines > 0 {
				break
			}
			n, cut = len(page)-end, full
			if cut { // do not cut within a character
				n = schemas.WholeText(page)
			}
		}
		end += n
		lines++
	}
	return page[:end], lines, full || end < len(page), cut
}

// line writes one line in the format of cat -n.
func (t read) line(b *strings.Builder, number int64, line string) {
	if !t.dialect.deep() || utf8.RuneCountInString(line) <= longLine {
		fmt.Fprintf(b, "%6d\t%s\n", number, line)
		return
	}
	runes := []rune(line)
	for i := 0; i*longLine < len(runes); i++ {
		label := fmt.Sprint(number)
		if i > 0 {
			label = fmt.Sprintf("%d.%d", number, i)
		}
		fmt.Fprintf(b, "%6s\t%s\n", label, string(runes[i*longLine:min((i+1)*longLine, len(runes))]))
	}
}

// isBinary decides from the beginning of a file whether it is binary.
func (t read) isBinary(peek []byte) bool {
	if !t.dialect.deep() {
		return looksBinary(peek)
	}
	return hasNUL(peek) || media(t.name) && len(peek) > 0 || !isText(peek)
}

// media reports whether a name is that of a picture, sound, film or document, which deepagents returns unchanged.
func media(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".ico", ".heic", ".pdf", ".mp3", ".wav", ".ogg", ".flac", ".m4a",
		".mp4", ".mov", ".avi", ".webm", ".mkv", ".ppt", ".pptx":
		return true
	}
	return false
}

// binary makes the result for a file that is not shown as text.
func (t read) binary(content []byte, data ReadData) outcome {
	what := mediaType(content)
	size := sizeOf(data.Size)
	if !t.dialect.deep() {
		remedy := "read returns text only: inspect or convert it with bash, for example head -c 256 FILE | od -c"
		if wideText(what) {
			_, charset, _ := strings.Cut(what, "charset=")
			remedy = "read returns UTF-8 only: convert it with bash, for example iconv -f " + strings.ToUpper(charset) + " -t UTF-8 FILE"
		}
		return outcome{err: &schemas.Error{Code: schemas.Invalid, Message: fmt.Sprintf("%s is binary (%s, %s). %s", t, what, size, remedy)}}
	}
	if data.Size > maxBinary {
		return outcome{err: &schemas.Error{Code: schemas.Exhausted,
			Message: fmt.Sprintf("Binary file exceeds maximum preview size of %d bytes: %s (%s) has %d: inspect it with bash", maxBinary, t, what,
				data.Size)}}
	}
	data.Encoding, data.TotalLines = "base64", nil
	data.Content = base64.StdEncoding.EncodeToString(content)
	return outcome{text: fmt.Sprintf("[%s is returned as binary (%s, %s): its content is in the structured result as base64]", t, what, size),
		data: data}
}
