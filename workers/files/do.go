package files

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// attempts is how often something is looked at again that others change at the same time.
const attempts = 4

// Do carries out a valid request. Errors have codes of workspacefs, or are *schemas.Error.
func Do(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest, data []byte) (r schemas.FileReply, body []byte, err error) {
	for _, name := range []*string{&q.Path, &q.To} {
		if *name, err = workspacefs.Clean(*name); err != nil {
			return r, nil, err
		}
	}
	switch q.Op {
	case schemas.FileStat:
		r.File, err = describe(ctx, fsys, q.Path)
	case schemas.FileList:
		r, err = list(ctx, fsys, q)
	case schemas.FileRead:
		r.File, body, err = read(ctx, fsys, q)
	case schemas.FileWrite:
		r.File, r.Created, err = write(ctx, fsys, q, data)
	case schemas.FileAppend:
		r.File, err = appendTo(ctx, fsys, q, data)
	case schemas.FileCommit:
		r.File, r.Created, err = commit(ctx, fsys, q)
	case schemas.FileMkdir:
		if err = fsys.MkdirAll(ctx, q.Path); err == nil {
			r.File, err = describe(ctx, fsys, q.Path)
		}
	case schemas.FileMove:
		r.File, err = move(ctx, fsys, q)
	case schemas.FileRemove:
		r.More, err = remove(ctx, fsys, q)
	}
	return r, body, err
}

// describe describes the entry at a path.
func describe(ctx context.Context, fsys workspacefs.FS, name string) (*schemas.FileInfo, error) {
	info, err := fsys.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	return about(name, info), nil
}

func about(name string, info fs.FileInfo) *schemas.FileInfo {
	f := &schemas.FileInfo{Path: name, Type: typeOf(info.Mode()), Modified: info.ModTime().UTC()}
	if f.Type == schemas.TypeFile {
		f.Size, f.ETag = info.Size(), tag(info)
		f.Executable = info.Mode()&0o111 != 0
	}
	return f
}

// tag names a version of a file: by its store's version, else by size and time. Two versions with the same size and time have the same
// tag; a file system counts time in nanoseconds or, at worst, in ticks of some milliseconds.
func tag(info fs.FileInfo) string {
	what := fmt.Appendf(nil, "%d %d", info.Size(), info.ModTime().UnixNano())
	if v := version(info); v != "" {
		what = []byte(v)
	}
	sum := sha256.Sum256(what)
	return hex.EncodeToString(sum[:12])
}

// version returns the store's name of this version of a file; empty if it has none.
func version(info fs.FileInfo) string {
	if v, ok := info.(interface{ Version() string }); ok {
		return v.Version()
	}
	return ""
}

func typeOf(m fs.FileMode) schemas.FileType {
	switch m.Type() {
	case 0:
		return schemas.TypeFile
	case fs.ModeDir:
		return schemas.TypeDirectory
	case fs.ModeSymlink:
		return schemas.TypeLink
	default:
		return schemas.TypeOther
	}
}

