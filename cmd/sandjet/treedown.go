package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// treeDown writes files of a workspace into a local folder, never outside of it, whatever links the folder has.
type treeDown struct {
	cl       *client.Client
	w        schemas.WorkspaceID
	from     string
	root     *os.Root
	progress *progress
}

// all downloads the entries of a list as one archive, and one by one those that the archive did not deliver because it broke off or the
// folder is too large for one. It returns the number of files written, and of entries that are neither files nor folders.
func (d *treeDown) all(ctx context.Context, list []schemas.FileInfo) (n, left int, err error) {
	done := map[string]bool{}
	out, in := io.Pipe()
	var got error
	var reader sync.WaitGroup
	reader.Go(func() {
		got = d.unpack(out, done)
		out.CloseWithError(got)
	})
	_, err = d.cl.Files(d.w).DownloadArchive(ctx, d.from, in)
	in.CloseWithError(cmpOr(err, io.EOF))
	reader.Wait()
	switch code := schemas.CodeOf(err); {
	case ctx.Err() != nil:
		return len(done), 0, context.Cause(ctx)
	case got != nil && err == nil, got != nil && schemas.CodeOf(got) == schemas.Invalid: // an error of this host, or an invalid archive
		return len(done), 0, got
	case err != nil && code != schemas.Unavailable && code != schemas.Interrupted && code != schemas.Exhausted:
		return len(done), 0, err
	}
	for _, f := range list {
		switch f.Type {
		case schemas.TypeDirectory:
			err = d.folder(f.Path)
		case schemas.TypeFile:
			if !done[f.Path] {
				_, err = d.file(ctx, f, 0)
				done[f.Path] = true
			}
		default:
			left++
		}
		if err != nil {
			return len(done), left, err
		}
	}
	return len(done), left, nil
}

func cmpOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// unpack writes the files of the gateway's archive. It adds the names of complete files to done. Code invalid: an entry is outside of the
// folder.
func (d *treeDown) unpack(in io.Reader, done map[string]bool) error {
	for t := tar.NewReader(in); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		name := path.Clean(h.Name)
		if !filepath.IsLocal(filepath.FromSlash(name)) || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			return schemas.Invalidf("from", "the server sends %q, which is not in the folder", schemas.Quotable(h.Name))
		}
		switch {
		case name == "." || name == ownFolder || strings.HasPrefix(name, ownFolder+"/"):
		case h.Typeflag == tar.TypeDir:
			err = d.folder(name)
		default:
			mode := fs.FileMode(0o644)
			if h.Mode&0o111 != 0 {
				mode = 0o755
			}
			if _, err = d.save(name, mode, h.ModTime, func(out io.Writer) error {
				_, err := io.CopyN(out, t, h.Size)
				return err
			}); err == nil {
				done[name] = true
				d.progress.add(1, h.Size)
			}
		}
		if err != nil {
			return err
		}
	}
}

// file downloads one file. If mode is 0, that of the existing file applies, else 0644. It returns the SHA-256 of the content, in hex.
func (d *treeDown) file(ctx context.Context, f schemas.FileInfo, mode fs.FileMode) (sum string, err error) {
	if mode == 0 {
		mode = 0o644
		if there, err := d.root.Lstat(f.Path); err == nil && there.Mode().IsRegular() {
			mode = there.Mode().Perm()
		}
	}
	if sum, err = d.save(f.Path, mode, f.Modified, func(out io.Writer) error {
		_, err := d.cl.Files(d.w).Download(ctx, path.Join(d.from, f.Path), out)
		return err
	}); err != nil {
		return "", fmt.Errorf("%s: %w", f.Path, err)
	}
	d.progress.add(1, f.Size)
	return sum, nil
}

func (d *treeDown) folder(name string) error {
	if err := d.root.MkdirAll(filepath.FromSlash(name), 0o755); err != nil {
		return schemas.Wrap(schemas.Invalid, "to", "the folder cannot be made", err)
	}
	return nil
}

// save has fetch write to a temporary file, which then replaces the file of that name. It returns the SHA-256 of the content, in hex.
func (d *treeDown) save(name string, mode fs.FileMode, modified time.Time, fetch func(io.Writer) error) (sum string, err error) {
	at := filepath.FromSlash(name)
	if err := d.folder(path.Dir(name)); err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(at), "."+schemas.NewID("sandjet"))
	f, err := d.root.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	defer func() {
		if err != nil {
			_ = d.root.Remove(beside)
		}
	}()
	digest := sha256.New()
	if err := fetch(io.MultiWriter(f, digest)); err != nil {
		_ = f.Close()
		return "", err
	}
	err = errors.Join(f.Chmod(mode), f.Close())
	if err == nil && !modified.IsZero() {
		err = d.root.Chtimes(beside, modified, modified)
	}
	if err == nil {
		err = d.root.Rename(beside, at)
	}
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
