package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// uploadField is the metadata that says of which upload a file was made.
	uploadField = "sandjet-upload"
	// mostMoved is how many files a folder may have that is moved.
	mostMoved = 1000
	// copiedAtOnce is how much of a file one request copies.
	copiedAtOnce = 256 << 20
)

// Files returns the files of the bucket like [Bucket.Reader], but writable: in whole files, or piece by piece below
// [schemas.UploadsFolder]. Each write is conditional on the version that was seen, or on there being none. Modes are not stored; an empty
// folder is an object whose key ends with a slash. A folder is moved file by file: if that is interrupted both folders have files, and
// repeating the move continues it.
func (b *Bucket) Files() workspacefs.FS { return files{reader{b}} }

type files struct{ reader }

// Stat implements [workspacefs.FS].
func (f files) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	clean, err := workspacefs.Clean(name)
	if err != nil {
		return nil, err
	}
	if !isUpload(clean) {
		return f.find(ctx, clean)
	}
	u, err := f.lookUp(ctx, clean, false)
	if err != nil {
		return nil, err
	}
	return u.info(), nil
}

// Open implements [workspacefs.FS]. Uploads cannot be read.
func (f files) Open(ctx context.Context, name string) (workspacefs.File, error) {
	if clean, err := workspacefs.Clean(name); err == nil && isUpload(clean) {
		return nil, workspacefs.ErrNotRegular
	}
	return f.reader.Open(ctx, name)
}

// ReadDir implements [workspacefs.FS].
func (f files) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) error {
	if clean, err := workspacefs.Clean(name); err == nil && clean == schemas.UploadsFolder {
		return f.uploads(ctx, each)
	}
	return f.reader.ReadDir(ctx, name, follow, each)
}

// Write implements [workspacefs.FS].
func (f files) Write(ctx context.Context, name string, content []byte, mode workspacefs.Mode, was fs.FileInfo) error {
	name, err := workspacefs.Clean(name)
	if err != nil {
		return err
	}
	switch {
	case name == ".":
		return workspacefs.ErrIsDirectory
	case Problem(name) != "":
		return workspacefs.ErrBadName
	case isUpload(name) && (mode == workspacefs.Create || mode == workspacefs.Append):
		var size *int64
		if was != nil {
			size = aws.Int64(was.Size())
		}
		return f.extend(ctx, name, content, mode, size)
	case isUpload(name):
		return schemas.OpErrorf(schemas.Unsupported, "files", "an upload is not replaced")
	}
	etag := ""
	if i, ok := was.(info); ok && mode != workspacefs.Create {
		etag = i.object.ETag
	} else {
		there, err := f.find(ctx, name)
		switch code := workspacefs.CodeOf(err); {
		case err == nil && there.IsDir():
			return workspacefs.ErrIsDirectory
		case err == nil && mode == workspacefs.Create:
			return workspacefs.ErrExists
		case err == nil:
			etag = there.(info).object.ETag //nolint:errcheck // find makes no other
		case code != workspacefs.ErrNotFound:
			return err
		case was != nil:
			return workspacefs.ErrChanged
		}
	}
	if mode == workspacefs.Append && etag != "" {
		if content, err = f.behind(ctx, name, etag, content); err != nil {
			return err
		}
	}
	sum := NewSum()
	_, _ = sum.Write(content) // it never fails
	_, err = f.b.Put(ctx, name, etag, sum.Hash(), bytes.NewReader(content), int64(len(content)))
	switch {
	case schemas.CodeOf(err) == schemas.Conflict && mode == workspacefs.Create:
		return workspacefs.ErrExists
	case schemas.CodeOf(err) == schemas.Conflict:
		return workspacefs.ErrChanged
	case schemas.CodeOf(err) == schemas.Invalid && len(f.b.prefix)+len(name) > maxKey:
		return workspacefs.ErrTooLong
	}
	return err
}

