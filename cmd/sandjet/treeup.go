package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// A larger file than aloneAbove is uploaded by itself, so that its upload can be resumed. Smaller ones go in archives of at most
	// batchFiles entries and batchBytes, which are sent again as a whole if they break off.
	aloneAbove = 8 << 20
	batchFiles = 1000
	batchBytes = 64 << 20
	batchTries = 5
)

// treeUp uploads files of a local folder to a folder of a workspace.
type treeUp struct {
	cl       *client.Client
	w        schemas.WorkspaceID
	to       string
	root     *os.Root
	progress *progress
	// sent is called for each file when it is stored, with its SHA-256 in hex. It may be nil.
	sent func(f treeFile, sum string)
}

// all uploads files and folders. Those uploaded before an error stay.
func (u *treeUp) all(ctx context.Context, list []treeFile) error {
	var batch []treeFile
	size := int64(0)
	flush := func() error {
		err := u.batch(ctx, batch)
		batch, size = nil, 0
		return err
	}
	for _, f := range list {
		if !f.folder && f.size > aloneAbove && !f.executable {
			if err := u.alone(ctx, f); err != nil {
				return err
			}
			continue
		}
		if len(batch) >= batchFiles || len(batch) > 0 && size+f.size > batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		batch, size = append(batch, f), size+f.size
	}
	return flush()
}

// alone uploads one file. The id of the upload is derived from its content, so that another process can resume it within a day. Code
// conflict: the file changed meanwhile.
func (u *treeUp) alone(ctx context.Context, f treeFile) error {
	in, err := u.root.Open(f.path)
	if err != nil {
		return schemas.Wrap(schemas.NotFound, "from", err.Error(), err)
	}
	defer in.Close() //nolint:errcheck // it is only read
	h := sha256.New()
	if _, err := io.Copy(h, contextReader{ctx, in}); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	to := path.Join(u.to, f.path)
	name := sha256.Sum256(append(h.Sum(nil), to...))
	stored, again := int64(0), sha256.New()
	o := client.UploadOptions{ID: "s" + hex.EncodeToString(name[:16]), Progress: func(n int64) {
		u.progress.add(0, n-stored)
		stored = n
	}}
	if _, err := u.cl.Files(u.w).Upload(ctx, to, io.TeeReader(in, again), o); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if hex.EncodeToString(again.Sum(nil)) != sum {
		return schemas.OpErrorf(schemas.Conflict, "from", "%s changed while it was sent: send it again", f.path)
	}
	u.progress.add(1, 0)
	if u.sent != nil {
		u.sent(f, sum)
	}
	return nil
}

// batch uploads files and folders as one archive, and repeats that if it breaks off: files that were stored already are replaced by the
// same content.
func (u *treeUp) batch(ctx context.Context, list []treeFile) error {
	if len(list) == 0 {
		return nil
	}
	for try := 0; ; try++ {
		sums, err := u.archive(ctx, list)
		if err == nil {
			files := 0
			for i, f := range list {
				if f.folder {
					continue
				}
				if files++; u.sent != nil {
					u.sent(f, sums[i])
				}
			}
			u.progress.add(files, bytesOf(list))
			return nil
		}
		code := schemas.CodeOf(err)
		if ctx.Err() != nil || try >= batchTries-1 || code != schemas.Unavailable && code != schemas.Interrupted {
			return err
		}
		if !wait.Sleep(ctx, wait.Jitter(time.Second<<try)) {
			return err
		}
	}
}

// archive uploads files and folders once. It returns the SHA-256 of the files, at their indexes in the list.
func (u *treeUp) archive(ctx context.Context, list []treeFile) (sums []string, err error) {
	out, in := io.Pipe()
	var packed error
	var writer sync.WaitGroup
	writer.Go(func() {
		sums, packed = packTree(u.root, list, in)
		in.CloseWithError(packed) // nil ends the archive
	})
	_, err = u.cl.Files(u.w).UploadArchive(ctx, u.to, out)
	out.CloseWithError(io.ErrClosedPipe)
	writer.Wait()
	if packed != nil && !errors.Is(packed, io.ErrClosedPipe) {
		return nil, packed // the server's error would only be about an incomplete archive
	}
	return sums, err
}

// packTree writes a tar of files with their current content. It returns the SHA-256 of the files, at their indexes in the list.
func packTree(root *os.Root, list []treeFile, to io.Writer) (sums []string, err error) {
	sums = make([]string, len(list))
	out := tar.NewWriter(to)
	for i, f := range list {
		if sums[i], err = packFile(root, f, out); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("end the archive: %w", err)
	}
	return sums, nil
}

func packFile(root *os.Root, f treeFile, out *tar.Writer) (sum string, err error) {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: f.size, Mode: 0o644, ModTime: f.modified}
	if f.folder {
		h.Typeflag, h.Name, h.Mode, h.Size = tar.TypeDir, f.path+"/", 0o755, 0
		return "", out.WriteHeader(h)
	}
	if f.executable {
		h.Mode = 0o755
	}
	in, err := root.Open(f.path)
	if err != nil {
		return "", schemas.Wrap(schemas.Conflict, "from", err.Error(), err)
	}
	defer in.Close() //nolint:errcheck // it is only read
	if err := out.WriteHeader(h); err != nil {
		return "", fmt.Errorf("write a header: %w", err)
	}
	digest := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, digest), io.LimitReader(in, f.size))
	if err == nil && n < f.size {
		return "", schemas.OpErrorf(schemas.Conflict, "from", "%s became shorter while it was read: copy it again", f.path)
	}
	return hex.EncodeToString(digest.Sum(nil)), err
}

// contextReader is a reader that fails when its context ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of one reading
	r   io.Reader
}

// Read implements [io.Reader].
func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