// list returns a page of a folder, in the byte order of paths.
func list(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest) (r schemas.FileReply, err error) {
	n := 0
	visit := func(p string, e workspacefs.Entry) error {
		if n++; n > schemas.MaxFilesListed {
			return workspacefs.ErrTooMany
		}
		full := path.Join(q.Path, p)
		if hidden(full) { // only a folder can be skipped: another error would end the walk
			if e.Type.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !utf8.ValidString(full) {
			r.Unnamed++
			return nil
		}
		if full <= q.After {
			return nil
		}
		f := schemas.FileInfo{Path: full, Type: typeOf(e.Type)}
		if i, err := e.Info(); err == nil { // it may just have gone
			f.Modified = i.ModTime.UTC()
			if f.Type == schemas.TypeFile {
				f.Size = i.Size
			}
		}
		r.Entries = append(r.Entries, f)
		return nil
	}
	if q.Recursive {
		bounds := workspacefs.Bounds{Entries: schemas.MaxFilesListed, Bytes: schemas.MaxFilesListed * schemas.MaxFilePath / 8}
		err = workspacefs.Walk(ctx, fsys, q.Path, bounds, visit)
	} else {
		err = fsys.ReadDir(ctx, q.Path, true, func(e workspacefs.Entry) error {
			if err := visit(e.Name, e); !errors.Is(err, fs.SkipDir) {
				return err
			}
			return nil
		})
	}
	if workspacefs.CodeOf(err) == workspacefs.ErrTooMany {
		return r, schemas.OpErrorf(schemas.Exhausted, "list", "there are more than %d entries: list a folder below it", schemas.MaxFilesListed)
	}
	if err != nil {
		return r, err
	}
	slices.SortFunc(r.Entries, func(a, b schemas.FileInfo) int { return cmp.Compare(a.Path, b.Path) })
	if r.More = len(r.Entries) > q.Limit; r.More {
		r.Entries = r.Entries[:q.Limit]
	}
	return r, nil
}

// hidden reports whether a path is one of this package's own in the workspace.
func hidden(name string) bool {
	return name == schemas.UploadsFolder || strings.HasPrefix(name, schemas.UploadsFolder+"/")
}

// piecer is a file system that describes a file with each piece. A piece may be shorter than requested, and is empty only at the end.
type piecer interface {
	ReadPiece(ctx context.Context, name string, offset int64, length int) (fs.FileInfo, []byte, error)
}

// prefetcher is a file system that can stat several names at once. Later calls are answered from that, each name once, until something is
// changed.
type prefetcher interface {
	Prefetch(ctx context.Context, names ...string)
}

// read returns a piece of a file.
func read(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest) (*schemas.FileInfo, []byte, error) {
	if p, ok := fsys.(piecer); ok {
		info, piece, err := p.ReadPiece(ctx, q.Path, q.Offset, q.Length)
		if err != nil {
			return nil, nil, err
		}
		about := about(q.Path, info)
		if q.If != "" && q.If != about.ETag {
			return nil, nil, workspacefs.ErrChanged
		}
		return about, piece, nil
	}
	f, err := fsys.Open(ctx, q.Path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("stat: %w", err)
	}
	about := about(q.Path, info)
	if q.If != "" && q.If != about.ETag {
		return nil, nil, workspacefs.ErrChanged
	}
	piece := make([]byte, min(int64(q.Length), max(0, info.Size()-q.Offset)))
	n, err := f.ReadAt(piece, q.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read: %w", err)
	}
	if n < len(piece) { // it has become shorter meanwhile
		return nil, nil, workspacefs.ErrChanged
	}
	return about, piece, nil
}

// meets reports whether the request's condition lets the entry at a path be replaced; was is nil if there is none.
func meets(q schemas.FileRequest, was *schemas.FileInfo) error {
	switch {
	case was != nil && was.Type == schemas.TypeDirectory:
		return workspacefs.ErrIsDirectory
	case was != nil && was.Type != schemas.TypeFile:
		return workspacefs.ErrNotRegular
	case was != nil && q.IfNone:
		return workspacefs.ErrExists
	case q.If == "":
		return nil
	case was == nil || q.If != "*" && q.If != was.ETag:
		return workspacefs.ErrChanged
	}
	return nil
}

// write replaces a whole file, which keeps its mode. The file system itself detects a concurrent write.
func write(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest, content []byte) (f *schemas.FileInfo, created bool, err error) {
	name := q.Path
	for n := 1; ; n++ {
		was, err := fsys.Stat(ctx, name)
		if err != nil && workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
			return nil, false, err
		}
		var before *schemas.FileInfo
		mode := workspacefs.Create
		if err == nil {
			before, mode = about(name, was), workspacefs.Replace
		}
		err = meets(q, before)
		if err == nil {
			err = fsys.Write(ctx, name, content, mode, was)
		}
		if err == nil {
			mark(ctx, fsys, name, q)
		}
		switch code := workspacefs.CodeOf(err); {
		case err == nil:
			f, err = describe(ctx, fsys, name)
			return f, before == nil, err
		case code != workspacefs.ErrChanged && code != workspacefs.ErrExists:
			return nil, false, err
		}
		if q.Again {
			if there, _, rerr := workspacefs.ReadFile(ctx, fsys, name, int64(len(content))); rerr == nil && bytes.Equal(there, content) {
				mark(ctx, fsys, name, q)
				f, err = describe(ctx, fsys, name) // by the request whose answer was lost
				return f, q.IfNone, err
			}
		}
		if conditional := q.If != "" || q.IfNone; conditional || n == attempts {
			return nil, false, err
		}
	}
}

