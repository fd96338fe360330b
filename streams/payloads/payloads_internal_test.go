package payloads

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestAStoreThatIsBeingOpenedHoldsUpNoOther: one without a leader takes seconds.
func TestAStoreThatIsBeingOpenedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	var o objects
	is := struct{ jetstream.ObjectStore }{}
	_, first, own := o.find("slow")
	if !own {
		t.Fatal("nobody opens the first")
	}
	if _, c, own := o.find("slow"); own || c != first {
		t.Error("another caller opens it too, in place of waiting")
	}
	_, second, own := o.find("quick")
	if !own {
		t.Fatal("the other is not opened meanwhile")
	}
	o.opened("quick", second, is, nil)
	if s, _, _ := o.find("quick"); s == nil {
		t.Error("the other is not there though it was opened")
	}
	o.opened("slow", first, nil, errors.New("it has no leader"))
	<-first
	_, again, own := o.find("slow")
	if !own {
		t.Fatal("one that could not be opened is not opened again")
	}
	o.forget()
	o.opened("slow", again, is, nil)
	if s, _, _ := o.find("slow"); s != nil {
		t.Error("one that was opened on a server which is another by now is kept")
	}
}
