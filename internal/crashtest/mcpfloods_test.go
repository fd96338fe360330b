package crashtest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// skillFloods are ways to have an installation hold skills, and what the Model Context Protocol answers.
func skillFloods() []flood {
	return []flood{
		{name: "skills of the largest size, added and loaded", do: (*flooder).largestSkills},
		{name: "tools, artifacts and tasks by the Model Context Protocol", prepare: (*flooder).leaveArtifacts, do: (*flooder).byMCP, short: true},
		{name: "unread artifacts by the Model Context Protocol", prepare: (*flooder).leaveArtifacts, do: (*flooder).untakenArtifacts},
	}
}

// largestSkill is a tar of a skill that takes as much as one may, and that differs from that of any other number.
func largestSkill(name string, n int) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(file string, content []byte) {
		_ = w.WriteHeader(&tar.Header{Name: name + "/" + file, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}) // into memory
		_, _ = w.Write(content)
	}
	add("SKILL.md", fmt.Appendf(nil, "---\nname: %s\ndescription: large\n---\n%d\n", name, n))
	for part := range more(50) {
		add(fmt.Sprintf("references/%d.bin", part), bytes.Repeat([]byte{byte(n), byte(part)}, 290_000)) // below 30 MiB together
	}
	_ = w.Close()
	return b.Bytes()
}

// largestSkills adds skills over and over and has calls load them, eight at a time.
func (f *flooder) largestSkills(ctx context.Context) {
	c := client.New("http://"+f.gateway, f.key)
	many(ctx, 8, func(i int) {
		name := fmt.Sprint("skill-", i%4)
		if i%2 == 0 {
			_, err := c.Skills().Put(ctx, name, largestSkill(name, i))
			if err != nil {
				f.refusal.Store(err.Error())
			}
			f.count(1, err == nil)
			return
		}
		_, _ = f.run(ctx, schemas.ToolLoadSkill, schemas.LoadSkillInput{Name: name}) // it is counted
	})
}

// client is one of the Model Context Protocol that knows tasks.
func (f *flooder) client() mcpUser {
	return mcpUser{c: f.cluster, gateway: f.gateway, revision: mcpModern, query: "?conversation=loud",
		can: map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}}
}

// leaveArtifacts has a call leave artifacts of the largest size that is read as a resource, of characters that JSON makes six of.
func (f *flooder) leaveArtifacts(ctx context.Context) {
	command := fmt.Sprintf("mkdir -p outputs; for i in $(seq %d); do (echo $i; head -c 1000000 /dev/zero | tr '\\0' '\\001') > outputs/$i; done", more(20))
	r, err := f.client().call(ctx, "leave", command)
	if err != nil || r.TaskID == "" && r.Record.Status != schemas.StatusCompleted {
		f.t.Fatalf("%+v %v", r, err)
	}
	for ctx.Err() == nil && len(f.artifacts) < more(20) {
		var list struct{ Artifacts []schemas.Artifact }
		_, answer := f.ask(ctx, http.MethodGet, "/v1/conversations/loud/artifacts", nil)
		_ = json.Unmarshal(answer, &list) // what is no list has none
		f.artifacts = list.Artifacts
	}
	if len(f.artifacts) == 0 {
		f.t.Fatal("the call has left nothing")
	}
	for method, params := range map[string]map[string]any{"resources/list": {}, "resources/read": {"uri": f.artifactURI(0)}} {
		uri, _ := params["uri"].(string)
		if _, err := f.client().ask(ctx, method, uri, params); err != nil {
			f.t.Fatalf("before the flood %s fails: %v", method, err)
		}
	}
}

func (f *flooder) artifactURI(i int) string {
	return "sandjet://artifacts/" + string(f.artifacts[i%len(f.artifacts)].ID)
}

// byMCP calls tools, reads and lists artifacts and follows tasks, 80 at a time, in the short form 8.
func (f *flooder) byMCP(ctx context.Context) {
	u := f.client()
	count := func(err error) {
		if ctx.Err() != nil { // it was cut off
			return
		}
		if err != nil {
			f.refusal.Store(err.Error())
		}
		f.count(1, err == nil)
	}
	many(ctx, more(80), func(i int) {
		var err error
		switch mark := fmt.Sprint("use-", i/4); i % 4 {
		case 0:
			_, err = u.call(ctx, mark, "head -c 200000 /dev/zero | tr '\\0' '\\001'")
		case 1:
			_, err = u.ask(ctx, "resources/read", f.artifactURI(i), map[string]any{"uri": f.artifactURI(i)})
		case 2:
			_, err = u.ask(ctx, "resources/list", "", map[string]any{})
		default:
			var r mcpResult
			if r, err = u.call(ctx, mark, "head -c 200000 /dev/zero | tr '\\0' '\\001'"); err == nil {
				_, err = u.task(ctx, max(string(r.Record.Call), r.TaskID))
			}
		}
		count(err)
	})
}

// untakenArtifacts reads artifacts over connections that take no answer.
func (f *flooder) untakenArtifacts(ctx context.Context) {
	f.hold(ctx, f.gateway, more(2000), func(i int) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/read","params":{"uri":%q}}`, i, f.artifactURI(i))
		return strings.Join([]string{
			"POST /mcp?conversation=loud HTTP/1.1", "Host: x", "Authorization: Bearer " + f.key, "Content-Type: application/json",
			"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: " + mcpOlder, fmt.Sprint("Content-Length: ", len(body)), "", body,
		}, "\r\n")
	})
}
