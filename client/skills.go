package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

func skillPath(id string) string { return "/v1/skills/" + url.PathEscape(id) }

// Skills reads and changes the skills of an account.
type Skills struct{ transport }

// Skills returns access to the account's skills. It sends no request.
func (c *Client) Skills() Skills { return Skills{c.transport()} }

// List returns the account's skills, sorted by name.
func (c Skills) List(ctx context.Context) ([]schemas.SkillDocument, error) {
	var out struct {
		Skills []schemas.SkillDocument `json:"skills"`
	}
	err := c.keepAsking(ctx, http.MethodGet, "/v1/skills", nil, &out)
	return out.Skills, err
}

// Get returns a skill by its name or id. Code: not_found.
func (c Skills) Get(ctx context.Context, id string) (k schemas.SkillDocument, err error) {
	err = c.keepAsking(ctx, http.MethodGet, skillPath(id), nil, &k)
	return k, err
}

// Put adds a skill, or replaces the one with its name, with the files in a tar, optionally compressed with gzip. A repetition changes
// nothing, so it is retried. Codes: invalid (also if its SKILL.md has another name), exhausted.
func (c Skills) Put(ctx context.Context, name string, tar []byte) (k schemas.SkillDocument, err error) {
	err = c.sendBytes(ctx, http.MethodPut, skillPath(name), "application/x-tar", tar, &k)
	return k, err
}

// Remove removes a skill by its name or id. Code: not_found.
func (c Skills) Remove(ctx context.Context, id string) error {
	return c.keepAsking(ctx, http.MethodDelete, skillPath(id), nil, nil)
}

// Download writes the files of a skill to out, as a tar, and returns its size in bytes. If the connection breaks it continues from there.
// Codes: not_found, conflict (it was replaced meanwhile), internal (the bytes do not match its digest).
func (c Skills) Download(ctx context.Context, id string, out io.Writer) (n int64, err error) {
	sum := sha256.New()
	d := download{t: c.transport, path: skillPath(id) + "/bundle", out: &written{w: io.MultiWriter(out, sum)}}
	if err := d.all(ctx); err != nil {
		return d.at, err
	}
	if want := strings.Trim(d.etag, `"`); hex.EncodeToString(sum.Sum(nil)) != want {
		return d.at, schemas.OpErrorf(schemas.Internal, "download", "%d bytes came, and they are not those of the skill", d.at)
	}
	return d.at, nil
}
