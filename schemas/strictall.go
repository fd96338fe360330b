package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// decodeAll is [DecodeStrict] that continues behind a member that is wrong, in form or in type: it returns all of them, and v has the rest.
// It returns the one error of [DecodeStrict] alone where b as a whole cannot be read.
func decodeAll(b []byte, most bounds, v any) Problems {
	err := decodeStrict(b, most, v, "")
	if err == nil {
		return nil
	}
	first := Problems{Public(err)}
	if checkText(b, most.bytes) != nil || !json.Valid(b) || checkBounds(b, most.members) != nil {
		return first
	}
	var p Problems
	clean, ok := p.clean(b, reflect.TypeOf(v), "")
	if len(p) == 0 {
		return first
	}
	into := reflect.ValueOf(v).Elem()
	into.SetZero()                              // of what the first try read before it failed
	if !ok || json.Unmarshal(clean, v) != nil { // so much is wrong that the rest does not matter
		into.SetZero()
	}
	return p
}

// clean notes what of a value does not fit a type, and returns the value without it. It is false where nothing is left.
func (p *Problems) clean(raw json.RawMessage, t reflect.Type, path string) (json.RawMessage, bool) {
	for t != nil && t.Kind() == reflect.Pointer && !decodesItself(t) {
		t = t.Elem()
	}
	raw = bytes.TrimSpace(raw)
	whole := t != nil && t.Kind() == reflect.Interface || t == nil || decodesItself(t) || string(raw) == "null"
	switch {
	case !whole && raw[0] == '{' && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		return p.cleanObject(raw, t, path)
	case !whole && raw[0] == '[' && t.Kind() == reflect.Slice:
		return p.cleanArray(raw, t, path)
	case t == nil:
		return raw, true
	}
	err := json.Unmarshal(raw, reflect.New(t).Interface())
	if err == nil {
		return raw, true
	}
	e := Public(jsonError(err))
	e.Field = "" // it is the value itself, whatever its type calls what is inside
	p.Add(path, e)
	return nil, false
}

func (p *Problems) cleanObject(raw json.RawMessage, t reflect.Type, path string) (json.RawMessage, bool) {
	fields, member := fieldsOf(t), memberOf(t)
	seen := map[string]bool{}
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token() // the brace: raw is valid JSON
	for d.More() {
		var value json.RawMessage
		tok, err := d.Token()
		name, _ := tok.(string)
		if err != nil || d.Decode(&value) != nil {
			return nil, false
		}
		at := Quotable(name)
		if path != "" {
			at = path + "." + at
		}
		ft, known := fields[name]
		switch {
		case len(*p) >= MaxProblems:
			return nil, false
		case seen[name]:
			p.Add(at, Invalidf("", givenTwice))
			continue
		case fields != nil && !known:
			p.Add(at, Invalidf("", unknownField+"%s", suggestion(name, fields)))
			continue
		case fields == nil:
			ft = member
		}
		seen[name] = true
		value, ok := p.clean(value, ft, at)
		if !ok {
			continue
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, false
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(value)
	}
	return []byte("{" + out.String() + "}"), true
}

func (p *Problems) cleanArray(raw json.RawMessage, t reflect.Type, path string) (json.RawMessage, bool) {
	var values, out []json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		return nil, false
	}
	for i, v := range values {
		if len(*p) >= MaxProblems {
			return nil, false
		}
		if v, ok := p.clean(v, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); ok {
			out = append(out, v)
		}
	}
	b, err := json.Marshal(out)
	return b, err == nil
}
