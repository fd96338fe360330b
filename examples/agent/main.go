// Command agent is an agent in one loop: a model of the Messages API says which tools to run, Sandjet runs them, and the model
// reads the results until it is done. Run it with: eval "$(sandjet info --shell)"; MODEL_KEY=… go run ./examples/agent 'What is
// in this folder?'
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

type object = map[string]any

// ask sends JSON and reads the answer into out.
func ask(method, url string, header http.Header, in, out any) {
	body, err := json.Marshal(in)
	check(err)
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	check(err)
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	check(err)
	if resp.StatusCode >= http.StatusBadRequest {
		check(fmt.Errorf("%s: %s: %s", url, resp.Status, answer))
	}
	check(json.Unmarshal(answer, out))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	model := cmp.Or(os.Getenv("MODEL_URL"), "https://api.anthropic.com/v1/messages")
	sandjet := strings.TrimRight(os.Getenv("SANDJET_URL"), "/")
	modelKey := http.Header{"X-Api-Key": {os.Getenv("MODEL_KEY")}, "Anthropic-Version": {"2023-06-01"}}
	key := http.Header{"Authorization": {"Bearer " + os.Getenv("SANDJET_KEY")}}
	var known struct{ Tools []any }
	ask("GET", sandjet+"/v1/tools?dialect=claude", key, nil, &known)
	messages := []object{{"role": "user", "content": strings.Join(os.Args[1:], " ")}}
	for {
		var said struct {
			Content []struct {
				Type, Text, ID, Name string
				Input                json.RawMessage
			}
		}
		var whole object // to be returned as it is
		var raw json.RawMessage
		ask("POST", model, modelKey, object{"model": cmp.Or(os.Getenv("MODEL"), "claude-sonnet-4-5"), "max_tokens": 4096,
			"tools": known.Tools, "messages": messages}, &raw)
		check(json.Unmarshal(raw, &said))
		check(json.Unmarshal(raw, &whole))
		messages = append(messages, object{"role": "assistant", "content": whole["content"]})
		var results []object
		for _, part := range said.Content {
			switch part.Type {
			case "text":
				fmt.Println(part.Text)
			case "tool_use": // the model's id is the call's: asked for again, it is not run again
				var r struct {
					Text   *string // absent until the call has its result
					Status string
				}
				call := object{"id": part.ID, "conversation": "agent", "dialect": "claude", "tool": part.Name, "input": part.Input}
				for r.Text == nil { // where the model used the tool wrongly, it says how to do better
					ask("POST", sandjet+"/v1/calls?wait=60s", key, call, &r)
				}
				results = append(results, object{"type": "tool_result", "tool_use_id": part.ID, "content": *r.Text,
					"is_error": r.Status != "completed"})
			}
		}
		if len(results) == 0 {
			return
		}
		messages = append(messages, object{"role": "user", "content": results})
	}
}
