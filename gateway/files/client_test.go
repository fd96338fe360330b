package files_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// broken is a network on which requests and answers are lost, some in the middle.
type broken struct {
	mu     sync.Mutex
	chance *rand.Rand
	lost   int
}

func chance(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 7)) }

func (b *broken) roll(of int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	hit := b.chance.IntN(of) == 0
	if hit {
		b.lost++
	}
	return hit
}

func (b *broken) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Account", "acct_1")
	if b.roll(4) {
		return nil, errors.New("the connection broke before the request")
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case r.Method != http.MethodGet && b.roll(4):
		_ = res.Body.Close()
		return nil, errors.New("the connection broke before the answer")
	case r.Method == http.MethodGet && b.roll(2):
		cut := max(res.ContentLength/3, 1)
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(io.LimitReader(res.Body, cut), failing{}), res.Body}
	}
	return res, nil
}

// TestTheClientContinues: files come and go whole over a network that loses requests and answers, also in the middle of a file.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestTheClientContinues(t *testing.T) {
	t.Parallel()
	p := start(t, 2, nil)
	network := &broken{chance: chance(1)}
	c := client.New(strings.TrimSuffix(p.url, "/v1/workspaces/"), "key")
	c.HTTP, c.Pause = &http.Client{Transport: network}, time.Millisecond
	for _, size := range []int{0, 3, 9 << 20, 17<<20 + 5} {
		content := random(size)
		var stored int64
		f, err := c.Files(workspace).Upload(t.Context(), "dir/a b.bin", bytes.NewReader(content), client.UploadOptions{
			Progress: func(n int64) { stored = n },
		})
		if err != nil || f.Size != int64(size) || stored != int64(size) {
			t.Fatalf("%d bytes: %+v, %d stored, %v", size, f, stored, err)
		}
		var back bytes.Buffer
		n, err := c.Files(workspace).Download(t.Context(), "dir/a b.bin", &back)
		if err != nil || n != int64(size) || !bytes.Equal(back.Bytes(), content) {
			t.Fatalf("%d bytes: %d came back, %v", size, n, err)
		}
	}
	if list, err := c.Files(workspace).List(t.Context(), client.FilesQuery{Recursive: true, Path: "dir"}); err != nil || len(list.Entries) != 1 {
		t.Errorf("%+v %v", list, err)
	}
	_, err := c.Files(workspace).Upload(t.Context(), "dir/a b.bin", strings.NewReader("x"), client.UploadOptions{IfNoneMatch: true})
	if schemas.CodeOf(err) != schemas.Conflict {
		t.Errorf("what is there: %v", err)
	}
	if _, err := c.Files(workspace).Download(t.Context(), "none", io.Discard); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("what is not: %v", err)
	}
	if network.lost < 10 {
		t.Errorf("only %d requests and answers were lost", network.lost)
	}
}

// TestANamedUploadIsContinued: what another process has stored of a file is not sent again.
func TestANamedUploadIsContinued(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	c := client.New(strings.TrimSuffix(p.url, "/v1/workspaces/"), "key")
	network := &counting{}
	c.HTTP = &http.Client{Transport: network}
	content := random(20 << 20)
	o := client.UploadOptions{ID: "mine"}
	_, err := c.Files(workspace).Upload(t.Context(), "big", io.MultiReader(bytes.NewReader(content[:17<<20]), failing{}), o)
	if err == nil || network.sent != 16<<20 {
		t.Fatalf("%d bytes were sent of a file that cannot be read: %v", network.sent, err)
	}
	network.sent = 0
	f, err := c.Files(workspace).Upload(t.Context(), "big", bytes.NewReader(content), o)
	if err != nil || f.Size != 20<<20 || network.sent != 4<<20 {
		t.Fatalf("%+v, %d bytes were sent: %v", f, network.sent, err)
	}
	var back bytes.Buffer
	if _, err := c.Files(workspace).Download(t.Context(), "big", &back); err != nil || !bytes.Equal(back.Bytes(), content) {
		t.Errorf("%d bytes came back, %v", back.Len(), err)
	}
}

// counting counts the bytes of bodies.
type counting struct{ sent int64 }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Account", "acct_1")
	c.sent += max(r.ContentLength, 0)
	return http.DefaultTransport.RoundTrip(r)
}

// asAccount is a network on which nothing is lost.
type asAccount struct{}

func (asAccount) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Account", "acct_1")
	return http.DefaultTransport.RoundTrip(r)
}

// TestTheClientSendsArchives sends one and takes it back, and is refused what is none.
func TestTheClientSendsArchives(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	c := client.New(strings.TrimSuffix(p.url, "/v1/workspaces/"), "key")
	c.HTTP = &http.Client{Transport: asAccount{}}
	sent := packed(t, file("a/run", "#!/bin/sh\n", 0o755), file("b", strings.Repeat("b", 1<<20), 0o644))
	u, err := c.Files(workspace).UploadArchive(t.Context(), "dir", bytes.NewReader(sent))
	if err != nil || u.Files != 2 || u.Bytes != 10+1<<20 || u.Last != "dir/b" {
		t.Fatalf("%+v %v", u, err)
	}
	var back bytes.Buffer
	n, err := c.Files(workspace).DownloadArchive(t.Context(), "dir", &back)
	if want := "5 755 a/ 0 \"\"\n0 755 a/run 10 \"#!/bin/sh\\n\"\n0 644 b 1048576 \"bbbbbbbbbbbbbbbbbbbb\"\n"; err != nil ||
		n != int64(back.Len()) || members(t, &back) != want {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := c.Files(workspace).UploadArchive(t.Context(), "", strings.NewReader("no tar")); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("no archive: %v", err)
	}
	if _, err := c.Files(workspace).DownloadArchive(t.Context(), "none", io.Discard); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("no folder: %v", err)
	}
}
