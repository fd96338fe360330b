package mcp_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// shelf is a desk whose tool read answers at once, from files in memory.
type shelf struct {
	*desk

	files map[string]string
	page  int // bytes of a page
	bump  int // reads after which the file changes
	reads int
}

func (s *shelf) Submit(ctx context.Context, r schemas.Request) (mcp.State, error) {
	st, err := s.desk.Submit(ctx, r)
	if err != nil {
		return st, err
	}
	var in struct {
		FilePath string `json:"file_path"`
		Offset   int    `json:"offset"`
	}
	if err := json.Unmarshal(r.Input, &in); err != nil {
		return st, err
	}
	res := s.answer(r, in.FilePath, in.Offset)
	res.Call = r.ID
	st.Result = &res
	return st, nil
}

func (s *shelf) answer(r schemas.Request, name string, offset int) schemas.Result {
	failed := func(code schemas.Code, text string) schemas.Result {
		return schemas.Result{Status: schemas.StatusFailed, Error: &schemas.Error{Code: code, Message: text}}
	}
	content, ok := s.files[r.Workspace+"/"+name]
	if !ok {
		return failed(schemas.NotFound, "no such file")
	}
	if s.reads++; s.bump > 0 && s.reads > s.bump {
		content = "changed\n" + content
	}
	binary := strings.Contains(content, "\x00")
	sum := sha256.Sum256([]byte(content))
	data := map[string]any{"size": len(content), "encoding": "utf-8", "etag": hex.EncodeToString(sum[:])}
	switch {
	case binary && r.Dialect != schemas.DialectDeepAgents:
		return failed(schemas.Invalid, "it is binary")
	case binary:
		data["encoding"], data["content"] = "base64", base64.StdEncoding.EncodeToString([]byte(content))
	default:
		lines := strings.SplitAfter(content, "\n")
		text, next := "", offset
		for _, line := range lines[offset-1:] {
			if len(text)+len(line) > s.page && text != "" {
				break
			}
			text += line
			next++
		}
		if len(text) > s.page {
			text = text[:s.page]
		}
		data["content"] = strings.ToValidUTF8(text, "\uFFFD")
		if next <= len(lines) && strings.Join(lines[next-1:], "") != "" || len(text) == s.page && !strings.HasSuffix(text, "\n") {
			data["next_offset"] = next
		}
	}
	return schemas.Result{Status: schemas.StatusCompleted, Output: &schemas.Output{Data: data}}
}

// TestFilesAreResources: whole and unchanged, or not at all.
func TestFilesAreResources(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("a line of a file\r\n", 40)
	s := &shelf{desk: newDesk(), page: 100, files: map[string]string{
		"default/a.txt": "one\ntwo", "default/d/e f.md": "# é\n", "docs/many": many, "docs/empty": "", "docs/bin": "\x00\x01",
		"docs/latin": "caf\xe9\n", "docs/wide": strings.Repeat("x", 500), "docs/big": strings.Repeat("y\n", mcp.MaxResource/2+1),
		"my docs/x": "spaced\n",
	}}
	l := connect(t, s)
	for uri, want := range map[string]string{
		"sandjet://default/a.txt": "one\ntwo", "sandjet://default/d/e%20f.md": "# é\n", "sandjet://docs/many": many, "sandjet://docs/empty": "",
		"sandjet://docs/bin": "\x00\x01", "sandjet://my%20docs/x": "spaced\n",
	} {
		got, err := l.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		c := got.Contents[0]
		if c.Text+string(c.Blob) != want || (c.Blob != nil) != (want == "" || strings.Contains(want, "\x00")) || c.MIMEType == "" || got.CacheScope != "private" {
			t.Errorf("%s: %+v", uri, c)
		}
	}
	for uri, says := range map[string]string{
		"sandjet://docs/none": "not found", "sandjet://docs/latin": "not UTF-8", "sandjet://docs/wide": "a line of the file",
		"sandjet://docs/big": "at most 1048576", "sandjet://docs/": "", "sandjet:///x": "", "file:///etc/passwd": "not found",
		"sandjet://docs/a?x=1": "", "sandjet://docs/a#x": "",
	} {
		if got, err := l.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v %v", uri, got, err)
		}
	}
}

// TestAFileThatChangesIsReadOnceMore, and refused when it keeps changing.
func TestAFileThatChangesIsReadOnceMore(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a line of a file\n", 40)
	s := &shelf{desk: newDesk(), page: 100, bump: 2, files: map[string]string{"d/x": long}}
	session := connect(t, s)
	got, err := session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sandjet://d/x"})
	if err != nil || got.Contents[0].Text != "changed\n"+long {
		t.Errorf("%v %v", got, err)
	}
}

// connect is a session with a server of files.
func connect(t *testing.T, s *shelf) *sdk.ClientSession {
	t.Helper()
	return dialScope(t, mcp.Scope{Account: "acct_a", Caller: s}, mcp.Options{Wait: time.Minute}, newClient(nil)).ClientSession
}