// behind returns the content of a version of a file with content appended. Codes: ErrChanged, and unsupported (it is too large to be
// rewritten).
func (f files) behind(ctx context.Context, name, etag string, content []byte) ([]byte, error) {
	o, err := f.b.Head(ctx, name)
	switch {
	case schemas.CodeOf(err) == schemas.NotFound || err == nil && o.ETag != etag:
		return nil, workspacefs.ErrChanged
	case err != nil:
		return nil, err
	case o.Size+int64(len(content)) > schemas.MaxFileChunk:
		return nil, schemas.OpErrorf(schemas.Unsupported, "files", "S3 cannot append: write the file whole")
	case o.Size == 0:
		return content, nil
	}
	before, _, err := f.b.Get(ctx, name, etag, 0, int(o.Size))
	return append(before, content...), coded(err)
}

// MkdirAll implements [workspacefs.FS].
func (f files) MkdirAll(ctx context.Context, name string) error {
	name, err := workspacefs.Clean(name)
	if err != nil {
		return err
	}
	there, err := f.find(ctx, name)
	switch code := workspacefs.CodeOf(err); {
	case err == nil && there.IsDir():
		return nil
	case err == nil:
		return workspacefs.ErrNotDirectory
	case code != workspacefs.ErrNotFound:
		return err
	}
	key, err := f.b.key(name)
	if err != nil || len(key) >= maxKey {
		return workspacefs.ErrTooLong
	}
	return f.b.makeFolder(ctx, key+"/")
}

// makeFolder writes an empty object that represents a folder.
func (b *Bucket) makeFolder(ctx context.Context, key string) error {
	ctx, cancel := within(ctx, requestWithin)
	defer cancel()
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.bucket, Key: &key, Body: bytes.NewReader(nil), ContentLength: aws.Int64(0),
	})
	return b.refusal(ctx, "make a folder", err)
}

// Rename implements [workspacefs.FS].
func (f files) Rename(ctx context.Context, from, to string) error {
	from, err := workspacefs.Clean(from)
	if err == nil {
		to, err = workspacefs.Clean(to)
	}
	switch {
	case err != nil:
		return err
	case to == "." || from == "." || Problem(to) != "":
		return workspacefs.ErrBadName
	case isUpload(to):
		return workspacefs.ErrDenied
	}
	there, err := f.find(ctx, to)
	if err != nil && workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
		return err
	}
	if isUpload(from) {
		if there != nil && there.IsDir() {
			return workspacefs.ErrIsDirectory
		}
		return f.complete(ctx, from, to, there)
	}
	moved, err := f.find(ctx, from)
	switch {
	case err != nil:
		return err
	case from == to:
		return nil
	case moved.IsDir() && strings.HasPrefix(to, from+"/"):
		return workspacefs.ErrBadName
	case moved.IsDir() && there != nil && there.IsDir():
		if _, err := f.b.Head(ctx, moveNote(from, to)); err != nil {
			if schemas.CodeOf(err) == schemas.NotFound {
				return workspacefs.ErrIsDirectory
			}
			return err
		}
		return f.renameFolder(ctx, from, to)
	case moved.IsDir() && there != nil:
		return workspacefs.ErrExists
	case moved.IsDir():
		return f.renameFolder(ctx, from, to)
	case there != nil && there.IsDir():
		return workspacefs.ErrIsDirectory
	}
	o := moved.(info).object //nolint:errcheck // find makes no other
	target, err := f.b.key(to)
	if err != nil {
		return workspacefs.ErrTooLong
	}
	if err := f.b.copyObject(ctx, o, f.b.prefix+from, target); err != nil {
		return coded(err)
	}
	return coded(f.b.Remove(ctx, from, o.ETag))
}

// Place implements [workspacefs.Placer]. For an upload the service itself checks the version that is replaced. For another file the
// version is checked just before the copy, which has no such condition.
func (f files) Place(ctx context.Context, from, to string, was fs.FileInfo) error {
	from, err := workspacefs.Clean(from)
	if err == nil {
		to, err = workspacefs.Clean(to)
	}
	if err != nil {
		return err
	}
	there, err := f.find(ctx, to)
	now, _ := there.(info)
	seen, _ := was.(info)
	switch code := workspacefs.CodeOf(err); {
	case err == nil && there.IsDir():
		return workspacefs.ErrIsDirectory
	case err == nil && was == nil:
		return workspacefs.ErrExists
	case err == nil && seen.object.ETag != now.object.ETag:
		return workspacefs.ErrChanged
	case err == nil:
	case code != workspacefs.ErrNotFound:
		return err
	case was != nil:
		return workspacefs.ErrChanged
	}
	if isUpload(from) && !isUpload(to) && Problem(to) == "" && to != "." {
		return f.complete(ctx, from, to, there)
	}
	return f.Rename(ctx, from, to)
}

