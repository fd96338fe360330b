package tools_test

import (
	"encoding/json"
	"fmt"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
)

// The tools of an agent that only reads one workspace.
func ExampleVisible() {
	list, err := tools.Visible(schemas.DialectClaude, schemas.ToolVisibility{Tools: []schemas.Tool{schemas.ToolRead, schemas.ToolGlob}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range list {
		fmt.Println(d.Name)
	}
	// Output:
	// read
	// glob
}

// A call compiles to one script; what the script is to write into files goes to its standard input.
func ExampleCompile() {
	call := schemas.Call{ID: "call_1", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"echo hello"}`)}
	input, err := schemas.DecodeInput(call.Tool, call.Input)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := tools.Compile(call, input)
	fmt.Println(plan.Script, plan.ReadOnly, plan.Live, err)
	// Output: echo hello false true <nil>
}

// Formats are those that the APIs of models take tools in.
func ExampleFormats() {
	fmt.Println(tools.Formats())
	// Output: [anthropic openai openai-strict openai-responses mcp]
}
