package wire

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Object is a JSON object that preserves the order and the bytes of its fields.
type Object []Field

// Field is a field of an [Object].
type Field struct {
	Name  string
	Value json.RawMessage
}

const maxFields = 256 // of one object

var errNoObject = errors.New("this is not a JSON object of up to 256 fields")

// ReadObject parses a JSON object. Of two fields with one name, the last counts.
func ReadObject(text []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoObject
	}
	var o Object
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok || len(o) >= maxFields {
			return nil, errNoObject
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, errNoObject
		}
		o = o.With(name, Compact(v))
	}
	if _, err := d.Token(); err != nil {
		return nil, errNoObject
	}
	return o, nil
}

// Get returns the value of a field; nil if there is none.
func (o Object) Get(name string) json.RawMessage {
	for _, f := range o {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// With sets a field: in its place if it exists, otherwise at the end.
func (o Object) With(name string, value json.RawMessage) Object {
	for i := range o {
		if o[i].Name == name {
			o[i].Value = value
			return o
		}
	}
	return append(o, Field{name, value})
}

// JSON returns the object as JSON.
func (o Object) JSON() json.RawMessage {
	b := []byte{'{'}
	for i, f := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, String(f.Name)...), ':')
		b = append(b, f.Value...)
	}
	return append(b, '}')
}

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return o.JSON(), nil }
