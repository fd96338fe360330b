package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// jsonWith returns a JSON text with entry under name in the object of that key. All bytes outside of the entry stay as they are, and so
// does an equal entry that is there already. It fails if it cannot parse the text.
func jsonWith(was []byte, key, name string, entry any) ([]byte, error) {
	bom := []byte("\xef\xbb\xbf")
	text, hasBOM := bytes.CutPrefix(was, bom)
	if !hasBOM {
		bom = nil
	}
	f := jsonFile{text: text, eol: lineEnd(text)}
	if len(bytes.TrimSpace(text)) == 0 {
		f.text = []byte("{}" + f.eol)
	}
	whole, err := membersOf(f.text, 0)
	if err != nil {
		return nil, err
	}
	f.unit = "  "
	if at := whole.indent(f.text); at != "" {
		f.unit = at
	}
	m, ok := whole.get(key)
	if !ok {
		f.text, err = f.insert(whole, "", key, map[string]any{name: entry})
		return append(bom, f.text...), err
	}
	servers, err := membersOf(f.text[:m.end], m.from)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	outer := whole.indent(f.text)
	if is, ok := servers.get(name); ok {
		f.text, err = f.replace(is, servers.indent(f.text), entry)
	} else {
		f.text, err = f.insert(servers, outer, name, entry)
	}
	return append(bom, f.text...), err
}

func lineEnd(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// jsonFile is a JSON text that is edited.
type jsonFile struct {
	text []byte
	unit string // one level of its indentation
	eol  string
}

// value returns v as JSON, to be written behind a key with that indentation.
func (f jsonFile) value(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent(indent, f.unit)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(bytes.TrimSuffix(b.Bytes(), []byte("\n")), []byte("\n"), []byte(f.eol)), nil
}

// replace returns the text with v as a member's value; unchanged if they are equal.
func (f jsonFile) replace(m member, indent string, v any) ([]byte, error) {
	text, err := f.value(v, indent)
	if err != nil {
		return nil, err
	}
	var is, want any
	if err := errors.Join(json.Unmarshal(f.text[m.from:m.end], &is), json.Unmarshal(text, &want)); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(is, want) {
		return f.text, nil
	}
	return f.splice(m.from, m.end, text), nil
}

// insert returns the text with a member added at the end of an object, whose own indentation is outer. An object on one line stays on one
// line.
func (f jsonFile) insert(o jsonObject, outer, name string, v any) ([]byte, error) {
	indent, inLine := o.indent(f.text), len(o.members) > 0 && !bytes.Contains(f.text[o.from:o.members[0].key], []byte("\n"))
	if len(o.members) == 0 {
		indent = outer + f.unit
	}
	text, err := f.value(v, indent)
	if err != nil {
		return nil, err
	}
	entry := quotedText(name) + ": " + string(text)
	switch {
	case inLine:
		return f.splice(o.last(), o.last(), []byte(", "+entry)), nil
	case len(o.members) == 0:
		return f.splice(o.from+1, o.end-1, []byte(f.eol+indent+entry+f.eol+outer)), nil
	}
	return f.splice(o.last(), o.last(), []byte(","+f.eol+indent+entry)), nil
}

func (f jsonFile) splice(from, to int, text []byte) []byte {
	out := append([]byte(nil), f.text[:from]...)
	return append(append(out, text...), f.text[to:]...)
}

// jsonObject is the position of a JSON object in a text, with its members in order.
type jsonObject struct {
	from, end int
	members   []member
}

// member is the position of a member in the text: of its key, of its value, and of the value's end.
type member struct {
	name           string
	key, from, end int
}

// membersOf finds the members of the object that begins at an offset and ends with the text.
func membersOf(text []byte, at int) (o jsonObject, err error) {
	dec := json.NewDecoder(bytes.NewReader(text[at:]))
	offset := func() int { return at + int(dec.InputOffset()) }
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return o, errors.New("it is not a JSON object")
	}
	o.from = offset() - 1
	seen := map[string]bool{}
	for dec.More() {
		before := offset()
		name, err := dec.Token()
		if err != nil {
			return o, fmt.Errorf("it is not JSON: %w", err)
		}
		m := member{name: fmt.Sprint(name), key: before + bytes.IndexByte(text[before:], '"')}
		if seen[m.name] {
			return o, fmt.Errorf("it has %s twice", quotedText(m.name))
		}
		seen[m.name] = true
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return o, fmt.Errorf("it is not JSON: %w", err)
		}
		m.end = offset()
		m.from = m.end - len(v)
		o.members = append(o.members, m)
	}
	if _, err := dec.Token(); err != nil {
		return o, errors.New("it is not a JSON object")
	}
	if o.end = offset(); len(bytes.TrimSpace(text[o.end:])) > 0 {
		return o, errors.New("it has more than a JSON object")
	}
	return o, nil
}

func (o jsonObject) get(name string) (member, bool) {
	for _, m := range o.members {
		if m.name == name {
			return m, true
		}
	}
	return member{}, false
}

// last returns the end of the last member.
func (o jsonObject) last() int { return o.members[len(o.members)-1].end }

// indent returns the blanks before the first member on its line; empty if other text is there.
func (o jsonObject) indent(text []byte) string {
	if len(o.members) == 0 {
		return ""
	}
	line := text[bytes.LastIndexByte(text[:o.members[0].key], '\n')+1 : o.members[0].key]
	if len(bytes.TrimLeft(line, " \t")) > 0 {
		return ""
	}
	return string(line)
}
