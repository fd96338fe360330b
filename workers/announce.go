package workers

import (
	"github.com/sandjet/sandjet/schemas"
)

// announcement is what must be on the conversation before anything else of the call: that it was accepted.
// Who admits a call publishes that when the log has the call, and so perhaps later than a worker has it, or
// never. The event is the same whoever publishes it, and the log stores it once.
//
// Where the same process has admitted the call and the log has confirmed that, it is there already; what a look has shown counts more.
func (t *execution) announcement() []schemas.Event {
	t.announced = t.announced || !t.looked && t.w.Bus.Announced(t.call)
	if t.announced {
		return nil
	}
	return []schemas.Event{schemas.AcceptedEvent(t.call)}
}

// unannounced reports whether it must be looked up whether the call is announced: when that may be so long ago
// that the log would not recognise it.
func (t *execution) unannounced() bool {
	return !t.announced && !t.looked && !t.w.Bus.Recognises(t.accepted())
}
