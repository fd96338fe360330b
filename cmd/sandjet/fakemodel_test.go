package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

const fakeScript = `rules:
  - contains: weather
    say: Let me see.
    wait: 1ms
    call:
      - {tool: bash, input: {command: "curl wttr.in", n: 1}}
    usage: {in: 3, out: 2}
  - request: 2
    status: 429
    retry_after: "2"
`

func TestAFakeModelAnswersByItsScript(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(fakeScript), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- (&fakemodelCommand{Listen: "127.0.0.1:0", Script: path}).Run(ctx, terminal{out: w, err: w})
	}()
	lines := bufio.NewScanner(r)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	at := regexp.MustCompile(`http://[0-9.:]+[0-9]`).FindString(lines.Text())
	ask := func(text string) (int, string, http.Header) {
		t.Helper()
		body := `{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer x")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		out, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(out), res.Header
	}
	if status, text, _ := ask("the weather"); status != 200 || !strings.Contains(text, `"arguments":"{\"command\":\"curl wttr.in\",\"n\":1}"`) ||
		!strings.Contains(text, `"prompt_tokens":3`) || !strings.Contains(text, `"finish_reason":"tool_calls"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text, h := ask("now"); status != 429 || h.Get("Retry-After") != "2" {
		t.Errorf("%d %s", status, text)
	}
	if status, text, _ := ask("hello"); status != 200 || !strings.Contains(text, "You said: hello") {
		t.Errorf("%d %s", status, text)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestScriptsThatAreWrongAreNotServed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"rules: [{sya: x}]":                      "sya",
		"rules: [{status: 200}]":                 "rule 1: status",
		"rules: [{wait: soon}]":                  "250ms",
		"rules: [{call: [{tool: 'a b'}]}]":       "name of a tool",
		"rules: [{status: 500, say: x}]":         "an answer",
		"rules: [":                               "not found",
		"rules: [{message: x}]":                  "needs a status",
		"rules: [{other: 5}]":                    "an object",
		"rules: [{call: [{tool: a, input: 1}]}]": "an object",
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := (&fakemodelCommand{Listen: "127.0.0.1:0", Script: path}).Run(t.Context(), terminal{out: io.Discard, err: io.Discard})
		if schemas.CodeOf(err) != schemas.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
