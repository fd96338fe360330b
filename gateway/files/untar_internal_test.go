package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// FuzzArchive reads any archive: what is given out is a name below the folder, once, and never below a file.
func FuzzArchive(f *testing.F) {
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "a/b", Size: 3, Mode: 0o755}, {Typeflag: tar.TypeDir, Name: "d/"},
		{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc"}, {Typeflag: tar.TypeReg, Name: "../x", Size: 3},
		{Typeflag: tar.TypeReg, Name: strings.Repeat("long/", 60) + "x", Size: 3},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("abc")); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
		f.Add(append(b.Bytes(), b.Bytes()...))
	}
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		taken := int64(0)
		a, err := openArchive(bytes.NewReader(body), func(n int64) error {
			taken += n
			return nil
		})
		if err != nil {
			if schemas.CodeOf(err) != schemas.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		seen := map[string]bool{}
		for {
			m, err := a.next()
			names := int64(0)
			for name := range a.folders {
				names += int64(len(name))
			}
			if m.name != "" && names > 128*taken { // of folders above it, each is shorter
				t.Errorf("names of %d bytes, for which %d were taken", names, taken)
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				if code := schemas.CodeOf(err); code != schemas.Invalid && code != schemas.Exhausted {
					t.Errorf("%s: %v", code, err)
				}
				return
			}
			if m.name != path.Clean(m.name) || path.IsAbs(m.name) || m.name == "." || m.name == ".." || strings.HasPrefix(m.name, "../") ||
				strings.ContainsAny(m.name, "\x00\n") {
				t.Fatalf("the name %q", m.name)
			}
			if folder, is := seen[m.name]; is && (!folder || !m.folder) {
				t.Fatalf("%q comes twice", m.name)
			}
			seen[m.name] = m.folder
			for above := path.Dir(m.name); above != "."; above = path.Dir(above) {
				if folder, is := seen[above]; is && !folder {
					t.Fatalf("%q lies below a file", m.name)
				}
				seen[above] = true
			}
			if len(seen) > schemas.MaxFilesListed || m.size < 0 || a.bytes > schemas.MaxFileSize {
				t.Fatalf("%d members, %d bytes", len(seen), a.bytes)
			}
		}
	})
}

// endless is a workspace whose pages never end, as of a folder that changes between them.
type endless struct {
	of    schemas.FileType
	pages int
}

func (e *endless) Do(_ context.Context, q schemas.FileRequest, _ []byte) (r schemas.FileReply, _ []byte, _ error) {
	e.pages++
	for n := range schemas.MaxFilesPage {
		r.Entries = append(r.Entries, schemas.FileInfo{Path: fmt.Sprintf("%06d-%d", e.pages, n), Type: e.of})
	}
	r.More = true
	return r, nil, nil
}

// TestAListingForAnArchiveEnds: what is held of one is bounded, whatever the pages have.
func TestAListingForAnArchiveEnds(t *testing.T) {
	t.Parallel()
	for _, of := range []schemas.FileType{schemas.TypeFile, schemas.TypeLink} {
		e := &endless{of: of}
		taken := int64(0)
		list, _, err := below(t.Context(), e, "", func(n int64) error {
			taken += n
			return nil
		})
		if schemas.CodeOf(err) != schemas.Exhausted || len(list) != 0 || e.pages != schemas.MaxFilesListed/schemas.MaxFilesPage+1 {
			t.Errorf("%s: %d entries after %d pages: %v", of, len(list), e.pages, err)
		}
		if taken < schemas.MaxFilesListed*perName {
			t.Errorf("%s: %d bytes were taken", of, taken)
		}
		full := schemas.Errorf(schemas.Exhausted, "full")
		if _, _, err := below(t.Context(), &endless{of: of}, "", func(int64) error { return full }); !errors.Is(err, full) {
			t.Errorf("%s: %v", of, err)
		}
	}
}
