package files_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// at is when the files of archives were changed, as the tests have it.
var at = time.Date(2020, 2, 29, 12, 30, 15, 0, time.UTC)

type entry struct {
	tar.Header

	content string
}

func file(name, content string, mode int64) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: at}, content}
}

func packed(t *testing.T, list ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// members lists what an archive has, one a line.
func members(t *testing.T, body io.Reader) string {
	t.Helper()
	var b strings.Builder
	for r := tar.NewReader(body); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%c %o %s %d %.20q\n", h.Typeflag, h.Mode, h.Name, len(content), content)
	}
}

// TestArchivesGoAndComeBack unpacks one, below a folder, and asks for it again: modes and times too, and in one order. Answers
// are lost meanwhile.
func TestArchivesGoAndComeBack(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	p := start(t, 2, func() bool { return n.Add(1)%3 == 0 })
	large := strings.Repeat("0123456789abcdef", 100_000) // several pieces
	sent := packed(t, entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}}, file("./z.txt", "last", 0o600),
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "empty/", Mode: 0o700}},
		file("bin/run", "#!/bin/sh\n", 0o755), file("large", large, 0o644),
		file("large.sh", large, 0o711), file("bin/"+strings.Repeat("n", 200)+"/ü", "", 0o644))
	want := fmt.Sprintf("5 755 bin/ 0 \"\"\n5 755 bin/%[1]s/ 0 \"\"\n0 644 bin/%[1]s/ü 0 \"\"\n0 755 bin/run 10 \"#!/bin/sh\\n\"\n"+
		"5 755 empty/ 0 \"\"\n0 644 large 1600000 \"0123456789abcdef0123\"\n"+
		"0 755 large.sh 1600000 \"0123456789abcdef0123\"\n0 644 z.txt 4 \"last\"\n",
		strings.Repeat("n", 200))
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct { // in this order: the second is in the first
		dir  string
		body []byte
	}{{"", sent}, {"a b/c", compressed.Bytes()}} {
		dir, body := c.dir, c.body
		query := "?path=" + strings.ReplaceAll(dir, " ", "%20")
		got := p.ask(http.MethodPut, workspace+"/archive"+query, bytes.NewReader(body))
		if got.status != http.StatusOK || !strings.Contains(got.body, `"files":5,"folders":1,"bytes":3200014`) {
			t.Fatalf("unpacked below %q: %d %s", dir, got.status, got.body)
		}
		for name, mode := range map[string]os.FileMode{"bin/run": 0o755, "large.sh": 0o755, "large": 0o644, "z.txt": 0o644} {
			info, err := os.Stat(filepath.Join(p.dir, dir, name))
			if err != nil || info.Mode() != mode || info.ModTime().Unix() != at.Unix() {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		if dir == "" {
			if err := os.Symlink("/etc", filepath.Join(p.dir, "bin", "link")); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(filepath.Join(p.dir, "pipe"), 0o600); err != nil {
				t.Fatal(err)
			}
			got = p.ask(http.MethodGet, workspace+"/archive", nil)
			if text := members(t, strings.NewReader(got.body)); got.status != http.StatusOK || text != want {
				t.Errorf("%d\n%swant:\n%s", got.status, text, want)
			}
			if got.header.Get("Archive-Omitted") != "2" {
				t.Errorf("a link and a FIFO are left out: %v", got.header)
			}
			continue
		}
		got = p.ask(http.MethodGet, workspace+"/archive"+query+"&format=tar.gz", nil)
		r, err := gzip.NewReader(strings.NewReader(got.body))
		if err != nil {
			t.Fatal(err)
		}
		if text := members(t, r); text != want {
			t.Errorf("%s", text)
		}
	}
	for query, field := range map[string]string{"?format=zip": "format", "?path=../x": "path", "?path=none": "path", "?path=z.txt": "path"} {
		if got := p.ask(http.MethodGet, workspace+"/archive"+query, nil); got.status < 400 || !strings.Contains(got.body, field) {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
}

// TestArchivesAreJudged unpacks what must not be: nothing of such an entry is written, what came before it is, and the error says so.
func TestArchivesAreJudged(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	link := func(kind byte, name, to string) entry {
		return entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}}
	}
	outside := filepath.Join(filepath.Dir(p.dir), "outside")
	if err := errors.Join(os.MkdirAll(p.dir, 0o755), os.Mkdir(outside, 0o755), os.Symlink(outside, filepath.Join(p.dir, "out")),
		os.Symlink("../outside", filepath.Join(p.dir, "up"))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bad  entry
		says string
	}{
		"traversal":             {file("../x", "bad", 0o644), ".."},
		"traversal within":      {file("a/../../x", "bad", 0o644), ".."},
		"absolute":              {file("/x", "bad", 0o644), "relative"},
		"a line break":          {file("a\nb", "bad", 0o644), "line breaks"},
		"no text":               {file("a\xff", "bad", 0o644), "UTF-8"},
		"a long part":           {file(strings.Repeat("x", 256), "bad", 0o644), "255"},
		"a link that leads out": {link(tar.TypeSymlink, "l", "/etc/passwd"), "is a link"},
		"a hard link":           {link(tar.TypeLink, "l", "first"), "is a link"},
		"a device":              {link(tar.TypeChar, "d", ""), "neither"},
		"a block device":        {link(tar.TypeBlock, "d", ""), "neither"},
		"a FIFO":                {link(tar.TypeFifo, "d", ""), "neither"},
		"a duplicate":           {file("first", "bad", 0o644), "twice"},
		"another name of it":    {file("./first", "bad", 0o644), "twice"},
		"below a file":          {file("first/x", "bad", 0o644), "below a file"},
		"uploads":               {file(schemas.UploadsFolder+"/n-x", "bad", 0o644), "kept for uploads"},
		"through a link":        {file("out/x", "bad", 0o644), "leads out"},
		"through another link":  {file("up/x", "bad", 0o644), "leads out"},
	} {
		sent := packed(t, file("first", "good", 0o644), c.bad, file("after", "x", 0o644))
		got := p.ask(http.MethodPut, workspace+"/archive", bytes.NewReader(sent))
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, c.says) || !strings.Contains(got.body, "1 files with 4 bytes") {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if b, err := os.ReadFile(filepath.Join(p.dir, "first")); err != nil || string(b) != "good" {
			t.Errorf("%s: the file before it: %q, %v", name, b, err)
		}
		left, err := os.ReadDir(p.dir)
		if err != nil || len(left) != 3 {
			t.Errorf("%s: written: %v, %v", name, left, err)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
			t.Errorf("%s: written outside: %v, %v", name, left, err)
		}
	}
	many := make([]entry, 0, schemas.MaxFilesListed+1)
	for n := range schemas.MaxFilesListed + 1 {
		many = append(many, entry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": fmt.Sprint(n)}}})
	}
	got := p.ask(http.MethodPut, workspace+"/archive", bytes.NewReader(packed(t, many...)))
	if !strings.Contains(got.body, "10000 files and folders") {
		t.Errorf("too many entries: %d %s", got.status, got.body)
	}
}

// TestBrokenArchives cuts one off at each of some places: what is whole is there, and nothing else.
func TestBrokenArchives(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	sent := packed(t, file("one", "1", 0o644), file("two", strings.Repeat("2", 1<<20), 0o644), file("three", "3", 0o644))
	for cut, files := range map[int]int{
		0: 0, 100: 0, 512: 0, 600: 1, 1024 + 512 + 1000: 1,
		1024 + 512 + 1<<20 - 1: 1, 1024 + 512 + 1<<20: 2, 1024 + 512 + 1<<20 + 5: 2, len(sent) - 1024: 3,
	} {
		if err := os.RemoveAll(p.dir); err != nil {
			t.Fatal(err)
		}
		got := p.ask(http.MethodPut, workspace+"/archive?path=d", bytes.NewReader(sent[:cut]))
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, fmt.Sprintf("%d files with", files)) {
			t.Errorf("cut at %d: %d %s", cut, got.status, got.body)
		}
		left, _ := os.ReadDir(filepath.Join(p.dir, "d")) // none: nothing was written
		if len(left) != files {
			t.Errorf("cut at %d: %v", cut, left)
		}
		if waiting, _ := os.ReadDir(filepath.Join(p.dir, schemas.UploadsFolder)); len(waiting) != 0 {
			t.Errorf("cut at %d: left behind: %v", cut, waiting)
		}
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	_, _ = z.Write(sent)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	b := compressed.Bytes()
	b[len(b)-6] ^= 1 // of the sum
	if got := p.ask(http.MethodPut, workspace+"/archive", bytes.NewReader(b)); got.status != http.StatusBadRequest {
		t.Errorf("a wrong sum: %d %s", got.status, got.body)
	}
}