// appendTo adds a piece to an upload. A piece that is there already, wholly or in part, is not added twice.
func appendTo(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest, piece []byte) (*schemas.FileInfo, error) {
	if !hidden(q.Path) || q.Path == schemas.UploadsFolder {
		return nil, schemas.Invalidf("path", "is none of an upload")
	}
	for n := 1; ; n++ {
		var size int64
		mode := workspacefs.Append
		was, err := fsys.Stat(ctx, q.Path)
		switch {
		case workspacefs.CodeOf(err) == workspacefs.ErrNotFound:
			if q.Offset > 0 { // at 0 another upload of that id begins
				if f := completed(ctx, fsys, q.Path); f != nil {
					return f, nil
				}
			}
			mode, was = workspacefs.Create, nil
			if err := makeRoom(ctx, fsys, time.Now()); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			size = was.Size()
		}
		if size < q.Offset {
			return nil, schemas.OpErrorf(schemas.Conflict, "upload", "the upload has %d bytes: continue from there", size)
		}
		done := size - q.Offset
		if was != nil && done >= int64(len(piece)) {
			return about(q.Path, was), nil
		}
		err = fsys.Write(ctx, q.Path, piece[done:], mode, was)
		if code := workspacefs.CodeOf(err); n < attempts && (code == workspacefs.ErrChanged || code == workspacefs.ErrExists) {
			continue // by a worker that was asked before and was suspended
		}
		if err != nil {
			return nil, err
		}
		return describe(ctx, fsys, q.Path)
	}
}

// makeRoom removes abandoned uploads. Code exhausted: too many others exist.
func makeRoom(ctx context.Context, fsys workspacefs.FS, now time.Time) error {
	n := 0
	var old []string
	err := fsys.ReadDir(ctx, schemas.UploadsFolder, false, func(e workspacefs.Entry) error {
		i, err := e.Info()
		marks := strings.HasSuffix(e.Name, doneSuffix)
		switch age := now.Sub(i.ModTime); {
		case err == nil && (age > schemas.UploadLifetime || marks && age > doneLifetime):
			old = append(old, path.Join(schemas.UploadsFolder, e.Name))
		case !marks:
			n++
		}
		if len(old)+n > 10*schemas.MaxUploads {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.SkipAll) && workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
		return err
	}
	for _, name := range old {
		_ = fsys.Remove(ctx, name) // another does so at the same time, or the next upload does
	}
	// What is kept there is nothing for a repository.
	err = fsys.Write(ctx, path.Join(path.Dir(schemas.UploadsFolder), ".gitignore"), []byte("*\n"), workspacefs.Create, nil)
	if err != nil && workspacefs.CodeOf(err) != workspacefs.ErrExists {
		return err
	}
	if n >= schemas.MaxUploads {
		return schemas.OpErrorf(schemas.Exhausted, "upload", "%d files of this workspace have not arrived whole yet, as many as may: "+
			"end or continue one, or remove it from %s", n, schemas.UploadsFolder)
	}
	return nil
}

const (
	// doneSuffix ends the name of the note that an upload was completed. Ids of uploads have no dot.
	doneSuffix = ".done"
	// doneLifetime is how long the client of an upload may ask again whose answer was lost.
	doneLifetime = 15 * time.Minute
)

// note records which file an upload became.
func note(ctx context.Context, fsys workspacefs.FS, upload, to string, staged fs.FileInfo) error {
	if !strings.HasPrefix(path.Base(upload), "n-") { // one without a name is never resumed
		return nil
	}
	f := about(to, staged)
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("note that an upload is complete: %w", err)
	}
	return fsys.Write(ctx, upload+doneSuffix, text, workspacefs.Replace, nil)
}

