package schemas_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// The same account and workspace always have the same namespace, and another account's never is the same.
func ExampleNamespace() {
	a := schemas.Namespace("acct_a", "docs")
	fmt.Println(a == schemas.Namespace("acct_a", "docs"), a == schemas.Namespace("acct_b", "docs"))
	// Output: true false
}

// A name that is not known is answered with the one that was meant.
func ExampleNearest() {
	fmt.Println(schemas.Nearest("wirte", []string{"read", "write", "edit"}))
	// Output: write
}

// The value of a variable of a manifest that stands for one of the account.
func ExampleVariableRef() {
	name, is := schemas.VariableRef(schemas.VariablePrefix + "API_TOKEN")
	fmt.Println(name, is)
	_, is = schemas.VariableRef("plain text")
	fmt.Println(is)
	// Output:
	// API_TOKEN true
	// false
}

// A name that a shell takes too.
func ExampleVariableName() {
	fmt.Println(schemas.VariableName("API_TOKEN"), schemas.VariableName("2nd"))
	// Output: true false
}

// What a person is shown of a call.
func ExampleSummary() {
	fmt.Println(schemas.Summary(schemas.ToolBash, json.RawMessage(`{"command":"make test"}`)))
	// Output: make test
}

// An input says which field is wrong, and what to use in its place.
func ExampleInvalidf() {
	err := schemas.Invalidf("timeout", "is longer than %s: use less", "1h")
	e, _ := errors.AsType[*schemas.Error](err)
	fmt.Println(e.Code, e.Field)
	// Output: invalid timeout
}

// A cause stays in the process, its code crosses wires.
func ExampleWrap() {
	err := schemas.Wrap(schemas.Unavailable, "read", "the log is away", errors.New("connection refused"))
	fmt.Println(schemas.CodeOf(err), schemas.CodeOf(err).Retryable())
	// Output: unavailable true
}

// What an input says, typed and validated, is decoded once.
func ExampleDecodeInput() {
	in, err := schemas.DecodeInput(schemas.ToolBash, json.RawMessage(`{"command":"make"}`))
	bash, ok := in.(schemas.BashInput)
	fmt.Println(bash.Command, ok, err)
	// Output: make true <nil>
}

// The last part of a text never begins within a character.
func ExampleTailText() {
	fmt.Printf("%q\n", schemas.TailText("één twee", 5))
	// Output: " twee"
}

func ExampleParseCursor() {
	c, err := schemas.ParseCursor("a1_00000000000000000007")
	fmt.Println(c.Epoch, c.Seq, err)
	_, err = schemas.ParseCursor("yesterday")
	fmt.Println(schemas.CodeOf(err))
	// Output:
	// a1 7 <nil>
	// invalid
}

// A grant lets calls of its exact scope run without a question, for a day.
func ExampleApprovalGrant_Allows() {
	call := schemas.Call{Account: "acct_1", Conversation: "chat-7", Tool: schemas.ToolBash, Workspace: "ws_1", Sandbox: "sb_1"}
	yes := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	grant := schemas.ApprovalGrantOf(schemas.Approval{ID: "appr_1", Account: "acct_1", Call: call, Decided: yes})
	elsewhere := call
	elsewhere.Sandbox = "sb_2"
	fmt.Println(grant.Allows(call, yes.Add(time.Hour)), grant.Allows(elsewhere, yes.Add(time.Hour)))
	fmt.Println(grant.Allows(call, yes.Add(schemas.ApprovalGrantLifetime)))
	// Output:
	// true false
	// false
}

func ExampleNearestNames() {
	fmt.Println(schemas.NearestNames("wor", []string{"worker", "workspaces", "sandboxes", "webhooks"}))
	// Output: [worker workspaces]
}

func ExampleStatuses() {
	fmt.Println(schemas.Statuses())
	// Output: [completed failed denied cancelled interrupted expired]
}
