package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// leave stores an artifact as a worker does.
func leave(t *testing.T, b *streams.Bus, c schemas.Call, path string, content []byte) schemas.Artifact {
	t.Helper()
	var k streams.KeptArtifact
	for chunk := range slices.Chunk(content, streams.ArtifactChunk) {
		name, err := streams.StoreArtifactChunk(t.Context(), b, c.Account, chunk)
		if err != nil {
			t.Fatal(err)
		}
		k.Chunks = append(k.Chunks, name)
	}
	sum := sha256.Sum256(content)
	k.Artifact = schemas.NewArtifact(c, path, int64(len(content)), hex.EncodeToString(sum[:]), content, b.Now())
	if err := streams.StoreArtifact(t.Context(), b, c.Account, k); err != nil {
		t.Fatal(err)
	}
	return k.Artifact
}

// TestArtifactsOverHTTP: lists by pages, bytes whole and in ranges, and by the Go client.
func TestArtifactsOverHTTP(t *testing.T) {
	k := openKept(t)
	call := schemas.Call{Account: schemas.AccountID(k.anna.id), Conversation: "c/1", ID: "call_1"}
	content := make([]byte, 2*streams.ArtifactChunk+123)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	made := []schemas.Artifact{leave(t, k.bus, call, "outputs/big.bin", content), leave(t, k.bus, call, "outputs/empty", nil)}
	for n := range 3 {
		made = append(made, leave(t, k.bus, call, fmt.Sprintf("outputs/%d.txt", n), []byte("text")))
	}
	cl := client.New(k.url, k.anna.key)
	var all []schemas.Artifact
	for after := schemas.ArtifactID(""); ; {
		page, next, err := cl.Artifacts().List(t.Context(), call.Conversation, 2, after)
		if err != nil || len(page) > 2 {
			t.Fatal(page, err)
		}
		all = append(all, page...)
		if after = next; next == "" {
			break
		}
	}
	if !slices.Equal(all, made) {
		t.Errorf("listed %+v\nwant %+v", all, made)
	}
	var got bytes.Buffer
	name, n, err := cl.Artifacts().Download(t.Context(), made[0].ID, &got)
	if err != nil || name != "big.bin" || n != int64(len(content)) || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("%q, %d bytes: %v", name, n, err)
	}
	url := "/v1/artifacts/" + string(made[0].ID)
	for _, r := range [][2]int{{0, 1}, {streams.ArtifactChunk - 1, streams.ArtifactChunk + 1}, {len(content) - 1, len(content)}} {
		a := k.as(k.anna, http.MethodGet, url, "", "Range", fmt.Sprintf("bytes=%d-%d", r[0], r[1]-1))
		if a.status != http.StatusPartialContent || a.body != string(content[r[0]:r[1]]) {
			t.Errorf("range %v: %d, %d bytes", r, a.status, len(a.body))
		}
	}
	if a := k.as(k.anna, http.MethodGet, url, "", "If-None-Match", `"`+made[0].SHA256+`"`); a.status != http.StatusNotModified {
		t.Errorf("its own ETag: %d", a.status)
	}
	if a := k.as(k.anna, http.MethodGet, "/v1/artifacts/"+string(made[1].ID), ""); a.status != http.StatusOK || a.body != "" {
		t.Errorf("empty: %d %q", a.status, a.body)
	}
	if err := cl.Artifacts().Remove(t.Context(), made[0].ID); err != nil {
		t.Error(err)
	}
	if _, _, err := cl.Artifacts().Download(t.Context(), made[0].ID, io.Discard); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("removed: %v", err)
	}
	for path, want := range map[string]int{
		"/v1/artifacts/x": http.StatusNotFound, url + "?x=1": http.StatusBadRequest,
		"/v1/conversations/c/artifacts?limit=0": http.StatusBadRequest, "/v1/conversations/c/artifacts?after=x": http.StatusBadRequest,
		"/v1/conversations/c%20/artifacts": http.StatusBadRequest, "/v1/conversations/none/artifacts": http.StatusOK,
		"/v1/conversations/c/artifacts?after=art_" + strings.Repeat("0", 32): http.StatusNotFound,
	} {
		if a := k.as(k.anna, http.MethodGet, path, ""); a.status != want {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.body, want)
		}
	}
}

// TestArtifactsAreSafeForBrowsers: whatever a name says, only what can hold no script is shown in place, and nothing may act.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestArtifactsAreSafeForBrowsers(t *testing.T) {
	k := openKept(t)
	call := schemas.Call{Account: schemas.AccountID(k.anna.id), Conversation: "c", ID: "call_1"}
	page := []byte("<script>alert(1)</script>")
	for name, inline := range map[string]bool{
		"a.html": false, "a.svg": false, "a.xml": false, "a.pdf": false, "a.js": false, "a.md": false, "a.csv": false, "a.xhtml": true,
		"a.png": true, "a.txt": true, "noname": true, `ä"; filename=evil`: true, "a.PNG": true, "a.json": false,
	} {
		a := leave(t, k.bus, call, "outputs/"+name, page)
		got := k.as(k.anna, http.MethodGet, "/v1/artifacts/"+string(a.ID), "")
		how, params, err := mime.ParseMediaType(got.header.Get("Content-Disposition"))
		if err != nil || params["filename"] != name || (how == "inline") != inline || !inline && how != "attachment" {
			t.Errorf("%s: %q %v", name, got.header.Get("Content-Disposition"), err)
		}
		media := got.header.Get("Content-Type")
		if media != a.MIMEType || inline && media != "image/png" && media != "text/plain; charset=utf-8" {
			t.Errorf("%s is of type %q", name, media)
		}
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox; default-src 'none'",
			"Cache-Control": "private, max-age=31536000, immutable", "ETag": `"` + a.SHA256 + `"`,
		} {
			if v := got.header.Get(header); v != want {
				t.Errorf("%s: %s is %q, want %q", name, header, v, want)
			}
		}
	}
}
