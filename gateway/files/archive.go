package files

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Unpacked is the response to an unpacked archive: what was written.
type Unpacked struct {
	Files   int   `json:"files"`
	Folders int   `json:"folders"` // entries of their own; those above files are made without one
	Bytes   int64 `json:"bytes"`   // of the files
	// Last is the path of the last entry.
	Last string `json:"last,omitzero"`
}

// GetArchive serves all files below a folder as a tar, sorted by the bytes of their paths. Links, FIFOs, sockets and devices are omitted;
// the header Archive-Omitted has their number.
func (f *Files) GetArchive(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "path", "format")
	if err != nil {
		return err
	}
	format := q.Text("format")
	if format != "" && format != "tar" && format != "tar.gz" {
		return schemas.Invalidf("format", "%q is unknown: use tar or tar.gz", schemas.Quotable(format))
	}
	dir, err := checkPath(q.Values.Get("path"))
	if err != nil {
		return err
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	ctx, release, err := f.o.Stream(w, r, a)
	if err != nil {
		return err
	}
	defer release()
	held := f.memory(a)
	defer held.release()
	list, omitted, err := below(ctx, of, dir, held.take)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the key has ended, or the client is gone
	}
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Content-Disposition", "attachment")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Archive-Omitted", strconv.Itoa(omitted))
	out, end := io.Writer(w), func() error { return nil }
	if format == "tar.gz" {
		h.Set("Content-Type", "application/gzip")
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return schemas.Wrap(schemas.Internal, "files", "the archive cannot be compressed", err)
		}
		out, end = z, z.Close
	}
	t := tar.NewWriter(out)
	err = pack(ctx, of, dir, list, t)
	if err == nil {
		err = errors.Join(t.Close(), end())
	}
	if err != nil {
		panic(http.ErrAbortHandler) // an archive that looks whole and is not would be worse; the connection ends
	}
	return nil
}

// own is the folder of Sandjet's own files.
var own = path.Dir(schemas.UploadsFolder) //nolint:gochecknoglobals // a constant in all but syntax

// within reports whether a path is the folder or is below it.
func within(name, folder string) bool {
	return strings.HasPrefix(path.Join("/", name)+"/", "/"+folder+"/")
}

// asked is a workspace that answers requests about its files.
type asked interface {
	Do(ctx context.Context, q schemas.FileRequest, data []byte) (schemas.FileReply, []byte, error)
}

// below lists all files and folders below a folder, and counts the entries that cannot be in an archive. It reads at most
// [schemas.MaxFilesListed] entries, since pages may come from different workers and the folder may grow meanwhile. take reserves memory
// for the names. Codes: exhausted, and those of take.
func below(ctx context.Context, of asked, dir string, take func(n int64) error) (list []schemas.FileInfo, omitted int, err error) {
	ask := schemas.FileRequest{Op: schemas.FileList, Path: dir, Recursive: true, Limit: schemas.MaxFilesPage}
	for seen := 0; ; {
		page, _, err := of.Do(ctx, ask, nil)
		if err != nil {
			return nil, 0, err
		}
		if seen += len(page.Entries); seen > schemas.MaxFilesListed {
			return nil, 0, final(schemas.OpErrorf(schemas.Exhausted, "path", "the folder has more than %d entries: take a folder below it",
				schemas.MaxFilesListed))
		}
		size := int64(0)
		for _, e := range page.Entries {
			size += int64(len(e.Path)+len(e.ETag)) + perName
		}
		if err := take(size); err != nil {
			return nil, 0, err
		}
		for _, e := range page.Entries {
			ask.After = e.Path
			switch {
			case within(e.Path, own) && !within(dir, own): // only who asks for it gets it
			case e.Type == schemas.TypeFile || e.Type == schemas.TypeDirectory:
				list = append(list, e)
			default:
				omitted++
			}
		}
		if !page.More || len(page.Entries) == 0 {
			return list, omitted + page.Unnamed, nil
		}
	}
}

