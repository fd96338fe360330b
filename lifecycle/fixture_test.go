package lifecycle_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const account schemas.AccountID = "acct_test"

// callOf makes a call that validates.
func callOf(id string) schemas.Call {
	return schemas.Call{
		ID: schemas.CallID(id), Account: account, Conversation: "c_" + schemas.ConversationID(id), Tool: schemas.ToolBash,
		Input: json.RawMessage(`{"command":"true"}`), Provider: "local", Workspace: "ws_1", Sandbox: "sb_1",
		Accepted: time.Now().UTC(), Deadline: time.Now().Add(time.Hour).UTC(),
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
