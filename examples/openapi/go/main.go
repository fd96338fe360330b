// Command openapi runs a tool, reads the events of its conversation, and shows an error, with a client that is made of the OpenAPI document.
package main

//go:generate go tool oapi-codegen -generate types,client -package main -o api.go "$SANDJET_URL/openapi.json"

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	url, key := os.Getenv("SANDJET_URL"), os.Getenv("SANDJET_KEY")
	if url == "" || key == "" {
		return errors.New(`set SANDJET_URL and SANDJET_KEY: eval "$(sandjet info --shell)"`)
	}
	api, err := NewClientWithResponses(url, WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	if err != nil {
		return err
	}
	called, err := api.PostCallWithResponse(ctx, &PostCallParams{Wait: new("30s")}, Request{
		Id: new(rand.Text()), Tool: "bash", Input: map[string]any{"command": "echo from Go"}, // with its id, a repeat is the same call
	})
	if err != nil {
		return err
	}
	result := called.JSON200
	if result == nil {
		return fmt.Errorf("no result yet: %s: %s", called.Status(), called.Body)
	}
	fmt.Println(result.Status, result.Text)

	events, err := api.GetEventsWithResponse(ctx, result.Conversation, &GetEventsParams{After: new("-1")})
	if err != nil {
		return err
	}
	if events.JSON200 == nil {
		return fmt.Errorf("no events: %s: %s", events.Status(), events.Body)
	}
	for _, e := range events.JSON200.Events {
		fmt.Println(e.Event.Type)
	}

	refused, err := api.PostCallWithResponse(ctx, nil, Request{Id: new("not an id"), Tool: "bash", Input: map[string]any{}})
	if err != nil {
		return err
	}
	if p := refused.JSON400; p != nil && p.Error.Field != nil {
		fmt.Println(p.Error.Code, *p.Error.Field)
	}
	return nil
}
