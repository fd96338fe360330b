package workers

import (
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// announcement is what must be on the conversation before anything else of the call: that it was accepted.
// Who admits a call tells that when the log has the call, and so perhaps later than a worker is at it, or
// never. The event is the same whoever tells it, and the log stores it once.
func (t *execution) announcement() []schemas.Event {
	if t.announced {
		return nil
	}
	return []schemas.Event{schemas.AcceptedEvent(t.call)}
}

// unannounced reports whether it must be looked up whether the call is announced: when that may be so long ago
// that the log would not recognise it.
func (t *execution) unannounced() bool {
	return !t.announced && !t.looked && t.w.Bus.Now().Sub(t.accepted()) >= streams.SureWithin
}
