package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// left is an artifact of a desk.
type left struct {
	schemas.Artifact

	content string
}

// leave has a call leave a file below outputs.
func (d *desk) leave(c schemas.Call, name, content string) schemas.Artifact {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := schemas.NewArtifact(c, "outputs/"+name, int64(len(content)), fmt.Sprintf("%064d", len(d.artifacts)), []byte(content), accepted)
	d.artifacts = append(d.artifacts, left{a, content})
	return a
}

func (d *desk) Artifacts(_ context.Context, c schemas.ConversationID, limit int, after schemas.ArtifactID) (
	list []schemas.Artifact, next schemas.ArtifactID, err error,
) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.artifacts, func(l left) bool { return l.ID == after })
	if after != "" && at < 0 {
		return nil, "", schemas.Errorf(schemas.NotFound, "there is no such artifact")
	}
	for _, l := range d.artifacts[at+1:] {
		if l.Conversation != c {
			continue
		}
		if len(list) == limit {
			return list, list[limit-1].ID, nil
		}
		list = append(list, l.Artifact)
	}
	return list, "", nil
}

func (d *desk) Artifact(_ context.Context, of schemas.ConversationID, id schemas.ArtifactID, most int64) (schemas.Artifact, []byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.artifacts {
		switch {
		case l.ID != id || of != "" && l.Conversation != of:
		case l.Size > most:
			return l.Artifact, nil, mcp.ArtifactTooLarge(id, l.Size, most)
		default:
			return l.Artifact, []byte(l.content), nil
		}
	}
	return schemas.Artifact{}, nil, schemas.Errorf(schemas.NotFound, "there is no such artifact")
}

func (f *fixtures) Artifacts(context.Context, schemas.ConversationID, int, schemas.ArtifactID) ([]schemas.Artifact, schemas.ArtifactID, error) {
	return nil, "", nil
}

func (f *fixtures) Artifact(context.Context, schemas.ConversationID, schemas.ArtifactID, int64) (schemas.Artifact, []byte, error) {
	return schemas.Artifact{}, nil, schemas.Errorf(schemas.NotFound, "there is no artifact")
}

// callOf is a call of the scope that tests have.
func callOf(conversation string) schemas.Call {
	return schemas.Call{Account: "acct_a", Conversation: schemas.ConversationID(conversation), ID: "mcp_1"}
}

// TestArtifactsAreLinks: an answer, and the result of a task, link to what the call has left, and the link is read as it stands.
func TestArtifactsAreLinks(t *testing.T) {
	t.Parallel()
	d := newDesk()
	made := []schemas.Artifact{d.leave(callOf("c_1"), "é t.csv", "a,b\n1,2\n"), d.leave(callOf("c_1"), "empty", ""), d.leave(callOf("c_1"), "plot.png", "\x89PNG\x00")}
	check := func(l *line, content []sdk.Content) {
		t.Helper()
		if len(content) != 1+len(made) {
			t.Fatalf("%d parts: %+v", len(content), content)
		}
		for i, a := range made {
			link, ok := content[1+i].(*sdk.ResourceLink)
			if !ok || link.URI != "sandjet://artifacts/"+string(a.ID) || link.Name != a.Name || link.Description != a.Path ||
				link.MIMEType != a.MIMEType || link.Size == nil || *link.Size != a.Size {
				t.Errorf("%+v is linked as %+v", a, content[1+i])
				continue
			}
			got, err := l.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
			if err != nil {
				t.Errorf("%s: %v", a.Name, err)
				continue
			}
			c := got.Contents[0]
			if c.Text+string(c.Blob) != d.artifacts[i].content || (c.Blob != nil) != (a.Name == "plot.png" || a.Size == 0) || c.MIMEType != a.MIMEType ||
				c.URI != link.URI || got.CacheScope != "private" {
				t.Errorf("%s: %+v", a.Name, c)
			}
		}
	}
	end := func(id schemas.CallID) {
		d.mu.Lock()
		d.calls[id].result = &schemas.Result{Call: id, Conversation: "c_1", Tool: "bash", Status: schemas.StatusFailed, Text: "left",
			Artifacts: made, Started: accepted, Finished: accepted}
		d.change()
		d.mu.Unlock()
	}
	l := dial(t, d, mcp.Options{}, newClient(nil))
	got := l.begin(t.Context(), bash(nil))
	end(d.next(t, 0))
	a := <-got
	if a.err != nil {
		t.Fatal(a.err)
	}
	record(t, l, a.res)
	check(l, a.res.Content)

	tasks := tasking(t, d, mcp.Options{Wait: time.Millisecond})
	if _, err := tasks.CallTool(t.Context(), bash(nil)); err != nil {
		t.Fatal(err)
	}
	id := d.next(t, 1)
	end(id)
	task := tasks.task(t, "tasks/get", taskAsk{TaskID: string(id)})
	if task.Result == nil {
		t.Fatalf("%+v", task)
	}
	check(tasks, task.Result.Content)
	asked, err := l.CallTool(t.Context(), &sdk.CallToolParams{Name: "async_status", Arguments: map[string]any{"statusId": string(id)}})
	if err != nil {
		t.Fatal(err)
	}
	check(l, asked.Content)
}

