package mcp

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// artifactsHost stands where the URI of a file names its workspace.
	artifactsHost    = "artifacts"
	artifactTemplate = resourceScheme + "://" + artifactsHost + "/{id}"
	// artifactIDSize is the length of every artifact id. Any other text in its place is the path of a file, in a workspace named
	// "artifacts".
	artifactIDSize = len(schemas.ArtifactPrefix) + 32
)

// PageOfArtifacts is how many artifacts a page of resources/list has.
const PageOfArtifacts = 50

// linked is the first revision whose clients know links to resources in the answers of tools.
const linked = "2025-06-18"

func artifactURI(id schemas.ArtifactID) string {
	return resourceScheme + "://" + artifactsHost + "/" + url.PathEscape(string(id))
}

// artifactAt returns the id of the artifact that a URI names; ok is false if it names a file.
func artifactAt(workspace, name string) (id schemas.ArtifactID, ok bool) {
	id = schemas.ArtifactID(name)
	return id, workspace == artifactsHost && len(name) == artifactIDSize && id.Validate() == nil
}

// links returns the artifacts of a result as links; none for revisions that do not have links.
func links(revision string, artifacts []schemas.Artifact) (list []sdk.Content) {
	if revision < linked {
		return nil
	}
	for _, a := range artifacts {
		list = append(list, &sdk.ResourceLink{
			URI: artifactURI(a.ID), Name: a.Name, Description: a.Path, MIMEType: a.MIMEType, Size: new(a.Size),
		})
	}
	return list
}

// listResources returns a page of the artifacts of the scope's conversation. For a client without a conversation the list is empty; the
// answers to its calls contain links.
func (c *session) listResources(ctx context.Context, p *sdk.ListResourcesParams) (*sdk.ListResourcesResult, error) {
	page := &sdk.ListResourcesResult{Resources: []*sdk.Resource{}}
	page.CacheScope = "private"
	var after schemas.ArtifactID
	if p != nil && p.Cursor != "" {
		if after = schemas.ArtifactID(p.Cursor); after.Validate() != nil {
			return nil, protocolError(schemas.Invalidf("cursor", "is not one that this server gave: list from the beginning"))
		}
	}
	if c.scope.Conversation == "" {
		return page, nil
	}
	if may, err := c.mayRead(ctx); err != nil || !may {
		return page, err
	}
	list, next, err := c.scope.Caller.Artifacts(ctx, c.scope.Conversation, PageOfArtifacts, after)
	switch {
	case after != "" && errors.Is(err, schemas.ErrNotFound):
		return nil, protocolError(schemas.Invalidf("cursor", "names an artifact that is gone: list from the beginning"))
	case err != nil:
		return nil, protocolError(err)
	}
	for _, a := range list {
		page.Resources = append(page.Resources, &sdk.Resource{
			URI: artifactURI(a.ID), Name: a.Name, Description: a.Path, MIMEType: a.MIMEType, Size: a.Size,
		})
	}
	page.NextCursor = string(next)
	return page, nil
}

// mayRead reports whether the client's agent has the tool read, which the reading of files requires. An account without an agent may read
// everything.
func (c *session) mayRead(ctx context.Context) (bool, error) {
	if c.scope.Agent == "" {
		return true, nil
	}
	tools, err := c.scope.Caller.Tools(ctx, c.scope.Agent)
	if err != nil {
		return false, protocolError(err)
	}
	for _, t := range tools {
		if t.Name == string(schemas.ToolRead) {
			return true, nil
		}
	}
	return false, nil
}

// readArtifact returns the bytes of an artifact. An agent can read the artifacts of its conversation or, if it has none, those of calls
// that have a conversation of their own.
func (c *session) readArtifact(ctx context.Context, uri string, id schemas.ArtifactID) (*sdk.ReadResourceResult, error) {
	may, err := c.mayRead(ctx)
	if err != nil {
		return nil, err
	}
	if !may {
		return nil, protocolError(schemas.OpErrorf(schemas.Denied, "uri", "the tool %s is not enabled for this agent", schemas.ToolRead))
	}
	var of schemas.ConversationID
	if c.scope.Agent != "" {
		of = c.scope.Conversation
	}
	a, content, err := c.scope.Caller.Artifact(ctx, of, id, MaxResource)
	ofItsCall := isCall(string(a.Call)) && string(a.Conversation) == string(a.Call)
	switch {
	case errors.Is(err, schemas.ErrNotFound), err == nil && c.scope.Agent != "" && of == "" && !ofItsCall:
		return nil, sdk.ResourceNotFoundError(uri)
	case err != nil:
		return nil, protocolError(err)
	}
	return contentsOf(uri, a.MIMEType, content, utf8.Valid(content) && bytes.IndexByte(content, 0) < 0), nil
}

// ArtifactTooLarge returns the error for an artifact that is too large to be read as a resource. A size of 0 means that it is unknown, but
// more than most.
func ArtifactTooLarge(id schemas.ArtifactID, size, most int64) error {
	if size == 0 {
		return schemas.OpErrorf(schemas.Exhausted, "uri",
			"the artifact has more than %d bytes: GET /v1/artifacts/%s of the gateway, or \"sandjet artifacts get\", has all of them", most, id)
	}
	return schemas.OpErrorf(schemas.Exhausted, "uri",
		"the artifact has %d bytes, and at most %d are read as a resource: GET /v1/artifacts/%s of the gateway, or \"sandjet artifacts get\", "+
			"has all of them", size, most, id)
}
