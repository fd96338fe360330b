package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Encode writes the event as [EncodeJSON] does, at half the cost: each call writes several.
func (e Event) Encode() ([]byte, error) {
	const around = 256 // bytes: names, marks and the time
	w := eventWriter{text: make([]byte, 0, around+len(e.ID)+len(e.Source)+len(e.Subject)+len(e.Conversation)+len(e.TraceParent)+len(e.Data))}
	w.field(`{"specversion":`, e.SpecVersion)
	w.field(`,"id":`, e.ID)
	w.field(`,"type":`, string(e.Type))
	w.field(`,"source":`, e.Source)
	if e.Subject != "" {
		w.field(`,"subject":`, e.Subject)
	}
	w.time(e)
	w.field(`,"conversation":`, string(e.Conversation))
	if e.TraceParent != "" {
		w.field(`,"traceparent":`, e.TraceParent)
	}
	w.data(e.Data)
	return escapeSeparators(append(w.text, '}')), w.err
}

// eventWriter writes one event; err is the first that there was.
type eventWriter struct {
	text []byte
	err  error
}

// field writes a name and a text.
func (w *eventWriter) field(name, text string) {
	w.text = append(w.text, name...)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			w.escaped(text)
			return
		}
	}
	w.text = append(append(append(w.text, '"'), text...), '"')
}

// escaped writes a text that is not only plain letters.
func (w *eventWriter) escaped(text string) {
	b, err := EncodeJSON(text)
	w.fail(err)
	w.text = append(w.text, b...)
}

func (w *eventWriter) time(e Event) {
	var err error
	if w.text, err = e.Time.AppendText(append(w.text, `,"time":"`...)); err != nil {
		w.fail(fmt.Errorf("time of an event: %w", err))
	}
	w.text = append(w.text, '"')
}

// data writes what is JSON already, in one line; what is not is an error.
func (w *eventWriter) data(d json.RawMessage) {
	w.text = append(w.text, `,"data":`...)
	if d == nil {
		w.text = append(w.text, "null"...)
		return
	}
	line := bytes.NewBuffer(w.text)
	w.fail(json.Compact(line, d))
	w.text = line.Bytes()
}

func (w *eventWriter) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
