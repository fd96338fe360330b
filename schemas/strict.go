package schemas

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// DecodeStrict reads one JSON object of at most limit bytes into v, a pointer to a struct. It
// refuses what encoding/json lets through or changes silently: invalid UTF-8 and halves of
// surrogate pairs (both would become U+FFFD), fields given twice (the last would win), fields in
// another case, unknown fields, data after the object, and more than [MaxMembers] members and elements:
// these are what takes time, not bytes. Errors are of code invalid, and name the field wherever there is one.
func DecodeStrict(b []byte, limit int, v any) error {
	return decodeStrict(b, bounds{limit, MaxMembers}, v, "")
}

// bounds are what one document may have.
type bounds struct{ bytes, members int }

// decodeStrict is [DecodeStrict] but for the contents of one member, which the caller checks later, when its type is known.
func decodeStrict(b []byte, most bounds, v any, later string) error {
	if err := checkText(b, most.bytes); err != nil {
		return err
	}
	s := strict{dec: json.NewDecoder(bytes.NewReader(b)), most: most.members, later: later}
	s.dec.UseNumber()
	if err := s.value(reflect.TypeOf(v)); err != nil {
		return err
	}
	if _, err := s.dec.Token(); !errors.Is(err, io.EOF) {
		return Invalidf("", "there is data after the JSON object")
	}
	if err := json.Unmarshal(b, v); err != nil {
		return blame(b, reflect.TypeOf(v), jsonError(err))
	}
	return nil
}

// checkBounds reports whether valid JSON has more members, or is deeper, than it may. Unlike that, it takes
// members that are given twice.
func checkBounds(b []byte, members int) error {
	s := strict{dec: json.NewDecoder(bytes.NewReader(b)), most: members, loose: true}
	s.dec.UseNumber()
	return s.value(nil)
}

// blame finds the field at fault when a value that decodes itself, which does not know where it
// stands, has refused what it was given.
func blame(b []byte, t reflect.Type, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Field != "" {
		return err
	}
	members := map[string]json.RawMessage{}
	if json.Unmarshal(b, &members) != nil {
		return err
	}
	for name, ft := range fieldsOf(t) {
		if raw, given := members[name]; given && json.Unmarshal(raw, reflect.New(ft).Interface()) != nil {
			return &Error{Code: e.Code, Field: name, Message: e.Message}
		}
	}
	return err
}

// checkText looks at the bytes alone.
func checkText(b []byte, limit int) error {
	if len(b) > limit {
		return Invalidf("", "is %d bytes long: the limit is %d", len(b), limit)
	}
	if !utf8.Valid(b) {
		return Invalidf("", "is not valid UTF-8: send binary content as base64 through bash")
	}
	if hasHalfSurrogate(b) {
		return Invalidf("", `has half a surrogate pair such as \ud83d: write the character itself, or both halves`)
	}
	if t := bytes.TrimLeft(b, " \t\r\n"); len(t) > 0 && t[0] != '{' {
		return Invalidf("", "must be one JSON object")
	}
	return nil
}

// hasHalfSurrogate looks for \u escapes that are no character on their own. Outside of strings a
// backslash is no JSON at all, which the parser reports.
func hasHalfSurrogate(b []byte) bool {
	for {
		at := bytes.IndexByte(b, '\\')
		if at < 0 || at+1 >= len(b) {
			return false
		}
		b = b[at:]
		r, ok := escaped(b)
		if !ok {
			b = b[2:]
			continue
		}
		b = b[6:]
		if !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := escaped(b)
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return true
		}
		b = b[6:]
	}
}

// escaped reads the \uXXXX at the start of b.
func escaped(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}

const (
	givenTwice   = "is given twice"
	unknownField = "is not a known field"
)

// strict walks one JSON value beside the type that it will be read into.
type strict struct {
	dec  *json.Decoder
	path []string // of the value that is being read; rendered only for an error
	most int      // members and elements that there may be
	have int

	later string // a member of the outermost object whose contents are not looked at
	loose bool   // members may be given twice
}