// moveNote returns the name of the object that exists while a folder is being moved. It identifies an interrupted move when the move is
// repeated, since a folder is never moved over another one. Its name ends like those of other notes beside uploads, so it is removed as
// they are.
func moveNote(from, to string) string {
	sum := sha256.Sum256([]byte(from + "\x00" + to))
	return schemas.UploadsFolder + "/move-" + hex.EncodeToString(sum[:16]) + ".done"
}

// below lists the files of a folder that is moved, with names relative to it.
func (f files) below(ctx context.Context, dir string, each func(Object) error) error {
	n := 0
	return f.b.pages(ctx, dir+"/", "", 0, func(page *s3.ListObjectsV2Output) error {
		for _, c := range page.Contents {
			if n++; n > 2*mostMoved { // as many were there, and as many were copied
				return workspacefs.ErrTooMany
			}
			rest := strings.TrimPrefix(aws.ToString(c.Key), f.b.prefix+dir+"/")
			if err := each(Object{Name: rest, Size: aws.ToInt64(c.Size), ETag: aws.ToString(c.ETag)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// renameFolder copies all files of a folder, and then removes the originals. When repeated after an interruption it copies the missing
// files. It does not replace a file that another writer has put there: that is ErrChanged.
func (f files) renameFolder(ctx context.Context, from, to string) error {
	var moved []Object
	err := f.below(ctx, from, func(o Object) error {
		if moved = append(moved, o); len(moved) > mostMoved {
			return schemas.OpErrorf(schemas.Exhausted, "from", "a folder on S3 is moved with at most %d files: move those below it one by one", mostMoved)
		}
		if len(f.b.prefix)+len(to)+1+len(o.Name) > maxKey {
			return workspacefs.ErrTooLong
		}
		return nil
	})
	if err != nil {
		return coded(err)
	}
	note := moveNote(from, to)
	if err := f.b.put(ctx, note, anyVersion, []byte(from+"\n"+to+"\n"), nil); err != nil {
		return err
	}
	there := map[string]Object{}
	if err := f.below(ctx, to, func(o Object) error { there[o.Name] = o; return nil }); err != nil {
		return coded(err)
	}
	folder := func(o Object) bool { return o.Size == 0 && (o.Name == "" || strings.HasSuffix(o.Name, "/")) }
	err = parallel(ctx, moved, func(o Object) error {
		if folder(o) { // not every service copies one
			return f.b.makeFolder(ctx, f.b.prefix+to+"/"+o.Name)
		}
		if t, copied := there[o.Name]; copied {
			return f.sameCopy(ctx, from+"/"+o.Name, o, to+"/"+o.Name, t)
		}
		if o.Size > copiedAtOnce { // its metadata is not in the list
			full, err := f.b.Head(ctx, from+"/"+o.Name)
			if err != nil {
				return err
			}
			o.Hash, o.Upload = full.Hash, full.Upload
		}
		return f.b.copyObject(ctx, o, f.b.prefix+from+"/"+o.Name, f.b.prefix+to+"/"+o.Name)
	})
	if err != nil {
		return coded(err)
	}
	err = parallel(ctx, moved, func(o Object) error {
		if folder(o) {
			return f.b.dropKey(ctx, f.b.prefix+from+"/"+o.Name)
		}
		return coded(f.b.Remove(ctx, from+"/"+o.Name, o.ETag))
	})
	if err != nil {
		return err
	}
	return f.b.drop(ctx, []string{note})
}

// sameCopy returns an error unless one file is a copy of the other. If the ETag differs, as it may for a file uploaded in parts, it
// compares the metadata. Code: ErrChanged.
func (f files) sameCopy(ctx context.Context, from string, o Object, to string, t Object) error {
	if o.Size == t.Size && o.ETag == t.ETag {
		return nil
	}
	a, err := f.b.Head(ctx, from)
	if err != nil {
		return err
	}
	b, err := f.b.Head(ctx, to)
	if err != nil {
		return err
	}
	if a.Size != b.Size || a.Hash != b.Hash || a.Upload != b.Upload || a.Hash == "" && a.Upload == "" {
		return workspacefs.ErrChanged
	}
	return nil
}

// Remove implements [workspacefs.FS].
func (f files) Remove(ctx context.Context, name string) error {
	name, err := workspacefs.Clean(name)
	if err != nil {
		return err
	}
	if name == "." {
		return workspacefs.ErrBadName
	}
	if isUpload(name) {
		u, err := f.lookUp(ctx, name, true)
		switch {
		case u != nil: // also where pieces are missing
			return f.discard(ctx, u)
		case workspacefs.CodeOf(err) == workspacefs.ErrNotFound:
			return f.discardLost(ctx, name)
		}
		return err
	}
	there, err := f.find(ctx, name)
	if err != nil {
		return err
	}
	if !there.IsDir() {
		return coded(f.b.Remove(ctx, name, there.(info).object.ETag)) //nolint:errcheck // find makes no other
	}
	marker := f.b.prefix + name + "/"
	err = f.b.pages(ctx, name+"/", "", 2, func(page *s3.ListObjectsV2Output) error {
		for _, c := range page.Contents {
			if aws.ToString(c.Key) != marker {
				return workspacefs.ErrNotEmpty
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return f.b.dropKey(ctx, marker)
}

// Used returns the number of files below the root, including folder objects, and their bytes, including those of uploads. It stops
// counting above files or bytes.
func (f files) Used(ctx context.Context, files int, bytes int64) (n int, sum int64, err error) {
	err = f.b.pages(ctx, "", "", 0, func(page *s3.ListObjectsV2Output) error {
		for _, c := range page.Contents {
			if !strings.HasPrefix(aws.ToString(c.Key), f.b.prefix+schemas.UploadsFolder+"/") {
				n++
			}
			if sum += aws.ToInt64(c.Size); n > files || sum > bytes {
				return fs.SkipAll
			}
		}
		return nil
	})
	if err == fs.SkipAll { //nolint:errorlint // it is returned as it is
		err = nil
	}
	return n, sum, err
}

// Version returns a text that differs for each version of a file.
func (i info) Version() string { return i.object.version() }

// dropKey removes an object.
func (b *Bucket) dropKey(ctx context.Context, key string) error {
	ctx, cancel := within(ctx, requestWithin)
	defer cancel()
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key})
	if err = b.refusal(ctx, "remove a folder", err); schemas.CodeOf(err) == schemas.NotFound {
		return nil
	}
	return err
}

// copyObject copies a version of an object within the service, with its metadata. Code: conflict, the version has changed.
func (b *Bucket) copyObject(ctx context.Context, o Object, from, to string) error {
	if o.Size <= copiedAtOnce {
		ctx, cancel := within(ctx, transferWithin)
		defer cancel()
		_, err := b.client.CopyObject(ctx, &s3.CopyObjectInput{
			Bucket: &b.bucket, Key: &to, CopySource: b.copySource(from), CopySourceIfMatch: nonEmpty(o.ETag),
		})
		return b.refusal(ctx, "copy "+quoted(path.Base(from)), err)
	}
	metadata := map[string]string{}
	if o.Hash != "" {
		metadata[hashField] = o.Hash
	}
	if o.Upload != "" {
		metadata[uploadField] = o.Upload
	}
	var sources []source
	for at := int64(0); at < o.Size; at += copiedAtOnce {
		sources = append(sources, source{from, o.ETag, fmt.Sprintf("bytes=%d-%d", at, min(at+copiedAtOnce, o.Size)-1)})
	}
	return b.assemble(ctx, to, anyVersion, sources, nil, metadata)
}

// copySource returns the header value that names an object as the source of a copy.
func (b *Bucket) copySource(key string) *string {
	parts := strings.Split(b.bucket+"/"+key, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return aws.String(strings.Join(parts, "/"))
}
