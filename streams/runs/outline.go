package runs

import (
	"encoding/json"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/payloads"
)

// HeaderOutline has of an event what says which things run on its conversation, beside a payload in the object store. Events from before
// there were outlines have none.
const HeaderOutline = "Sandjet-Outline"

// outline has the fields of an event that [State] uses.
type outline struct {
	Type    schemas.EventType `json:"type"`
	Subject string            `json:"subject"`
	Time    time.Time         `json:"time"`
	Call    schemas.CallID    `json:"call,omitzero"` // that launched the job which the event says has started
}

// Outline returns an event's outline as text for a header; empty if it cannot be written.
func Outline(e schemas.Event) string {
	o := outline{Type: e.Type, Subject: e.Subject, Time: e.Time}
	if e.Type == schemas.JobStarted {
		o.Call = launchedBy(e)
	}
	b, err := schemas.EncodeJSON(o)
	if err != nil {
		return ""
	}
	return string(b)
}

// launchedBy returns the call that launched the job which an event says has started, else "".
func launchedBy(e schemas.Event) schemas.CallID {
	var d struct {
		Call schemas.CallID `json:"call"`
	}
	if json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	return d.Call
}

// Outlined returns the event of a stored message as far as its outline has it; false if the message has none.
func Outlined(m direct.Message) (schemas.Event, bool) {
	var o outline
	if m.Headers.Get(payloads.Header) == "" || json.Unmarshal([]byte(m.Headers.Get(HeaderOutline)), &o) != nil || o.Type == "" {
		return schemas.Event{}, false
	}
	e := schemas.Event{Type: o.Type, Subject: o.Subject, Time: o.Time}
	if o.Call != "" {
		data, err := schemas.EncodeJSON(schemas.JobStartedData{Call: o.Call})
		if err != nil {
			return schemas.Event{}, false
		}
		e.Data = data
	}
	return e, true
}
