package streams_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
)

// A call goes onto the log once; what happens in its conversation is read from there.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "sandjet-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	server, err := streams.StartServer(ctx, embedded.Options{DataDir: dir, Port: -1}, fair.Shares{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown()
	bus, err := streams.Open(ctx, streams.Options{Server: server})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bus.Close(ctx)

	call := schemas.Call{
		ID: "order-1", Account: "acct_1", Conversation: "chat-7", Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"date"}`),
		Provider: "local", Workspace: "ws_1", Sandbox: "sb_1", Deadline: time.Now().Add(time.Hour),
	}
	fmt.Println("first:", streams.Calls.Publish(ctx, bus, call))
	fmt.Println("again:", schemas.CodeOf(streams.Calls.Publish(ctx, bus, call)))

	accepted := schemas.NewEvent(call, schemas.CallAccepted, schemas.AcceptedID(call.Account, call.ID), time.Now(),
		schemas.AcceptedData{Call: call.ID, Tool: call.Tool})
	if err := streams.Events.Publish(ctx, bus, accepted); err != nil {
		fmt.Println(err)
		return
	}
	for item, err := range streams.Follow(ctx, bus, "acct_1", "chat-7", schemas.Cursor{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if item.Kind == streams.ItemEvent {
			fmt.Println(item.Entry.Value.Type, item.Entry.Value.Subject)
			break
		}
	}
	// Output:
	// first: <nil>
	// again: conflict
	// call.accepted order-1
}
