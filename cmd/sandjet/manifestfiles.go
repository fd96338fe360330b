package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/sandjet/sandjet/schemas"
)

// source is the text of one file.
type source struct {
	name string
	text []byte
}

// readSources reads the files that -f names: files, folders (their .yaml, .yml and .json files in the order of names, without subfolders)
// and - for stdin. Code: invalid.
func readSources(paths []string, stdin io.Reader) ([]source, error) {
	var out []source
	total := 0
	add := func(name string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, schemas.MaxManifest+1))
		if err != nil {
			return schemas.Invalidf("file", "cannot be read: %v", err)
		}
		if total += len(text); total > schemas.MaxManifest {
			return schemas.Invalidf("file", "the files are larger than %d bytes together", schemas.MaxManifest)
		}
		out = append(out, source{name, text})
		return nil
	}
	for _, path := range paths {
		if path == "-" {
			if err := add("stdin", stdin); err != nil {
				return nil, err
			}
			continue
		}
		files, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			f, err := os.Open(file) // the user's own
			if err != nil {
				return nil, schemas.Invalidf("file", "cannot be read: %v", err)
			}
			err = add(file, f)
			_ = f.Close() // only read
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// filesOf returns a file itself, or the manifests in a folder. Code: invalid.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, schemas.Invalidf("file", "cannot be read: %v", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, schemas.Invalidf("file", "cannot be read: %v", err)
	}
	var out []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) && e.Name()[0] != '.' {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, schemas.Invalidf("file", "there is no .yaml, .yml or .json in %s", path)
	}
	return out, nil
}

// sheet is a manifest with the positions of its parts in the files.
type sheet struct {
	raw      json.RawMessage // all documents as JSON, which may be an invalid manifest
	manifest schemas.Manifest
	places   places
	wrong    error // the errors found here; the gateway may find more
}

// places maps a field of the manifest to its position, file:line.
type places map[string]string

// readManifest merges all documents of all sources into one manifest. Each document is a manifest, whose version and project may be
// omitted if another document has them. Errors name file and line. Code invalid: a document is no YAML mapping, or two contradict each
// other. Other errors are in the sheet.
func readManifest(sources []source) (sheet, error) {
	var (
		merged   = map[string]any{}
		list     = []any{}
		where    = places{}
		unread   schemas.Problems
		unusable = func(format string, args ...any) { unread.Add("", schemas.Invalidf("", format, args...)) }
	)
	for _, s := range sources {
		file, err := parser.ParseBytes(s.text, 0)
		if err != nil {
			unusable("%s: %s", s.name, oneLine(err))
			continue
		}
		for _, doc := range file.Docs {
			if doc.Body == nil || doc.Body.Type() == ast.NullType {
				continue
			}
			part, err := documentOf(doc.Body)
			if err != nil {
				unusable("%s:%d: %v", s.name, line(doc.Body), err)
				continue
			}
			at := places{}
			at.note(s.name, doc.Body, "")
			whole, err := where.merge(merged, list, part, at)
			if err != nil {
				unusable("%s: %v", at.of(""), err)
				continue
			}
			list = whole
		}
	}
	if err := unread.Err(); err != nil {
		return sheet{}, err
	}
	if len(where) == 0 {
		return sheet{}, schemas.Invalidf("file", "there is no manifest in it")
	}
	merged["resources"] = list
	b, err := json.Marshal(merged)
	if err != nil {
		return sheet{}, schemas.Invalidf("", "the manifest cannot be written as JSON: %v", err)
	}
	m, err := schemas.DecodeManifest(b)
	return sheet{b, m, where, where.name(err)}, nil
}

// merge adds a document, whose positions are at, to those before it. It returns the list of all resources.
func (p places) merge(merged map[string]any, list []any, part map[string]any, at places) ([]any, error) {
	for _, name := range []string{"version", "project"} {
		value, given := part[name]
		if before, twice := merged[name]; given && twice && !reflect.DeepEqual(before, value) {
			return nil, fmt.Errorf("%s is %v here and %v at %s: files that are applied together are of one", name, value, before, p[name])
		} else if given && !twice {
			merged[name], p[name] = value, at[name]
		}
		delete(part, name)
	}
	resources, ok := part["resources"].([]any)
	if given := part["resources"]; given != nil && !ok {
		return nil, errors.New("resources must be a list")
	}
	for i := range resources {
		from, to := schemas.ResourcePath(i), schemas.ResourcePath(len(list)+i)
		for field, place := range at {
			if rest, below := strings.CutPrefix(field, from); below {
				p[to+rest] = place
			}
		}
	}
	delete(part, "resources")
	for name, value := range part { // unknown fields are kept for the decoder to report
		merged[name], p[name] = value, at[name]
	}
	return append(list, resources...), nil
}