// TestRevisionsHaveTheArtifactsThatTheyKnow over HTTP: links and lists in both, and no link where clients do not know any.
func TestRevisionsHaveTheArtifactsThatTheyKnow(t *testing.T) {
	t.Parallel()
	d := newDesk()
	made := d.leave(callOf("c_1"), "a.txt", "text")
	id := mcp.CallIDOf(scopeOf(d), "sandjet/idempotencyKey=k")
	d.calls[id] = &held{result: &schemas.Result{Call: id, Conversation: "c_1", Tool: "bash", Status: schemas.StatusCompleted, Text: "left",
		Artifacts: []schemas.Artifact{made}}}
	s := mcp.New(mcp.Options{})
	t.Cleanup(s.Close)
	uri := "sandjet://artifacts/" + string(made.ID)
	call, read := `"name":"bash","arguments":{}`, fmt.Sprintf(`"uri":%q`, uri)
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		ask := func(method, params, name string) string {
			mark := `"sandjet/idempotencyKey":"k"`
			h := http.Header{"Mcp-Protocol-Version": {revision}}
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s"_meta":{%s}}}`, method, params, mark)
			if revision == "2026-07-28" {
				h, body = modernHeaders(method, name), marked(method, strings.TrimSuffix(params, ","), ","+mark)
			}
			got := post(t, s, scopeOf(d), body, h)
			if got.status != http.StatusOK {
				t.Errorf("%s: %s: %d %s", revision, method, got.status, got.body)
			}
			return string(got.data(t))
		}
		var called struct {
			Result struct{ Content []struct{ Type, URI string } }
		}
		if answer := ask("tools/call", call+",", "bash"); json.Unmarshal([]byte(answer), &called) != nil {
			t.Fatalf("%s: %s", revision, answer)
		}
		linked := len(called.Result.Content) == 2 && called.Result.Content[1].Type == "resource_link" && called.Result.Content[1].URI == uri
		if want := revision >= "2025-06-18"; linked != want || !want && len(called.Result.Content) != 1 {
			t.Errorf("%s: %+v", revision, called)
		}
		var listed struct {
			Result struct {
				Resources  []struct{ URI, Name, MIMEType string }
				CacheScope string
				ResultType string
			}
		}
		answer := ask("resources/list", "", "")
		if err := json.Unmarshal([]byte(answer), &listed); err != nil || len(listed.Result.Resources) != 1 || listed.Result.Resources[0].URI != uri {
			t.Errorf("%s: %s %v", revision, answer, err)
		}
		if modern := revision == "2026-07-28"; modern && (listed.Result.ResultType != "complete" || listed.Result.CacheScope != "private") {
			t.Errorf("%s: %s", revision, answer)
		}
		if answer := ask("resources/read", read+",", uri); !strings.Contains(answer, `"text":"text"`) {
			t.Errorf("%s: %s", revision, answer)
		}
		if answer := ask("resources/templates/list", "", ""); !strings.Contains(answer, `"sandjet://artifacts/{id}"`) ||
			!strings.Contains(answer, `"sandjet://{workspace}/{+path}"`) {
			t.Errorf("%s: %s", revision, answer)
		}
	}
}

// TestArtifactsAreListedByPages, in the order in which they were made, and those of one conversation.
func TestArtifactsAreListedByPages(t *testing.T) {
	t.Parallel()
	d := newDesk()
	var want, got []string
	for n := range 2*mcp.PageOfArtifacts + 3 {
		want = append(want, "sandjet://artifacts/"+string(d.leave(callOf("c_1"), fmt.Sprintf("%d.txt", n), "text").ID))
		d.leave(callOf("c_2"), fmt.Sprintf("%d.txt", n), "text")
	}
	l := dial(t, d, mcp.Options{}, newClient(nil))
	for p := new(sdk.ListResourcesParams); ; {
		page, err := l.ListResources(t.Context(), p)
		if err != nil || len(page.Resources) > mcp.PageOfArtifacts {
			t.Fatalf("%+v %v", page, err)
		}
		for _, r := range page.Resources {
			got = append(got, r.URI)
		}
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %d: %v", len(got), got)
	}
	gone := "art_" + strings.Repeat("0", 32)
	for cursor, says := range map[string]string{"x": "cursor: is not one that this server gave", gone: "cursor: names an artifact that is gone"} {
		if _, err := l.ListResources(t.Context(), &sdk.ListResourcesParams{Cursor: cursor}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", cursor, err)
		}
	}
	none := dialScope(t, mcp.Scope{Account: "acct_a", Caller: d}, mcp.Options{}, newClient(nil))
	if page, err := none.ListResources(t.Context(), nil); err != nil || len(page.Resources) > 0 || page.NextCursor != "" {
		t.Errorf("without a conversation: %+v %v", page, err)
	}
}

// TestAnAgentReadsArtifactsOfItsConversation, if it reads files at all; an account reads all of its own.
func TestAnAgentReadsArtifactsOfItsConversation(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object"}`)
	reader, other := newDesk(), newDesk()
	reader.tools = []mcp.Tool{{Name: "bash", InputSchema: schema}, {Name: "read", InputSchema: schema}}
	other.tools = reader.tools[:1]
	const own, shared = 0, 2
	for _, d := range []*desk{reader, other} {
		d.leave(callOf("c_1"), "own", "text")
		d.leave(callOf("c_2"), "another's", "text")
		d.leave(callOf("mcp_1"), "its call's", "text")
	}
	for name, c := range map[string]struct {
		d            *desk
		agent        schemas.AgentID
		conversation schemas.ConversationID
		reads        []int
		says         string
		lists        int
	}{
		"an account":                       {other, "", "c_1", []int{0, 1, 2}, "", 1},
		"an account, no conversation":      {other, "", "", []int{0, 1, 2}, "", 0},
		"an agent":                         {reader, "agent_1", "c_1", []int{own}, "not found", 1},
		"an agent, no conversation":        {reader, "agent_1", "", []int{shared}, "not found", 0},
		"an agent that reads no files":     {other, "agent_1", "c_1", nil, "the tool read is not enabled", 0},
		"the same, without a conversation": {other, "agent_1", "", nil, "the tool read is not enabled", 0},
	} {
		l := dialScope(t, mcp.Scope{Account: "acct_a", Agent: c.agent, Conversation: c.conversation, Caller: c.d}, mcp.Options{}, newClient(nil))
		for i, a := range c.d.artifacts {
			got, err := l.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sandjet://artifacts/" + string(a.ID)})
			if may := slices.Contains(c.reads, i); may && (err != nil || got.Contents[0].Text != "text") ||
				!may && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, %s: %+v %v", name, a.Name, got, err)
			}
		}
		if page, err := l.ListResources(t.Context(), nil); err != nil || len(page.Resources) != c.lists {
			t.Errorf("%s: lists %+v %v", name, page, err)
		}
	}
}

