package tools

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

const (
	mostPaths  = 10_000
	pathsBytes = 64 << 10 // of the paths in one result, as found
	// shownBytes limits the text of one result. It is larger than the limit of what is found, because each path or line may be shown with
	// the long path of its folder or file.
	shownBytes = 256 << 10
)

// GlobData is the structured result of glob.
type GlobData struct {
	Root      string   `json:"root"`  // the folder that was searched
	Paths     []string `json:"paths"` // in order; relative to Root unless absolute paths were requested
	Total     int64    `json:"total"` // paths that match
	Truncated bool     `json:"truncated"`
}

// glob is a compiled call of glob.
type glob struct {
	place
	match    pattern
	hidden   bool // hidden folders must be searched
	absolute bool
	dirs     bool
	order    schemas.GlobSort
}

func newGlob(c schemas.Call, in schemas.GlobInput) (fileTool, error) {
	d := dialect(c.Dialect)
	p, err := newPlace(c, in.Path)
	if err != nil {
		return nil, err
	}
	t := glob{place: p, absolute: either(in.Absolute, d.deep()), dirs: either(in.IncludeDirs, false), order: in.Sort}
	if t.order == "" {
		t.order = schemas.SortNewest
		if d.deep() {
			t.order = schemas.SortName
		}
	}
	pattern, err := p.pattern(c, in.Pattern)
	if err != nil {
		return nil, err
	}
	t.match, t.hidden, err = newGlobPattern(pattern, false)
	return t, err
}

func (t glob) stdin() []byte {
	return fmt.Appendf(nil, "%s\n%s\n%d %d %s %d %d\n", t.name, t.match.ere, number(t.hidden), number(t.dirs), t.order, mostPaths, pathsBytes)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (t glob) present(a answer) outcome {
	if a.word != wordOK {
		return outcome{err: failure(a.word, "path", t.String())}
	}
	data := GlobData{Root: t.String(), Paths: []string{}, Total: a.number(0)}
	size := 0
	for line := range bytes.Lines(a.part(0)) {
		name, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole { // cut off by the limit
			break
		}
		if len(name) == 0 {
			continue // no file has this name: the box has made it up
		}
		p := valid(name)
		if t.absolute {
			p = place{t.name, true}.show(p)
		}
		if size += len(p); size > shownBytes {
			break
		}
		data.Paths = append(data.Paths, p)
	}
	data.Truncated = int64(len(data.Paths)) < data.Total
	if len(data.Paths) == 0 {
		return outcome{text: "No files found", data: data}
	}
	text := strings.Join(data.Paths, "\n")
	if data.Truncated {
		text += fmt.Sprintf("\n[truncated: showing %d of %d paths; use a narrower pattern or path]", len(data.Paths), data.Total)
	}
	return outcome{text: text, data: data}
}