// documentOf converts a YAML mapping to the values that encoding/json decodes.
func documentOf(body ast.Node) (map[string]any, error) {
	var v map[string]any
	if err := yaml.NodeToValue(body, &v, yaml.Strict()); err != nil {
		return nil, errors.New(oneLine(err))
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("it is not a manifest: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v = nil
	if err := d.Decode(&v); err != nil || v == nil {
		return nil, errors.New("it is not a manifest, which is a mapping with version, project and resources")
	}
	return v, nil
}

// note records the positions of a node and of all nodes below it.
func (p places) note(file string, n ast.Node, path string) {
	if n == nil {
		return
	}
	if _, known := p[path]; !known {
		p[path] = fmt.Sprintf("%s:%d", file, line(n))
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			p.pair(file, v, path)
		}
	case *ast.MappingValueNode:
		p.pair(file, n, path)
	case *ast.SequenceNode:
		for i, v := range n.Values {
			p.note(file, v, fmt.Sprintf("%s[%d]", path, i))
		}
	case *ast.AnchorNode:
		p.note(file, n.Value, path)
	case *ast.TagNode:
		p.note(file, n.Value, path)
	}
}

func (p places) pair(file string, v *ast.MappingValueNode, path string) {
	below := strings.TrimPrefix(path+"."+v.Key.GetToken().Value, ".")
	p[below] = fmt.Sprintf("%s:%d", file, line(v.Key))
	p.note(file, v.Value, below)
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// of returns the position of a field, or of the nearest field around it.
func (p places) of(field string) string {
	for {
		if place, ok := p[field]; ok || field == "" {
			return place
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
}

// manifestError is the errors of a manifest, with their positions in its files.
type manifestError struct {
	err    *schemas.Error
	places []string // of each of err.Errors, as file:line; empty if unknown
}

// Unwrap returns the error with its code.
func (e *manifestError) Unwrap() error { return e.err }

// Error returns all errors, each with file and line.
func (e *manifestError) Error() string { return e.err.Message }

// name returns an error that names fields of the manifest with their files and lines added. The code stays the same. It returns nil for
// nil.
func (p places) name(err error) error {
	if err == nil {
		return nil
	}
	public := schemas.Public(err)
	all := slices.Clone(public.Errors)
	if len(all) == 0 {
		all = []*schemas.Error{public}
	}
	slices.SortStableFunc(all, func(a, b *schemas.Error) int { // in the order of the files
		return cmp.Or(cmp.Compare(schemas.ResourceIndex(a.Field), schemas.ResourceIndex(b.Field)), cmp.Compare(p.line(a.Field), p.line(b.Field)))
	})
	var lines, where []string
	for _, e := range all {
		where = append(where, p.of(e.Field))
		lines = append(lines, p.describe(e))
	}
	named := &manifestError{&schemas.Error{Code: public.Code, Field: public.Field, Message: lines[0], Errors: all}, where}
	if len(lines) > 1 {
		named.err.Message = fmt.Sprintf("%d things are wrong:\n  %s", len(lines), strings.Join(lines, "\n  "))
	}
	return named
}

// describe returns one error as file:line: field: message.
func (p places) describe(e *schemas.Error) string {
	mentioned := regexp.MustCompile(`\bresources\[\d+\]`)
	message := mentioned.ReplaceAllStringFunc(e.Message, func(field string) string { return cmp.Or(p.of(field), field) })
	field := e.Field
	if mentioned.MatchString(field) {
		_, field, _ = strings.Cut(field, "].")
		if !strings.Contains(e.Field, "].") {
			field = ""
		}
	}
	parts := slices.DeleteFunc([]string{p.of(e.Field), field, message}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// line returns the number of a field's line; 0 if unknown.
func (p places) line(field string) int {
	place := p.of(field)
	n, err := strconv.Atoi(place[strings.LastIndexByte(place, ':')+1:])
	if err != nil {
		return 0
	}
	return n
}

// oneLine returns an error of the YAML parser without the excerpt below it.
func oneLine(err error) string {
	text, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
	return text
}
