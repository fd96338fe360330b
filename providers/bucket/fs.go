package bucket

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// window is how many bytes of a file one request of a reader fetches.
const window = 1 << 20

// Reader returns the files of the bucket as a read-only workspace. Nothing is cached, so each read shows the service's current state.
// There are no links, and a folder exists while it contains a file. Keys that are no valid names are skipped. Closing the result closes
// the bucket.
func (b *Bucket) Reader() workspacefs.FS { return reader{b} }

type reader struct{ b *Bucket }

// coded maps errors of the bucket to errors of package workspacefs; others stay, as failures of the service.
func coded(err error) error {
	switch schemas.CodeOf(err) {
	case schemas.NotFound:
		return workspacefs.ErrNotFound
	case schemas.Conflict:
		return workspacefs.ErrChanged
	default:
		return err
	}
}

// find returns the description of a file or folder.
func (r reader) find(ctx context.Context, name string) (fs.FileInfo, error) {
	name, err := workspacefs.Clean(name)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if name == "." {
		return info{name: ".", mode: fs.ModeDir | 0o555}, nil
	}
	if Problem(name) != "" {
		return nil, workspacefs.ErrBadName
	}
	o, err := r.b.Head(ctx, name)
	switch schemas.CodeOf(err) {
	case "":
		return info{name: path.Base(name), mode: 0o444, object: o}, nil
	case schemas.NotFound:
	case schemas.Invalid: // too long behind the prefix, or there is no such bucket
		if _, bad := r.b.key(name); bad != nil {
			return nil, workspacefs.ErrTooLong
		}
		return nil, err
	default:
		return nil, err
	}
	there := false
	err = r.b.pages(ctx, name+"/", "", 1, func(page *s3.ListObjectsV2Output) error {
		there = len(page.Contents) > 0
		return nil
	})
	switch {
	case err != nil:
		return nil, coded(err)
	case there:
		return info{name: path.Base(name), mode: fs.ModeDir | 0o555}, nil
	}
	return nil, r.absent(ctx, name)
}

// absent returns the error for a name that does not exist, which is another if one of its parents is a file.
func (r reader) absent(ctx context.Context, name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, err := r.b.Head(ctx, dir); err == nil {
			return workspacefs.ErrNotDirectory
		} else if schemas.CodeOf(err) != schemas.NotFound {
			return err
		}
	}
	return workspacefs.ErrNotFound
}

// Stat implements [workspacefs.FS].
func (r reader) Stat(ctx context.Context, name string) (fs.FileInfo, error) { return r.find(ctx, name) }

// Open implements [workspacefs.FS]. It fixes the version: if the file is replaced, reads fail with [workspacefs.ErrChanged].
func (r reader) Open(ctx context.Context, name string) (workspacefs.File, error) {
	i, err := r.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if i.IsDir() {
		return nil, workspacefs.ErrIsDirectory
	}
	return &file{ctx: ctx, b: r.b, info: i.(info)}, nil //nolint:errcheck // find makes no other
}

// ReadDir implements [workspacefs.FS].
func (r reader) ReadDir(ctx context.Context, name string, _ bool, each func(workspacefs.Entry) error) error {
	i, err := r.find(ctx, name)
	if err != nil {
		return err
	}
	if !i.IsDir() {
		return workspacefs.ErrNotDirectory
	}
	below := ""
	if clean, err := workspacefs.Clean(name); err == nil && clean != "." {
		below = clean + "/"
	}
	var own error
	err = r.b.pages(ctx, below, "/", 0, func(page *s3.ListObjectsV2Output) error {
		source := listed{}
		folders := map[string]bool{}
		for _, p := range page.CommonPrefixes {
			sub, ok := strings.CutPrefix(aws.ToString(p.Prefix), r.b.prefix+below)
			if sub = strings.TrimSuffix(sub, "/"); !ok || Problem(sub) != "" {
				continue
			}
			folders[sub] = true
			if own = each(workspacefs.Entry{Name: sub, Type: fs.ModeDir, Source: source}); own != nil {
				return own
			}
		}
		for _, c := range page.Contents {
			o, is := r.b.object(c)
			base, ok := strings.CutPrefix(o.Name, below)
			if !is || !ok || o.Problem != "" || folders[base] { // a file that is a folder too: what is in it counts
				continue
			}
			source[base] = o
			if own = each(workspacefs.Entry{Name: base, Source: source}); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return coded(err)
}

// listed describes the entries of a page.
type listed map[string]Object

// Describe implements [workspacefs.Describer].
func (l listed) Describe(name string) (workspacefs.Info, error) {
	o := l[name]
	return workspacefs.Info{Size: o.Size, ModTime: o.Modified}, nil
}

// Write returns ErrReadOnly, as MkdirAll, Rename and Remove do.
func (reader) Write(context.Context, string, []byte, workspacefs.Mode, fs.FileInfo) error {
	return workspacefs.ErrReadOnly
}
func (reader) MkdirAll(context.Context, string) error       { return workspacefs.ErrReadOnly }
func (reader) Rename(context.Context, string, string) error { return workspacefs.ErrReadOnly }
func (reader) Remove(context.Context, string) error         { return workspacefs.ErrReadOnly }

// Close closes the bucket.
func (r reader) Close() error {
	r.b.Close()
	return nil
}

// info describes a file or a folder of a bucket.
type info struct {
	name   string
	mode   fs.FileMode
	object Object
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.object.Size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.object.Modified }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return i.object }

// file is an open version of a file. Except for ReadAt only one goroutine at a time may use it.
type file struct {
	ctx    context.Context //nolint:containedctx // reads of a file are bounded by the context that it was opened with
	b      *Bucket
	info   info
	at     int64
	held   []byte // what was read from begin on
	begin  int64
	closed bool
}

// Stat implements [fs.File].
func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements [io.Reader].
func (f *file) Read(p []byte) (int, error) {
	if f.closed {
		return 0, fs.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	if f.at >= f.info.object.Size {
		return 0, io.EOF
	}
	if f.at < f.begin || f.at >= f.begin+int64(len(f.held)) {
		data, _, err := f.b.Get(f.ctx, f.info.object.Name, f.info.object.ETag, f.at, window)
		if err != nil {
			return 0, coded(err)
		}
		if len(data) == 0 {
			return 0, io.ErrUnexpectedEOF
		}
		f.held, f.begin = data, f.at
	}
	n := copy(p, f.held[f.at-f.begin:])
	f.at += int64(n)
	return n, nil
}

// ReadAt implements [io.ReaderAt].
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("a read before the beginning")
	}
	for n < len(p) {
		if off >= f.info.object.Size {
			return n, io.EOF
		}
		data, _, err := f.b.Get(f.ctx, f.info.object.Name, f.info.object.ETag, off, min(len(p)-n, window))
		if err != nil {
			return n, coded(err)
		}
		if len(data) == 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += copy(p[n:], data)
		off += int64(len(data))
	}
	return n, nil
}

// Close closes the file.
func (f *file) Close() error {
	f.closed, f.held = true, nil
	return nil
}
