package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Artifacts reads the artifacts of an account: files that calls and jobs have left.
type Artifacts struct{ transport }

// Artifacts returns access to the account's artifacts. It sends no request.
func (c *Client) Artifacts() Artifacts { return Artifacts{c.transport()} }

// List returns the artifacts of a conversation, the oldest first: at most limit (0: 50; at most 200) of those after the artifact after
// (empty: from the first). Next is the value of after for the next page; it is empty after the last page. Code: not_found (after does not
// exist any more).
func (c Artifacts) List(ctx context.Context, conversation schemas.ConversationID, limit int, after schemas.ArtifactID) (
	list []schemas.Artifact, next schemas.ArtifactID, err error,
) {
	values := url.Values{}
	if limit != 0 {
		values.Set("limit", strconv.Itoa(limit))
	}
	if after != "" {
		values.Set("after", string(after))
	}
	var out struct {
		Artifacts []schemas.Artifact `json:"artifacts"`
		Next      schemas.ArtifactID `json:"next"`
	}
	path := "/v1/conversations/" + url.PathEscape(string(conversation)) + "/artifacts"
	err = c.keepAsking(ctx, http.MethodGet, withQuery(path, values), nil, &out)
	return out.Artifacts, out.Next, err
}

func artifactPath(id schemas.ArtifactID) string { return "/v1/artifacts/" + url.PathEscape(string(id)) }

// Download writes an artifact to out, and returns its file name and its size in bytes. If the connection breaks it continues from there.
// It returns no error only if the bytes match the artifact's SHA-256. Codes: not_found, internal (they do not match).
func (c Artifacts) Download(ctx context.Context, id schemas.ArtifactID, out io.Writer) (name string, n int64, err error) {
	sum := sha256.New()
	d := download{t: c.transport, path: artifactPath(id), out: &written{w: io.MultiWriter(out, sum)}}
	if err := d.all(ctx); err != nil {
		return "", d.at, err
	}
	if want := strings.Trim(d.etag, `"`); hex.EncodeToString(sum.Sum(nil)) != want {
		return "", d.at, schemas.OpErrorf(schemas.Internal, "download", "%d bytes came, and they are not those of the artifact", d.at)
	}
	_, params, err := mime.ParseMediaType(d.disposition)
	if err != nil {
		params = nil // it is saved under another name
	}
	return params["filename"], d.at, nil
}

// Remove deletes an artifact. Code: not_found.
func (c Artifacts) Remove(ctx context.Context, id schemas.ArtifactID) error {
	return c.keepAsking(ctx, http.MethodDelete, artifactPath(id), nil, nil)
}

// all reads until the file is complete, over as many connections as needed.
func (d *download) all(ctx context.Context) error {
	for try := 0; ; try++ {
		before := d.at
		err := d.once(ctx)
		if err == nil || d.out.err != nil || !errors.Is(err, errAgain) {
			return err
		}
		if d.at > before {
			try = 0
		}
		if perr := d.t.pause(ctx, try); perr != nil {
			return fmt.Errorf("%w (last failure: %w)", perr, err)
		}
	}
}
