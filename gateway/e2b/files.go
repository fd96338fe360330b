package e2b

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

type principalKey struct{}

// KeyOf returns the fingerprint of the API key that a request for a file was authenticated with.
func KeyOf(ctx context.Context) attachtoken.Fingerprint {
	k, _ := ctx.Value(principalKey{}).(attachtoken.Fingerprint)
	return k
}

// about returns the request to the file routes for one file.
func about(r *http.Request, b *box, p string) *http.Request {
	out := r.Clone(context.WithValue(r.Context(), principalKey{}, b.key))
	out.URL.RawQuery = ""
	out.SetPathValue("id", string(b.session.Workspace))
	out.SetPathValue("path", p)
	for _, name := range []string{"If-Match", "If-None-Match", "Content-Digest"} {
		out.Header.Del(name)
	}
	return out
}

// filesystem serves the files of a sandbox: envd's filesystem service.
type filesystem struct{ *base }

// read serves a file.
func (f *filesystem) read(w http.ResponseWriter, r *http.Request, b *box) error {
	if err := checkUser(r); err != nil {
		return err
	}
	p, err := inside("path", r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	return f.Files.Get(w, about(r, b, p), b.account)
}

// written is a file in the response to a write.
type written struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Path string `json:"path"`
}

// write stores the request's body as a file, or the files of a form.
func (f *filesystem) write(w http.ResponseWriter, r *http.Request, b *box) error {
	if err := checkUser(r); err != nil {
		return err
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return web.WithStatus(http.StatusUnsupportedMediaType, unsupported("a compressed upload is not served, write without gzip"))
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Metadata-") {
			return unsupported("metadata of files is not served")
		}
	}
	name := r.URL.Query().Get("path")
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "multipart/form-data" {
		one, err := f.store(w, r, b, name, r.Body, r.ContentLength)
		if err != nil {
			return err
		}
		web.WriteJSON(w, http.StatusOK, []written{one})
		return nil
	}
	form, err := r.MultipartReader()
	if err != nil {
		return schemas.Invalidf("", "the form cannot be read: %s", schemas.Quotable(err.Error()))
	}
	all := []written{}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return schemas.Invalidf("", "the form cannot be read: %s", schemas.Quotable(err.Error()))
		}
		if len(all) == maxFiles {
			return schemas.Invalidf("", "the form has more than %d files: send them in several", maxFiles)
		}
		to := name
		if to == "" {
			to = fileName(part.Header.Get("Content-Disposition"))
		}
		one, err := f.store(w, r, b, to, part, -1)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	web.WriteJSON(w, http.StatusOK, all)
	return nil
}

// maxFiles is the most files of one form.
const maxFiles = 1000

// fileName returns the name of a form's file, including its folders, as browsers and Node.js encode it; empty if there is none.
func fileName(disposition string) string {
	_, after, ok := strings.Cut(disposition, `filename="`)
	if !ok {
		return ""
	}
	name, _, ok := strings.Cut(after, `"`)
	if !ok {
		return ""
	}
	return strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n").Replace(name)
}

// store stores one file. A negative length means unknown.
func (f *filesystem) store(w http.ResponseWriter, r *http.Request, b *box, name string, body io.Reader, length int64) (written, error) {
	p, err := inside("path", name)
	if err != nil {
		return written{}, err
	}
	if p == "." || strings.HasSuffix(name, "/") {
		return written{}, schemas.Invalidf("path", "%q does not name a file", schemas.Quotable(name))
	}
	ask := about(r, b, p)
	ask.Body, ask.ContentLength = io.NopCloser(body), length
	ask.Header.Del("Content-Type")
	if err := f.Files.Put(&silent{ResponseWriter: w, header: http.Header{}}, ask, b.account); err != nil {
		return written{}, err
	}
	return written{path.Base(p), "file", outside(p)}, nil
}

// silent is a response writer that discards the response.
type silent struct {
	http.ResponseWriter

	header http.Header
}

// Header implements [http.ResponseWriter].
func (s *silent) Header() http.Header { return s.header }

// WriteHeader implements [http.ResponseWriter].
func (s *silent) WriteHeader(int) {}

// Write implements [http.ResponseWriter].
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }

// Unwrap lets http.ResponseController reach the writer below.
func (s *silent) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// entry is a file or folder in responses to clients.
type entry struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Path        string `json:"path"`
	Size        string `json:"size"` // a number of 64 bits is a text in this JSON
	Mode        uint32 `json:"mode"`
	Permissions string `json:"permissions"`
	Owner       string `json:"owner"`
	Group       string `json:"group"`
	Modified    string `json:"modifiedTime"`
}

func entryOf(i schemas.FileInfo) entry {
	e := entry{
		Name: path.Base(outside(i.Path)), Path: outside(i.Path), Size: strconv.FormatInt(i.Size, 10), Owner: "user", Group: "user",
		Modified: i.Modified.UTC().Format("2006-01-02T15:04:05.000000000Z"),
		Type:     "FILE_TYPE_FILE", Mode: 0o644, Permissions: "-rw-r--r--",
	}
	switch {
	case i.Type == schemas.TypeDirectory:
		e.Type, e.Mode, e.Permissions = "FILE_TYPE_DIRECTORY", 0o755, "drwxr-xr-x"
	case i.Type == schemas.TypeLink:
		e.Type, e.Mode, e.Permissions = "FILE_TYPE_SYMLINK", 0o777, "lrwxrwxrwx"
	case i.Type != schemas.TypeFile:
		e.Type = "FILE_TYPE_UNSPECIFIED"
	case i.Executable:
		e.Mode, e.Permissions = 0o755, "-rwxr-xr-x"
	}
	return e
}

