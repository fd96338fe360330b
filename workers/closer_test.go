package workers

import (
	"errors"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// FuzzCallOf reads what a dead letter may hold, which may be anything: what is taken for a call has
// ids that can stand on the log, and the result made from it can be written.
func FuzzCallOf(f *testing.F) {
	f.Add([]byte(`{"id":"call_1","account":"acct_1","conversation":"c_1","tool":"bash","input":7}`))
	f.Add([]byte(`{"id":"call 1","account":"acct_1","conversation":"c_1"}`))
	f.Add([]byte(`{"id":"call_1","account":"","conversation":"c_1"}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, ok := callOf(schemas.DeadLetter{ID: "CALLS.1", Payload: payload})
		if !ok {
			return
		}
		if err := errors.Join(c.ID.Validate(), c.Account.Validate(), c.Conversation.Validate()); err != nil {
			t.Fatalf("%q was taken for a call: %v", payload, err)
		}
		for _, started := range []bool{true, false} {
			r := deadResult(c, schemas.DeadLetter{ID: "CALLS.1"}, started)
			if r.Call != c.ID || r.Text == "" || r.Error == nil {
				t.Fatalf("result %+v", r)
			}
		}
	})
}
