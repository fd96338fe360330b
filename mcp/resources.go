package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// MaxResource is the largest artifact or text file that is read as a resource, in bytes. Other files are read by a single call of the tool
// read, which limits their size.
const MaxResource = 1 << 20

const (
	resourceScheme   = "sandjet"
	resourceTemplate = resourceScheme + "://{workspace}/{+path}"
	wholeFile        = 1_000_000 // lines
)

// addResources registers the files of workspaces, and artifacts, as resources. A URI of an artifact matches both templates, so both have
// the same handler.
func (c *session) addResources(srv *sdk.Server) {
	srv.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "workspace file", URITemplate: resourceTemplate,
		Description: "A file of a workspace, such as sandjet://default/notes.txt: text of at most 1 MiB, anything else of at most 96 KiB.",
	}, c.readResource)
	srv.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "artifact", URITemplate: artifactTemplate,
		Description: "What a call has left below outputs in its workspace, as it was when the call ended, of at most 1 MiB. Answers of calls link to theirs.",
	}, c.readResource)
}

// readResource reads an artifact, or a file through the tool read, with the permissions of the client's agent.
func (c *session) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	workspace, name, err := fileOf(req.Params.URI)
	if err != nil {
		return nil, protocolError(err)
	}
	if id, ok := artifactAt(workspace, name); ok {
		return c.readArtifact(ctx, req.Params.URI, id)
	}
	f := file{session: c, workspace: workspace, name: name}
	content, text, err := f.read(ctx)
	if errors.Is(err, errChanged) { // while it was read: once more
		content, text, err = f.read(ctx)
	}
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	case err != nil:
		return nil, protocolError(err)
	}
	media := mime.TypeByExtension(path.Ext(name))
	if media == "" {
		media = http.DetectContentType(content)
	}
	return contentsOf(req.Params.URI, media, content, text), nil
}

// contentsOf returns the content of a resource. The protocol requires a text or a blob, and the SDK omits an empty text, so empty content
// is a blob.
func contentsOf(uri, media string, content []byte, text bool) *sdk.ReadResourceResult {
	out := &sdk.ResourceContents{URI: uri, MIMEType: media}
	if text && len(content) > 0 {
		out.Text = string(content)
	} else {
		out.Blob = append([]byte{}, content...)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{out}}
}

// fileOf parses the URI of a resource. Code: invalid.
func fileOf(uri string) (workspace, name string, err error) {
	rest, ok := strings.CutPrefix(uri, resourceScheme+"://")
	host, file, slash := strings.Cut(rest, "/")
	if !ok || !slash || strings.ContainsAny(uri, "?#") {
		return "", "", schemas.Invalidf("uri", "is not of the form %s", resourceTemplate)
	}
	var nerr error
	workspace, err = url.PathUnescape(host)
	name, nerr = url.PathUnescape(file)
	if err != nil || nerr != nil {
		return "", "", schemas.Invalidf("uri", "has a %% that escapes nothing")
	}
	if workspace == "" || name == "" || len(name) > schemas.MaxPath {
		return "", "", schemas.Invalidf("uri", "names no file of a workspace: the form is %s", resourceTemplate)
	}
	return workspace, name, nil
}

// errChanged is the error for a file that was written while it was read.
var errChanged = schemas.Errorf(schemas.Conflict, "the file changes while it is read: try again")

type file struct {
	*session

	workspace, name string
}

// page is the structured result of the tool read for a part of a file.
type page struct {
	Size       int64  `json:"size"`
	Encoding   string `json:"encoding"`
	Content    string `json:"content"`
	NextOffset *int64 `json:"next_offset"`
	ETag       string `json:"etag"`
}

// read returns the whole content of a file, and whether it is text. Codes: not_found, invalid, exhausted (it is too large), and those of
// calls.
func (f file) read(ctx context.Context) (content []byte, text bool, err error) {
	var (
		whole strings.Builder
		etag  string
		from  int64 = 1
	)
	for {
		p, err := f.page(ctx, schemas.DialectClaude, from)
		if from == 1 && errors.Is(err, schemas.ErrInvalid) { // not text, most likely
			return f.binary(ctx, err)
		}
		switch {
		case err != nil:
			return nil, false, err
		case p.Size > MaxResource:
			return nil, false, schemas.OpErrorf(schemas.Exhausted, "uri",
				"the file has %d bytes: at most %d are read as a resource", p.Size, MaxResource)
		case from > 1 && p.ETag != etag:
			return nil, false, errChanged
		}
		etag = p.ETag
		whole.WriteString(p.Content)
		if p.NextOffset == nil {
			break
		}
		if !strings.HasSuffix(p.Content, "\n") {
			return nil, false, schemas.OpErrorf(schemas.Exhausted, "uri",
				"a line of the file is longer than a page of the tool read: read it by a command")
		}
		if *p.NextOffset <= from || whole.Len() > MaxResource {
			return nil, false, errChanged
		}
		from = *p.NextOffset
	}
	content = []byte(whole.String())
	if sum := sha256.Sum256(content); etag != "" && hex.EncodeToString(sum[:]) != etag {
		return nil, false, schemas.OpErrorf(schemas.Invalid, "uri", "the file is not UTF-8: read it by a command, such as base64")
	}
	return content, true, nil
}

// binary reads a file that the tool read does not return as text; why is the error to return if it cannot be read as binary either.
func (f file) binary(ctx context.Context, why error) (content []byte, text bool, err error) {
	p, err := f.page(ctx, schemas.DialectDeepAgents, 0)
	if err != nil {
		return nil, false, err
	}
	if p.Encoding != "base64" {
		return nil, false, why
	}
	if content, err = base64.StdEncoding.DecodeString(p.Content); err != nil {
		return nil, false, protocolError(err)
	}
	return content, false, nil
}

// page calls the tool read for the part of a file that begins at an offset.
func (f file) page(ctx context.Context, d schemas.Dialect, from int64) (p page, err error) {
	input, err := json.Marshal(map[string]any{"file_path": f.name, "offset": from, "limit": wholeFile})
	if err != nil {
		return p, err
	}
	r := schemas.Request{
		ID: newCallID(), Agent: f.scope.Agent, Workspace: f.workspace, Conversation: f.scope.Conversation,
		Tool: schemas.ToolRead, Input: input, Dialect: d,
	}
	if r.Conversation == "" {
		r.Conversation = schemas.ConversationID(r.ID)
	}
	st, err := f.scope.Caller.Submit(ctx, r)
	if err == nil && st.Result == nil {
		st, err = f.scope.Caller.Wait(ctx, st.ID, f.Wait)
	}
	switch {
	case err != nil:
		return p, err
	case st.Withheld != nil:
		return p, st.Withheld
	case st.Result == nil:
		return p, schemas.Errorf(schemas.Timeout, "the file is not read yet: the call is %s", st.Status)
	case st.Result.Status != schemas.StatusCompleted:
		if st.Result.Error != nil {
			return p, st.Result.Error
		}
		return p, schemas.Errorf(schemas.Unavailable, "the file was not read: the call is %s", st.Result.Status)
	case st.Result.Output == nil:
		return p, schemas.Errorf(schemas.Internal, "the file was read to no output")
	}
	b, err := json.Marshal(st.Result.Output.Data)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(b, &p)
}
