package schemas

import (
	"bytes"
	"encoding/json"
	"sync"
)

// EncodeJSON writes v as everything that goes out is written: in one line, with <, > and & as they are, since nothing of it is shown in
// a page unescaped and people read it too; and with the line separators U+2028 and U+2029 escaped, also where they came in as they
// are, since old JavaScript takes them for ends of lines. Text that was JSON already keeps its other escapes. An error is one of
// [json.Marshal]. It may be called from many goroutines.
func EncodeJSON(v any) ([]byte, error) {
	e, _ := encoders.Get().(*encoder)
	defer e.free()
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return escapeSeparators(bytes.Clone(e.text.Bytes()[:e.text.Len()-1])), nil // the encoder ends it with a newline
}

// encoder is one that writes into a buffer of its own.
type encoder struct {
	*json.Encoder

	text bytes.Buffer
}

var encoders = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool is shared
	e := &encoder{}
	e.Encoder = json.NewEncoder(&e.text)
	e.SetEscapeHTML(false)
	return e
}}

// free returns the encoder for reuse. A large buffer is not kept.
func (e *encoder) free() {
	const most = 64 << 10
	if e.text.Cap() > most {
		return
	}
	e.text.Reset()
	encoders.Put(e)
}

// escapeSeparators replaces the line separators in JSON, where they can only be in strings.
func escapeSeparators(text []byte) []byte {
	if !bytes.Contains(text, []byte("\u2028")) && !bytes.Contains(text, []byte("\u2029")) {
		return text
	}
	text = bytes.ReplaceAll(text, []byte("\u2028"), []byte(`\u2028`))
	return bytes.ReplaceAll(text, []byte("\u2029"), []byte(`\u2029`))
}
