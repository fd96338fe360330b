package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/schemas"
)

const (
	openAPIFile = "gateway/openapi.json"
	components  = "#/components/schemas/"
)

// byHand returns the keywords of a component that do not follow from its Go type: prose, and limits that the code checks. They are
// preserved in the document; everything else of a component is generated.
func byHand() []string {
	return []string{
		"title", "description", "examples", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
		"maxItems", "minProperties", "maxProperties", "uniqueItems", "additionalProperties", "contentEncoding", "const", "enum",
	}
}

// openAPI returns the OpenAPI document with the components of the current Go types. Its paths and its prose are written by hand.
func openAPI(dir string, comments map[string]string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(openAPIFile)))
	if err != nil {
		return nil, fmt.Errorf("read the document: %w", err)
	}
	var doc, parts, all ordered
	for _, step := range []struct {
		text []byte
		into *ordered
	}{{text, &doc}, {nil, &parts}, {nil, &all}} {
		switch step.into {
		case &parts:
			step.text = doc.get("components")
		case &all:
			step.text = parts.get("schemas")
		}
		if err := json.Unmarshal(step.text, step.into); err != nil {
			return nil, fmt.Errorf("%s: %w", openAPIFile, err)
		}
	}
	types := gateway.Components()
	for name, t := range types {
		s, err := component(t, types, comments)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", name, err)
		}
		merged, err := merge(all.get(name), s)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", name, err)
		}
		all.set(name, merged)
	}
	parts.set("schemas", all.text())
	doc.set("components", parts.text())
	var out bytes.Buffer
	if err := json.Indent(&out, doc.text(), "", "  "); err != nil {
		return nil, fmt.Errorf("%s: %w", openAPIFile, err)
	}
	return append(bytes.TrimRight(out.Bytes(), "\n"), '\n'), nil
}

// component returns the schema of a Go type, with references to other components by name.
func component(t reflect.Type, types map[string]reflect.Type, comments map[string]string) ([]byte, error) {
	names := map[reflect.Type]string{
		reflect.TypeFor[schemas.CallID](): "CallID", reflect.TypeFor[schemas.ConversationID](): "ConversationID",
		reflect.TypeFor[schemas.Cursor](): "Cursor", reflect.TypeFor[schemas.Code](): "Code", reflect.TypeFor[schemas.JobID](): "JobID",
		reflect.TypeFor[schemas.JobState](): "JobState", reflect.TypeFor[schemas.ApprovalID](): "ApprovalID",
		reflect.TypeFor[schemas.ApprovalState](): "ApprovalState", reflect.TypeFor[schemas.InstanceID](): "InstanceID",
		reflect.TypeFor[schemas.InstanceState](): "InstanceState", reflect.TypeFor[schemas.InstanceTarget](): "InstanceTarget",
	}
	for name, t := range types {
		if _, twice := names[t]; !twice || name < names[t] {
			names[t] = name
		}
	}
	reflector := &jsonschema.Reflector{
		Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: true,
		Mapper: func(of reflect.Type) *jsonschema.Schema {
			if name, ok := names[of]; ok && of != t {
				return &jsonschema.Schema{Ref: components + name}
			}
			if s := mapped(of); s != nil && (s.OneOf != nil || s.Enum != nil || of.Kind() == reflect.Slice) {
				return s
			}
			return nil
		},
		LookupComment: func(of reflect.Type, field string) string {
			if field == "" {
				return ""
			}
			return comments[of.Name()+"."+field]
		},
	}
	s := reflector.ReflectFromType(t)
	s.Version, s.ID, s.Definitions = "", "", nil
	for _, hidden := range gateway.HiddenFields(t) {
		s.Properties.Delete(hidden)
		s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == hidden })
	}
	return json.Marshal(s)
}

// merge combines a generated schema with the one in the document. Descriptions in the document take precedence over comments.
func merge(had, generated json.RawMessage) (json.RawMessage, error) {
	var old, made ordered
	anything := json.Unmarshal(generated, &made) != nil // the schema is true
	switch {
	case anything && len(had) == 0:
		return nil, errors.New("it may be anything: describe it in the document")
	case anything:
		return had, nil //nolint:nilerr // which knows more
	}
	if len(had) > 0 {
		if err := json.Unmarshal(had, &old); err != nil {
			return nil, err
		}
	}
	if bytes.HasPrefix(made.get("$ref"), []byte(`"#/$defs/`)) { // a type that is no component
		if len(had) == 0 {
			return nil, fmt.Errorf("%s has no component: add it to gateway.Components, or describe it in the document", made.get("$ref"))
		}
		return had, nil
	}
	if len(made.get("type")) == 0 && len(made.get("$ref")) == 0 && len(made.get("oneOf")) == 0 && len(had) > 0 {
		return had, nil
	}
	plain := string(made.get("type")) == `"string"` && made.get("enum") == nil
	if plain && (old.get("$ref") != nil || old.get("oneOf") != nil) {
		return had, nil // the document names the type of the text, or allows null
	}
	same := len(made.get("$ref")) == 0 && string(old.get("type")) == string(made.get("type"))
	for _, k := range byHand() {
		if v := old.get(k); v != nil && (same || k == "description" || k == "default") {
			made.set(k, v)
		}
	}
	for _, k := range []string{"items", "additionalProperties"} {
		switch a, b := old.get(k), made.get(k); {
		case a == nil || b == nil:
		case b[0] != '{': // it is true, which allows anything: the document is more precise
			made.set(k, a)
		case a[0] == '{':
			m, err := merge(a, b)
			if err != nil {
				return nil, err
			}
			made.set(k, m)
		}
	}
	if made.get("properties") != nil {
		var before, now ordered
		if err := json.Unmarshal(made.get("properties"), &now); err != nil {
			return nil, err
		}
		if p := old.get("properties"); p != nil {
			if err := json.Unmarshal(p, &before); err != nil {
				return nil, err
			}
		}
		for _, f := range now {
			m, err := merge(before.get(f.key), f.value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.key, err)
			}
			now.set(f.key, m)
		}
		made.set("properties", now.text())
	}
	return made.text(), nil
}

// ordered is a JSON object that preserves the order of its members.
type ordered []member //nolint:recvcheck // what only reads it needs no pointer

type member struct {
	key   string
	value json.RawMessage
}

// UnmarshalJSON decodes an object.
func (o *ordered) UnmarshalJSON(b []byte) error {
	*o = nil
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("an object is wanted, not %.20s: %w", b, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return err
		}
		*o = append(*o, member{fmt.Sprint(key), v})
	}
	return nil
}

func (o ordered) get(key string) json.RawMessage {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (o *ordered) set(key string, v json.RawMessage) {
	for i := range *o {
		if (*o)[i].key == key {
			(*o)[i].value = v
			return
		}
	}
	*o = append(*o, member{key, v})
}

func (o ordered) text() json.RawMessage {
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(m.key) //nolint:errchkjson // a string always encodes
		b.Write(key)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}