// one counts a member or an element.
func (s *strict) one() error {
	if s.have++; s.have > s.most {
		return Invalidf("", "has more than %d members and elements: send less at a time", s.most)
	}
	return nil
}

func (s *strict) value(t reflect.Type) error {
	const deepest = 64
	if len(s.path) > deepest {
		return Invalidf(rendered(s.path[:4])+"…", "is nested deeper than %d levels", deepest)
	}
	tok, err := s.dec.Token()
	if err != nil {
		return jsonError(err)
	}
	d, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	if d == '{' {
		err = s.object(fieldsOf(t), memberOf(t))
	} else {
		err = s.array(t)
	}
	if err != nil {
		return err
	}
	if _, err := s.dec.Token(); err != nil { // the closing delimiter
		return jsonError(err)
	}
	return nil
}

func (s *strict) array(t reflect.Type) error {
	var elem reflect.Type
	if t != nil && t.Kind() == reflect.Slice && !decodesItself(t) {
		elem = t.Elem()
	}
	s.path = append(s.path, "[]")
	for s.dec.More() {
		if err := s.one(); err != nil {
			return err
		}
		if err := s.value(elem); err != nil {
			return err
		}
	}
	s.path = s.path[:len(s.path)-1]
	return nil
}

// object reads the members of an object. A nil map of fields means that any name is fine, and that the
// members are of the other type.
func (s *strict) object(fields map[string]reflect.Type, member reflect.Type) error {
	seen := map[string]bool{}
	for s.dec.More() {
		if err := s.one(); err != nil {
			return err
		}
		tok, err := s.dec.Token()
		if err != nil {
			return jsonError(err)
		}
		name, _ := tok.(string) // always a string here
		s.path = append(s.path, name)
		if seen[name] && !s.loose {
			return Invalidf(s.at(), givenTwice)
		}
		seen[name] = true
		t, known := fields[name]
		if fields != nil && !known {
			return Invalidf(s.at(), unknownField+"%s", suggestion(name, fields))
		}
		if fields == nil {
			t = member
		}
		if name == s.later && len(s.path) == 1 {
			var skipped json.RawMessage
			if err := s.dec.Decode(&skipped); err != nil {
				return jsonError(err)
			}
		} else if err := s.value(t); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
	}
	return nil
}

func (s *strict) at() string { return strings.ReplaceAll(rendered(s.path), ".[]", "[]") }

// rendered joins the names of a path, as they may be shown.
func rendered(path []string) string {
	names := make([]string, 0, len(path))
	for _, name := range path {
		names = append(names, Quotable(name))
	}
	return strings.Join(names, ".")
}

// suggestion names the field that was probably meant: the one that takes the fewest changes of a letter.
func suggestion(name string, fields map[string]reflect.Type) string {
	const longest = 64 // of a name that is compared letter by letter
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	asked := plain(name)
	best, least := "", min(len(asked)/2, 2)+1
	if len(asked) > longest {
		least = 0
	}
	for _, known := range slices.Sorted(maps.Keys(fields)) {
		if d := distance(asked, plain(known), least); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return ": check its spelling"
	}
	return fmt.Sprintf(": use %q", best)
}

// fieldsOf maps the JSON names of a struct's fields to their types. It is nil for anything that
// takes any name: maps, and types that decode themselves.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || decodesItself(t) {
		return nil
	}
	fields := make(map[string]reflect.Type, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

// memberOf is the type of what a map holds; nil for anything else.
func memberOf(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() != reflect.Map || decodesItself(t) {
		return nil
	}
	return t.Elem()
}

func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// jsonError turns an error of encoding/json into one for the user.
func jsonError(err error) error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return Invalidf(te.Field, "has the wrong type: it must be %s, not a JSON %s", inWords(te.Type), te.Value)
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok || strings.HasPrefix(err.Error(), "Time.UnmarshalJSON") {
		return Invalidf("", `is not a time: write it as RFC 3339 says, such as "2026-11-21T12:00:00Z"`)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == "unexpected end of JSON input" {
		return Invalidf("", "ends too early: it is not one whole JSON object")
	}
	return Invalidf("", "is not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// inWords says what JSON a Go type is read from.
func inWords(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "something else"
	}
}
