package schemas_test

import (
	"encoding/json"
	"errors"
	"fmt"

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