// pack writes files and folders to an archive. Those that were removed meanwhile are omitted; a file that changes while it is read ends
// the archive with a conflict.
func pack(ctx context.Context, of *workspace, dir string, list []schemas.FileInfo, t *tar.Writer) error {
	base := strings.TrimPrefix(path.Clean("/"+dir), "/") // as the listing has it in front of each path
	for _, e := range list {
		name := strings.TrimPrefix(strings.TrimPrefix(e.Path, base), "/")
		h := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: e.Modified}
		if e.Type == schemas.TypeDirectory {
			if err := t.WriteHeader(h); err != nil {
				return fmt.Errorf("write a header: %w", err)
			}
			continue
		}
		first, piece, err := of.Do(ctx, schemas.FileRequest{Op: schemas.FileRead, Path: e.Path, Length: schemas.MaxFileChunk}, nil)
		if code := schemas.CodeOf(err); code == schemas.NotFound || code == schemas.Invalid {
			continue // gone, or no file any more
		}
		if err == nil && first.File == nil {
			err = schemas.OpErrorf(schemas.Internal, "files", "the worker describes nothing")
		}
		if err != nil {
			return err
		}
		h = &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: first.File.Size, Mode: 0o644, ModTime: first.File.Modified}
		if first.File.Executable {
			h.Mode = 0o755
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write a header: %w", err)
		}
		if _, err := io.Copy(t, &reader{ctx: ctx, of: of, file: *first.File, have: piece}); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	return nil
}

// PutArchive unpacks a tar into a folder, which is made if needed. Existing files are replaced. Each entry is validated before any of it
// is written. If one is rejected, or the body ends early, the entries before it stay, and the error says what was written.
func (f *Files) PutArchive(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "path")
	if err != nil {
		return err
	}
	dir, err := checkPath(q.Values.Get("path"))
	if err != nil {
		return err
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	ctx, release, err := f.o.Stream(w, r, a)
	if err != nil {
		return err
	}
	defer release()
	held := f.memory(a)
	defer held.release()
	if err := held.begin(w, uploadBytes); err != nil {
		return err
	}
	var u Unpacked
	if err = u.unpack(ctx, w, of, dir, r.Body, held.take); err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the key has ended, or the client is gone
	}
	if err != nil {
		return u.wrote(err)
	}
	web.WriteJSON(w, http.StatusOK, u)
	return nil
}

// unpack writes the entries of an archive one after the other. Its memory is bounded by one piece of a file and the names, for which take
// reserves it.
func (u *Unpacked) unpack(ctx context.Context, w http.ResponseWriter, of *workspace, dir string, body io.Reader,
	take func(n int64) error,
) error {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(pieceWithin)) // a writer without deadlines, as in tests, is fine
	in, err := openArchive(body, take)
	if err != nil {
		return err
	}
	for {
		_ = rc.SetReadDeadline(time.Now().Add(pieceWithin))
		m, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := path.Join("/", dir, m.name)[1:]
		if within(to, schemas.UploadsFolder) {
			return schemas.Invalidf("", "the entry %q of the archive lies in %s, which is kept for uploads", schemas.Quotable(m.name),
				schemas.UploadsFolder)
		}
		if m.folder {
			_, _, err = of.Do(ctx, schemas.FileRequest{Op: schemas.FileMkdir, Path: to}, nil)
		} else {
			one := upload{to: of, path: to, staged: schemas.UploadsFolder + "/" + schemas.NewID("u"), last: true, executable: &m.executable}
			if !m.modified.IsZero() && m.modified.Unix() > 0 {
				one.modified = &m.modified
			}
			_, err = one.take(ctx, w, in.tar)
		}
		if err != nil {
			e := *schemas.Public(err)
			e.Message, e.Err = fmt.Sprintf("the entry %q of the archive: %s", schemas.Quotable(m.name), e.Message), err
			return &e
		}
		if u.Last = to; m.folder {
			u.Folders++
			continue
		}
		u.Files++
		u.Bytes += m.size
	}
}
