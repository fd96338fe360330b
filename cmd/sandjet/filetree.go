package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// mostInTree is the most files and folders that one copy or comparison handles, on each side.
	mostInTree = 200_000
	// ownFolder is Sandjet's own folder, at the root of a workspace and in each folder that it runs in. It is never copied.
	ownFolder = ".sandjet"
)

// treeFile is a file or a folder within the local folder that is copied.
type treeFile struct {
	path       string // relative to that folder, with slashes
	folder     bool
	size       int64
	modified   time.Time
	executable bool
}

// localTree lists everything below a local folder, sorted by path. Links, devices and other special files, and entries whose names a
// workspace cannot have, are returned in left. Links are not followed. Codes: invalid, exhausted.
func localTree(root *os.Root, excluded patterns) (list []treeFile, left []string, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case name == ownFolder || excluded.match(name):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !e.IsDir() && !e.Type().IsRegular() || !schemas.FileNameFits(name):
			if left = append(left, name); e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case len(list) >= mostInTree:
			return schemas.OpErrorf(schemas.Exhausted, "from", "there are more than %d files and folders: copy a folder below", mostInTree)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		list = append(list, treeFile{name, e.IsDir(), info.Size(), info.ModTime(), info.Mode()&0o111 != 0})
		return nil
	})
	if err != nil && schemas.CodeOf(err) != schemas.Exhausted {
		err = schemas.Wrap(schemas.Invalid, "from", err.Error(), err)
	}
	slices.SortFunc(list, func(a, b treeFile) int { return cmp.Compare(a.path, b.path) })
	return list, left, err
}

// remoteTree lists everything below a folder of a workspace, with paths relative to that folder. If it is too much for one recursive
// listing, it lists folder by folder. Codes: those of Files, exhausted.
func remoteTree(ctx context.Context, t terminal, cl *client.Client, w schemas.WorkspaceID, dir string, excluded patterns) (
	list []schemas.FileInfo, err error,
) {
	all, err := allFiles(ctx, t, cl, w, dir, true)
	if schemas.CodeOf(err) == schemas.Exhausted {
		all, err = byFolder(ctx, t, cl, w, dir)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		rel, err := filepath.Rel("/"+filepath.FromSlash(dir), "/"+filepath.FromSlash(f.Path))
		if err != nil || !filepath.IsLocal(rel) { // the server's paths are not trusted, as they name files of this host
			return nil, schemas.OpErrorf(schemas.Internal, "from", "the server lists %q, which is not in the folder", schemas.Quotable(f.Path))
		}
		f.Path = filepath.ToSlash(rel)
		if f.Path == "." || f.Path == ownFolder || strings.HasPrefix(f.Path, ownFolder+"/") || excluded.matchAny(f.Path) {
			continue
		}
		list = append(list, f)
	}
	return list, nil
}

func byFolder(ctx context.Context, t terminal, cl *client.Client, w schemas.WorkspaceID, dir string) ([]schemas.FileInfo, error) {
	var all []schemas.FileInfo
	for open := []string{dir}; len(open) > 0; {
		here, err := allFiles(ctx, t, cl, w, open[0], false)
		if err != nil {
			return nil, err
		}
		if open = open[1:]; len(all)+len(here) > mostInTree {
			return nil, schemas.OpErrorf(schemas.Exhausted, "from", "there are more than %d files and folders: copy a folder below", mostInTree)
		}
		for _, f := range here {
			if f.Type == schemas.TypeDirectory && f.Path != ownFolder {
				open = append(open, f.Path)
			}
		}
		all = append(all, here...)
	}
	return all, nil
}

// patterns are the values of --exclude. One without a slash matches files and folders of that name anywhere, one with a slash matches
// paths.
type patterns []string

func (p patterns) check() error {
	for _, one := range p {
		if _, err := path.Match(one, ""); err != nil || one == "" {
			return schemas.Invalidf("exclude", "%q is not a pattern: use *, ? and [a-z], as in *.log or build/*", schemas.Quotable(one))
		}
	}
	return nil
}

func (p patterns) match(name string) bool {
	return slices.ContainsFunc(p, func(one string) bool {
		what := name
		if !strings.Contains(one, "/") {
			what = path.Base(name)
		}
		ok, _ := path.Match(strings.Trim(one, "/"), what) // check has validated it
		return ok
	})
}

// matchAny reports whether a pattern matches the path or a folder above it.
func (p patterns) matchAny(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if p.match(name) {
			return true
		}
	}
	return false
}

// progress prints how far a long copy has got, every progressEvery. It is safe for concurrent use.
type progress struct {
	mu           sync.Mutex
	t            terminal
	next         time.Time
	files, of    int
	bytes, total int64
}

const progressEvery = 3 * time.Second

func newProgress(t terminal, files int, bytes int64) *progress {
	return &progress{t: t, next: time.Now().Add(progressEvery), of: files, total: bytes}
}

// add counts copied files and bytes.
func (p *progress) add(files int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files += files
	p.bytes += bytes
	if now := time.Now(); !now.Before(p.next) {
		p.next = now.Add(progressEvery)
		fmt.Fprintf(p.t.err, "sandjet: %d of %s, %s of %s\n", p.files, count(p.of, "file"), byteSize(p.bytes), byteSize(p.total))
	}
}

// bytesOf returns the total size of files.
func bytesOf(list []treeFile) (n int64) {
	for _, f := range list {
		n += f.size
	}
	return n
}