// completed returns the file that an upload became, if it is still that file: a client that continues the upload did not get the answer.
func completed(ctx context.Context, fsys workspacefs.FS, upload string) *schemas.FileInfo {
	const most = 2 * schemas.MaxFilePath
	text, _, err := workspacefs.ReadFile(ctx, fsys, upload+doneSuffix, most)
	if err != nil {
		return nil
	}
	var f schemas.FileInfo
	if schemas.DecodeStrict(text, most, &f) != nil { // commands may write there too
		return nil
	}
	if there, err := describe(ctx, fsys, f.Path); err != nil || there.Size != f.Size || there.ETag != f.ETag {
		return nil
	}
	return &f
}

// commit gives an upload its name. In a folder the condition is checked just before, so a command that writes the file at that instant is
// not noticed. A store with versions checks it itself.
func commit(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest) (f *schemas.FileInfo, created bool, err error) {
	for n := 1; ; n++ {
		var placed bool
		f, created, placed, err = tryCommit(ctx, fsys, q)
		switch code := workspacefs.CodeOf(err); {
		case err == nil || !placed || n == attempts:
			return f, created, err
		case code != workspacefs.ErrChanged && code != workspacefs.ErrExists && code != workspacefs.ErrNotFound:
			return nil, false, err
		} // another request, or another writer, was faster: its outcome decides
	}
}

// tryCommit is one attempt of a commit. placed says that the error occurred when the name was given.
func tryCommit(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest) (f *schemas.FileInfo, created, placed bool, err error) {
	if p, ok := fsys.(prefetcher); ok {
		p.Prefetch(ctx, q.Path, q.To, path.Dir(q.To))
	}
	staged, err := fsys.Stat(ctx, q.Path)
	gone := workspacefs.CodeOf(err) == workspacefs.ErrNotFound
	there, terr := fsys.Stat(ctx, q.To)
	var was *schemas.FileInfo
	if terr == nil {
		was = about(q.To, there)
	}
	if was != nil && became(q, was, gone) { // by the request whose answer was lost
		if !gone {
			if err := ignore(fsys.Remove(ctx, q.Path), workspacefs.ErrNotFound); err != nil {
				return nil, false, false, err
			}
		}
		return was, q.IfNone, false, nil
	}
	switch {
	case gone:
		return nil, false, false, schemas.OpErrorf(schemas.NotFound, "upload", "the upload is gone: begin again")
	case err != nil:
		return nil, false, false, err
	case staged.Size() != q.Size:
		return nil, false, false, schemas.OpErrorf(schemas.Conflict, "upload", "the upload has %d bytes and not %d: continue from there",
			staged.Size(), q.Size)
	case terr != nil && workspacefs.CodeOf(terr) != workspacefs.ErrNotFound:
		return nil, false, false, terr
	}
	if err := meets(q, was); err != nil {
		return nil, false, false, err
	}
	if err := fsys.MkdirAll(ctx, path.Dir(q.To)); err != nil {
		return nil, false, false, err
	}
	if mark(ctx, fsys, q.Path, q) {
		if staged, err = fsys.Stat(ctx, q.Path); err != nil {
			return nil, false, false, err
		}
	}
	if err := note(ctx, fsys, q.Path, q.To, staged); err != nil {
		return nil, false, false, err
	}
	if p, ok := fsys.(workspacefs.Placer); ok && version(staged) != "" {
		err = p.Place(ctx, q.Path, q.To, there)
	} else {
		err = fsys.Rename(ctx, q.Path, q.To)
	}
	if err != nil {
		return nil, false, true, err
	}
	f, err = describe(ctx, fsys, q.To)
	return f, was == nil, false, err
}

// became reports whether a file is what an upload has become, as far as its client can know. In a store that renames in several steps both
// may exist.
func became(q schemas.FileRequest, there *schemas.FileInfo, gone bool) bool {
	return q.Was != nil && there.Type == schemas.TypeFile && there.Size == q.Was.Size && q.Size == q.Was.Size &&
		(there.ETag == q.Was.ETag || gone && marked(q, there))
}