// pathRequest is a parsed request about a file or folder.
type pathRequest struct {
	Path  string  `json:"path"`
	Depth *uint32 `json:"depth"`
}

// asked decodes a request about one path, and returns the path relative to the workspace.
func asked(w http.ResponseWriter, r *http.Request, in *pathRequest) (string, error) {
	if err := checkUser(r); err != nil {
		return "", err
	}
	if err := unary(w, r, in); err != nil {
		return "", err
	}
	return inside("path", in.Path)
}

func (f *filesystem) do(ctx context.Context, b *box, q schemas.FileRequest) (schemas.FileReply, error) {
	reply, err := f.Files.Do(ctx, b.account, b.session.Workspace, q)
	if err == nil && reply.File == nil && q.Op == schemas.FileStat {
		err = schemas.OpErrorf(schemas.Internal, "files", "the worker describes nothing")
	}
	return reply, err
}

func writeEntry(w http.ResponseWriter, i schemas.FileInfo) {
	web.WriteJSON(w, http.StatusOK, map[string]entry{"entry": entryOf(i)})
}

// stat serves the description of a file or folder.
func (f *filesystem) stat(w http.ResponseWriter, r *http.Request, b *box) error {
	p, err := asked(w, r, &pathRequest{})
	if err != nil {
		return err
	}
	reply, err := f.do(r.Context(), b, schemas.FileRequest{Op: schemas.FileStat, Path: p})
	if err != nil {
		return err
	}
	writeEntry(w, *reply.File)
	return nil
}

// maxEntries is the most entries of one listing.
const maxEntries = 10_000

// listDir lists a folder to the requested depth.
func (f *filesystem) listDir(w http.ResponseWriter, r *http.Request, b *box) error {
	var in pathRequest
	p, err := asked(w, r, &in)
	if err != nil {
		return err
	}
	depth := 1
	if in.Depth != nil && *in.Depth > 0 {
		depth = int(min(*in.Depth, schemas.MaxFilePath))
	}
	q := schemas.FileRequest{Op: schemas.FileList, Path: p, Recursive: depth > 1, Limit: schemas.MaxFilesPage}
	out := []entry{}
	for {
		reply, err := f.do(r.Context(), b, q)
		if err != nil {
			return err
		}
		for _, i := range reply.Entries {
			below := i.Path
			if p != "." {
				below = strings.TrimPrefix(i.Path, p+"/")
			}
			if strings.Count(below, "/") < depth {
				out = append(out, entryOf(i))
			}
		}
		if len(out) > maxEntries {
			return schemas.Errorf(schemas.Exhausted, "the folder has more than %d entries: list a folder in it, or less deep", maxEntries)
		}
		if !reply.More || len(reply.Entries) == 0 {
			break
		}
		q.After = reply.Entries[len(reply.Entries)-1].Path
	}
	web.WriteJSON(w, http.StatusOK, map[string]any{"entries": out})
	return nil
}

// makeDir makes a folder and its parents.
func (f *filesystem) makeDir(w http.ResponseWriter, r *http.Request, b *box) error {
	p, err := asked(w, r, &pathRequest{})
	if err != nil {
		return err
	}
	if _, err := f.do(r.Context(), b, schemas.FileRequest{Op: schemas.FileStat, Path: p}); err == nil {
		alreadyExists(w, outside(p)+" is there already")
		return nil
	} else if !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	reply, err := f.do(r.Context(), b, schemas.FileRequest{Op: schemas.FileMkdir, Path: p})
	if err != nil {
		return err
	}
	if reply.File == nil {
		reply.File = &schemas.FileInfo{Path: p, Type: schemas.TypeDirectory}
	}
	writeEntry(w, *reply.File)
	return nil
}

// move renames a file or folder. An existing file at the destination is replaced.
func (f *filesystem) move(w http.ResponseWriter, r *http.Request, b *box) error {
	var in struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	if err := checkUser(r); err != nil {
		return err
	}
	if err := unary(w, r, &in); err != nil {
		return err
	}
	from, err := inside("source", in.Source)
	if err != nil {
		return err
	}
	to, err := inside("destination", in.Destination)
	if err != nil {
		return err
	}
	if from == "." || to == "." {
		return schemas.Invalidf("source", "the workspace itself stays where it is")
	}
	if dir := path.Dir(to); dir != "." {
		if _, err := f.do(r.Context(), b, schemas.FileRequest{Op: schemas.FileMkdir, Path: dir}); err != nil {
			return err
		}
	}
	if _, err := f.do(r.Context(), b, schemas.FileRequest{Op: schemas.FileMove, Path: from, To: to}); err != nil {
		return err
	}
	reply, err := f.do(r.Context(), b, schemas.FileRequest{Op: schemas.FileStat, Path: to})
	if err != nil {
		return err
	}
	writeEntry(w, *reply.File)
	return nil
}

// remove removes a file, or a folder with everything in it. It succeeds if there is none.
func (f *filesystem) remove(w http.ResponseWriter, r *http.Request, b *box) error {
	p, err := asked(w, r, &pathRequest{})
	if err != nil {
		return err
	}
	if p == "." {
		return schemas.Invalidf("path", "is the workspace itself: kill the sandbox, or remove what is in it")
	}
	q := schemas.FileRequest{Op: schemas.FileRemove, Path: p, Recursive: true, Again: true}
	reply, err := f.do(r.Context(), b, q)
	for err == nil && reply.More {
		reply, err = f.do(r.Context(), b, q)
	}
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	web.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}
