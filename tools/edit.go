package tools

import (
	"fmt"
	"math"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// EditData is the structured result of edit.
type EditData struct {
	Path         string `json:"path"`
	Replacements int64  `json:"replacements"`
	Bytes        int64  `json:"bytes"` // size of the edited file
	ETag         string `json:"etag"`
}

// edit is a compiled call of edit.
type edit struct {
	place
	dialect dialect
	all     bool
	pairs   []pair // the first whose old text occurs is applied
}

// pair is a text and its replacement, both literal.
type pair struct{ old, new string }

func newEdit(c schemas.Call, in schemas.EditInput) (fileTool, error) {
	d := dialect(c.Dialect)
	p, err := newPlace(c, in.FilePath)
	if err != nil {
		return nil, err
	}
	switch {
	case in.OldString == "":
		return nil, schemas.Errorf(schemas.Invalid, "old_string is empty: use write to create or replace a file")
	case in.OldString == in.NewString && !either(in.AllowNoop, d.deep()):
		return nil, schemas.Errorf(schemas.Invalid, "old_string and new_string are identical: nothing to change")
	}
	t := edit{place: p, dialect: d, all: in.ReplaceAll, pairs: []pair{{in.OldString, in.NewString}}}
	if d.deep() { // in deepagents a text also matches with other line ends
		lf := strings.NewReplacer("\r\n", "\n")
		crlf := strings.NewReplacer("\r\n", "\r\n", "\n", "\r\n")
		for _, r := range []*strings.Replacer{crlf, lf} {
			if old := r.Replace(in.OldString); old != in.OldString {
				t.pairs = append(t.pairs, pair{old, r.Replace(in.NewString)})
			}
		}
	}
	return t, nil
}

func (t edit) stdin() []byte {
	all := 0
	if t.all {
		all = 1
	}
	b := fmt.Appendf(nil, "%s\n%d %d %d %d\n", t.name, all, schemas.MaxEdit, schemas.MaxEdited, len(t.pairs))
	for _, p := range t.pairs {
		b = appendBase64(appendBase64(b, p.old), p.new)
	}
	return b
}

// grown returns the size of a text after n replacements; [math.MaxInt64] on overflow. It is computed before anything is replaced: five
// megabytes of one letter, each replaced by five megabytes, would exceed the memory of any host.
func grown(size, n, old, replacement int64) int64 {
	if more := replacement - old; more > 0 && n > (math.MaxInt64-size)/more {
		return math.MaxInt64
	}
	return size + n*(replacement-old)
}

func (t edit) present(a answer) outcome {
	switch {
	case a.word == wordGrown:
		return outcome{err: &schemas.Error{Code: schemas.Exhausted, Field: "input.new_string", Message: fmt.Sprintf(
			"%s would grow to %d bytes; the limit is %d: replace fewer occurrences, use a shorter new_string, or use bash", t,
			a.number(0), schemas.MaxEdited)}}
	case a.word == wordNoMatch && t.dialect.deep():
		return outcome{err: &schemas.Error{Code: schemas.NotFound, Field: "input.old_string",
			Message: fmt.Sprintf("String not found in file: '%s'", quote(t.pairs[0].old))}}
	case a.word == wordNoMatch:
		return outcome{err: &schemas.Error{Code: schemas.NotFound, Field: "input.old_string",
			Message: fmt.Sprintf("old_string not found in %s", t)}}
	case a.word == wordMany && t.dialect.deep():
		return outcome{err: &schemas.Error{Code: schemas.Conflict, Field: "input.old_string", Message: fmt.Sprintf(
			"String '%s' appears %d times in file (multiple matches). Use replace_all=True to replace all instances, or provide a more specific "+
				"string with surrounding context.",
			quote(t.pairs[0].old), a.number(0))}}
	case a.word == wordMany:
		return outcome{err: &schemas.Error{Code: schemas.Conflict, Field: "input.old_string", Message: fmt.Sprintf(
			"old_string is not unique in %s (multiple matches: %d): include more surrounding text or set replace_all", t, a.number(0))}}
	case a.word != wordOK:
		return outcome{err: failure(a.word, "file", t.String())}
	}
	data := EditData{Path: t.String(), Replacements: a.number(0), Bytes: a.number(1), ETag: a.text(0)}
	if t.dialect.deep() {
		return outcome{text: fmt.Sprintf("Successfully replaced %d instance(s) of the string in '%s'", data.Replacements, t), data: data}
	}
	return outcome{text: fmt.Sprintf("Edited %s (%s)", t, plural(data.Replacements, "replacement")), data: data}
}

// quote shortens a text for an error message.
func quote(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