// mark sets the mode and time of a file as requested, where its file system can. The fraction of the second stays the present one, so that
// two versions with the same size and time in an archive have different ETags.
func mark(ctx context.Context, fsys workspacefs.FS, name string, q schemas.FileRequest) bool {
	m, ok := fsys.(workspacefs.Marker)
	if !ok || q.Executable == nil && q.Modified == nil {
		return false
	}
	var at time.Time
	if q.Modified != nil {
		at = time.Unix(q.Modified.Unix(), int64(time.Now().Nanosecond()))
	}
	return m.Mark(ctx, name, q.Executable, at) == nil // the content is there: that counts
}

// marked reports whether a file has the time that a request gives it.
func marked(q schemas.FileRequest, f *schemas.FileInfo) bool {
	return q.Modified != nil && f.Modified.Unix() == q.Modified.Unix()
}

// move renames an entry. Only files replace others.
func move(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest) (*schemas.FileInfo, error) {
	if q.Path == "." || q.To == "." || strings.HasPrefix(q.To+"/", q.Path+"/") && q.To != q.Path {
		return nil, schemas.Invalidf("to", "a folder cannot be moved into itself")
	}
	if q.IfNone {
		there, err := fsys.Stat(ctx, q.To)
		if err == nil && (!q.Again || !continues(ctx, fsys, q.Path, there)) {
			return nil, workspacefs.ErrExists
		}
	}
	if err := fsys.MkdirAll(ctx, path.Dir(q.To)); err != nil {
		return nil, err
	}
	if err := fsys.Rename(ctx, q.Path, q.To); err != nil {
		if q.IfNone && workspacefs.CodeOf(err) == workspacefs.ErrIsDirectory {
			return nil, workspacefs.ErrExists
		}
		if q.Again && workspacefs.CodeOf(err) == workspacefs.ErrNotFound {
			if there, terr := describe(ctx, fsys, q.To); terr == nil {
				return there, nil
			}
		}
		return nil, err
	}
	there, err := describe(ctx, fsys, q.To)
	if workspacefs.CodeOf(err) != "" { // a dangling link has been moved nevertheless
		there, err = &schemas.FileInfo{Path: q.To, Type: schemas.TypeLink}, nil
	}
	return there, err
}

// continues reports whether what exists may be the work of an earlier try of the same move: all of it, or, in a store that moves in
// several steps, a copy of the file or a folder, about which the store itself knows more.
func continues(ctx context.Context, fsys workspacefs.FS, from string, there fs.FileInfo) bool {
	moved, err := fsys.Stat(ctx, from)
	switch {
	case err != nil:
		return workspacefs.CodeOf(err) == workspacefs.ErrNotFound // it has come to its end
	case moved.IsDir() || there.IsDir():
		return moved.IsDir() && there.IsDir()
	}
	return version(moved) != "" && version(moved) == version(there)
}

// remove removes a file, a link or a folder, on request with everything below it, as many entries at a time as a listing has. more reports
// that some are left.
func remove(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest) (more bool, err error) {
	if q.Path == "." {
		return false, schemas.Invalidf("path", "is the root of the workspace: name what is in it")
	}
	if q.If != "" {
		was, err := describe(ctx, fsys, q.Path)
		if err != nil {
			return false, err
		}
		if q.If != "*" && q.If != was.ETag {
			return false, workspacefs.ErrChanged
		}
	}
	err = fsys.Remove(ctx, q.Path)
	switch workspacefs.CodeOf(err) {
	case workspacefs.ErrNotEmpty:
		if !q.Recursive {
			return false, schemas.OpErrorf(schemas.Conflict, "remove", "the folder is not empty: only a recursive removal removes it")
		}
	case workspacefs.ErrNotFound:
		if q.Again {
			return false, nil
		}
		return false, err
	default:
		return false, err
	}
	bounds := workspacefs.Bounds{Entries: schemas.MaxFilesListed, Bytes: schemas.MaxFilesListed * schemas.MaxFilePath / 8}
	more, err = workspacefs.RemoveTree(ctx, fsys, q.Path, bounds)
	return more, ignore(err, workspacefs.ErrNotFound) // by another that removes it too
}

// ignore returns err unless it has the code.
func ignore(err error, code workspacefs.Code) error {
	if workspacefs.CodeOf(err) == code {
		return nil
	}
	return err
}