// TestALargeArtifactIsNotReadAsAResource: the error says what has all of it, and a file of a like name is a file.
func TestALargeArtifactIsNotReadAsAResource(t *testing.T) {
	t.Parallel()
	s := &shelf{desk: newDesk(), page: 100, files: map[string]string{
		"artifacts/art_1": "a file", "artifacts/" + "art_" + strings.Repeat("0", 33): "another", "other/art_" + strings.Repeat("0", 32): "a third",
	}}
	large := s.leave(callOf("c_1"), "large", strings.Repeat("x", mcp.MaxResource+1))
	whole := s.leave(callOf("c_1"), "whole", strings.Repeat("\x00", mcp.MaxResource))
	l := connect(t, s)
	read := func(uri string) (string, error) {
		got, err := l.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		if err != nil {
			return "", err
		}
		return got.Contents[0].Text + string(got.Contents[0].Blob), nil
	}
	if _, err := read("sandjet://artifacts/" + string(large.ID)); err == nil ||
		!strings.Contains(err.Error(), "has 1048577 bytes, and at most 1048576 are read as a resource: GET /v1/artifacts/"+string(large.ID)) {
		t.Errorf("too large: %v", err)
	}
	if got, err := read("sandjet://artifacts/" + string(whole.ID)); err != nil || len(got) != mcp.MaxResource {
		t.Errorf("the largest: %d bytes, %v", len(got), err)
	}
	if _, err := read("sandjet://artifacts/art_" + strings.Repeat("0", 32)); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("none: %v", err)
	}
	for name, content := range s.files {
		if got, err := read("sandjet://" + name); err != nil || got != content {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}
