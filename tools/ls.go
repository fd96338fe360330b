package tools

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	defaultListed = 1000
	mostListed    = 2000
	listedBytes   = 128 << 10 // of one listing in an answer
)

// The bits of a mode that are the type of an entry, as in the kernel.
const (
	modeType      = 0xf000
	modeFile      = 0x8000
	modeDirectory = 0x4000
	modeLink      = 0xa000
)

// LSData is the structured result of ls.
type LSData struct {
	Path      string    `json:"path"`    // the folder that was listed
	Entries   []LSEntry `json:"entries"` // in byte order of their names
	Total     int64     `json:"total"`   // number of entries in the folder
	Truncated bool      `json:"truncated"`
}

// LSEntry is one entry of a folder.
type LSEntry struct {
	Path string           `json:"path"` // the name; in deepagents an absolute path
	Type schemas.FileType `json:"type"`
	Size *int64           `json:"size,omitzero"` // bytes of a file; absent for other types
	// Modified is in whole seconds. It is absent if the storage does not have it, such as for a folder in a bucket.
	Modified *time.Time `json:"modified_at,omitzero"`
}

// ls is a compiled call of ls.
type ls struct {
	place
	most  int
	empty bool // a missing folder counts as empty
}

func newLS(c schemas.Call, in schemas.LSInput) (fileTool, error) {
	p, err := newPlace(c, in.Path)
	if err != nil {
		return nil, err
	}
	return ls{place: p, most: min(max(either(in.Limit, defaultListed), 1), mostListed), empty: in.Missing == schemas.MissingEmpty}, nil
}

func (t ls) stdin() []byte { return fmt.Appendf(nil, "%s\n%d %d\n", t.name, t.most, listedBytes) }

func (t ls) present(a answer) outcome {
	data := LSData{Path: t.String(), Entries: []LSEntry{}}
	switch {
	case a.word == wordNotFound && t.empty:
	case a.word != wordOK:
		return outcome{err: failure(a.word, "directory", t.String())}
	default:
		data.Total = a.number(0)
	}
	size := 0
	for line := range bytes.Lines(a.part(0)) {
		e, whole := t.entry(line)
		if !whole { // cut off by the limit
			break
		}
		if size += len(e.Path) + 40; size > shownBytes { // 40: about the length of a line without the name
			break
		}
		data.Entries = append(data.Entries, e)
	}
	data.Truncated = int64(len(data.Entries)) < data.Total
	if len(data.Entries) == 0 && !data.Truncated {
		return outcome{text: "[the directory is empty]", data: data}
	}
	text := listing(data.Entries)
	if more := data.Total - int64(len(data.Entries)); more > 0 {
		text += fmt.Sprintf("[and %s more; use a larger limit (at most %s) or glob to find them]\n", grouped(more), grouped(mostListed))
	}
	return outcome{text: strings.TrimSuffix(text, "\n"), data: data}
}

// entry parses one line of an answer: mode, size, time and name.
func (t ls) entry(line []byte) (e LSEntry, ok bool) {
	const fields = 4
	line, ok = bytes.CutSuffix(line, []byte("\n"))
	parts := bytes.SplitN(line, []byte(" "), fields)
	if !ok || len(parts) < fields || len(parts[fields-1]) == 0 {
		return e, false
	}
	mode, err := strconv.ParseUint(string(parts[0]), 16, 32)
	if err != nil {
		return e, false
	}
	e.Path, e.Type = valid(parts[fields-1]), schemas.TypeOther
	if t.deep {
		e.Path = t.show(e.Path)
	}
	switch mode & modeType {
	case modeFile:
		e.Type = schemas.TypeFile
		if n, err := strconv.ParseInt(string(parts[1]), 10, 64); err == nil {
			e.Size = &n
		}
	case modeDirectory:
		e.Type = schemas.TypeDirectory
	case modeLink:
		e.Type = schemas.TypeLink
	}
	const years = 9999 // four digits, the most that JSON times can have
	if n, err := strconv.ParseInt(string(parts[2]), 10, 64); err == nil {
		if at := time.Unix(n, 0).UTC(); at.Year() >= 0 && at.Year() <= years {
			e.Modified = &at
		}
	}
	return e, true
}

// listing formats entries in columns, one per line.
func listing(list []LSEntry) string {
	sizes, width := make([]string, len(list)), 1
	for i, e := range list {
		sizes[i] = "-"
		if e.Size != nil {
			sizes[i] = strconv.FormatInt(*e.Size, 10)
		}
		width = max(width, len(sizes[i]))
	}
	var b strings.Builder
	for i, e := range list {
		modified := "-"
		if e.Modified != nil {
			modified = e.Modified.Format(time.RFC3339)
		}
		fmt.Fprintf(&b, "%-9s  %*s  %-20s  %s\n", e.Type, width, sizes[i], modified, e.Path)
	}
	return b.String()
}
