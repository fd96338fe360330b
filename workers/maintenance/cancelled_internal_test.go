package maintenance

import (
	"fmt"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestCancelledCallsOfOneAccountLeaveOthersTheirRoom: an account keeps cancelling calls that no worker serves. At most a quarter of the
// tracked calls are of this account.
//
//guarantee:bounds
func TestCancelledCallsOfOneAccountLeaveOthersTheirRoom(t *testing.T) {
	o := newOpenCancels()
	add := func(a schemas.AccountID, i int) {
		o.add(cancelled{cancel: schemas.Cancel{Account: a, Call: schemas.CallID(fmt.Sprint("call_", i))}})
	}
	for i := range cancelsOpen {
		add("acct_1", i)
	}
	add("acct_2", 1)
	add("acct_2", 1) // once more
	if o.of["acct_1"] != cancelsOfOne || o.of["acct_2"] != 1 || len(o.calls) != cancelsOfOne+1 {
		t.Errorf("%d and %d are kept", o.of["acct_1"], o.of["acct_2"])
	}
	o.drop("acct_2.call_1")
	o.drop("acct_2.call_1")
	o.drop("acct_1.call_0")
	if add("acct_1", cancelsOpen); o.of["acct_1"] != cancelsOfOne || len(o.of) != 1 || len(o.calls) != cancelsOfOne {
		t.Errorf("after two were dropped: %v", o.of)
	}
}
