package gateway_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestOperationsOfASocketAreCarriedOutInOrder: a client that attaches from now on and sends a call at once receives all events of the
// call, though the gateway must ask the log where "now" is.
func TestOperationsOfASocketAreCarriedOutInOrder(t *testing.T) {
	e := open(t)
	e.work()
	const sockets = 40
	for n := range sockets {
		conv := fmt.Sprintf("c_%d", n)
		if n%2 == 0 { // one that another socket follows already
			other := e.socket()
			other.write(fmt.Sprintf(`{"op":"attach","conv":%q}`, conv))
			other.until("live")
		}
		s := e.socket()
		s.write(fmt.Sprintf(`{"op":"attach","id":1,"conv":%q,"after":"now"}`, conv))
		s.write(fmt.Sprintf(`{"op":"send","id":2,"request":{"conversation":%q,"tool":"bash","input":{"command":"echo hi"}}}`, conv))
		var got []string
		attached := false
		for len(got) < 3 {
			f := s.next()
			switch f.Op {
			case "attached":
				attached = true
			case "accepted":
				if !attached {
					t.Errorf("socket %d: the call was accepted before the attach was answered", n)
				}
			case "ev":
				got = append(got, string(f.Data.Type))
			case "error":
				t.Fatalf("%+v", f)
			}
		}
		for _, want := range []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallFinished} {
			if !slices.Contains(got, string(want)) {
				t.Errorf("socket %d was told %v", n, got)
			}
		}
	}
}
