package main

import (
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
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type filesSyncCommand struct {
	gatewayTarget

	From    string   `arg:"" help:"Source folder: a path of this host, or WORKSPACE:PATH."`
	To      string   `arg:"" help:"Target folder, which becomes equal: WORKSPACE:PATH, or a path of this host."`
	Delete  bool     `use:"" help:"Remove what is in the second folder and not in the first."`
	DryRun  bool     `use:"" help:"Print what would be done."`
	Exclude []string `sep:"none" placeholder:"PATTERN" use:"" help:"Ignore matching files on both sides: *.log anywhere, build/* relative to the folder. Repeatable."`
}

// Help returns the detailed help, for kong.
func (*filesSyncCommand) Help() string {
	return `Makes one folder like another: one is of this host, the other in a workspace. What has another size or another content is
copied, what the second has beside it stays, or goes with --delete. Content is compared by SHA-256; what is known of files that did
not change since is kept in the user's cache folder. Start it again after it was stopped: what was copied is not copied again.

Links, devices, names with line breaks and the folder .sandjet are left alone on both sides, and executable bits are
only copied to workspaces.

Examples:
  sandjet files sync ./src :src
  sandjet files sync --delete --exclude node_modules . docs:site
  sandjet files sync --dry-run :outputs ./outputs`
}

// Run synchronizes.
func (c *filesSyncCommand) Run(ctx context.Context, t terminal) error {
	_, up := parseRemote(c.To)
	if _, down := parseRemote(c.From); down == up {
		return schemas.Invalidf("to", "one of both is WORKSPACE:PATH, and the other a path of this host (./a:b for a name with a colon)")
	}
	if err := patterns(c.Exclude).check(); err != nil {
		return err
	}
	remote, local, field := c.From, c.To, "from"
	if up {
		remote, local, field = c.To, c.From, "to"
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	s := &syncing{c: c, t: t, cl: cl, up: up}
	if s.w, s.dir, err = remoteAt(ctx, cl, field, remote); err != nil {
		return err
	}
	if !up && !c.DryRun {
		if err := os.MkdirAll(local, 0o755); err != nil { //nolint:gosec // as mkdir does
			return schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
		}
	}
	s.root, err = os.OpenRoot(local)
	if errors.Is(err, fs.ErrNotExist) && !up {
		empty, terr := os.MkdirTemp("", "sandjet") // a dry run creates no folder: compare with an empty one
		if terr != nil {
			return fmt.Errorf("make a folder: %w", terr)
		}
		defer os.Remove(empty) //nolint:errcheck // it is empty
		s.root, err = os.OpenRoot(empty)
	}
	if err != nil {
		return schemas.Wrap(schemas.NotFound, map[bool]string{true: "from", false: "to"}[up], "the folder cannot be opened", err)
	}
	defer s.root.Close() //nolint:errcheck // it is only a handle
	whole, err := filepath.Abs(local)
	if err != nil {
		return fmt.Errorf("find %s: %w", local, err)
	}
	s.known = openSums(string(s.w), s.dir, whole)
	return s.finish(ctx)
}

// syncing is one run of the command.
type syncing struct {
	c     *filesSyncCommand
	t     terminal
	cl    *client.Client
	w     schemas.WorkspaceID
	dir   string
	root  *os.Root
	up    bool
	known *sums
	done  syncDone
}

// syncDone is what the command prints with --json.
type syncDone struct {
	Copied  int          `json:"copied"`
	Bytes   int64        `json:"bytes"` // of the files that were copied
	Same    int          `json:"same"`
	Removed int          `json:"removed"`
	LeftOut int          `json:"left_out"` // links, devices and others, on either side
	DryRun  bool         `json:"dry_run,omitzero"`
	Changes []syncChange `json:"changes,omitzero"` // of a dry run
}

type syncChange struct {
	Do   string `json:"do"` // copy, mkdir or remove
	Path string `json:"path"`
	Size int64  `json:"size,omitzero"`
}

// finish runs the synchronization. Checksums are saved even if it fails.
func (s *syncing) finish(ctx context.Context) error {
	err := s.run(ctx)
	s.known.save()
	if err != nil && ctx.Err() != nil {
		fmt.Fprintf(s.t.err, "sandjet: stopped after %s: the same command continues\n", count(s.done.Copied, "file"))
		return &exitError{exitCancelled, nil}
	}
	return err
}

func (s *syncing) run(ctx context.Context) error {
	local, left, err := localTree(s.root, s.c.Exclude)
	if err != nil {
		return err
	}
	remote, err := remoteTree(ctx, s.t, s.cl, s.w, s.dir, s.c.Exclude)
	if schemas.CodeOf(err) == schemas.NotFound && s.up {
		remote, err = nil, nil
	}
	if err != nil {
		return err
	}
	p, err := planSync(local, left, remote, s.up, s.c.Delete)
	if err != nil {
		return err
	}
	s.done.LeftOut = p.left
	for _, pair := range p.pairs {
		same, err := s.same(ctx, pair)
		if err != nil {
			return err
		}
		if same {
			s.done.Same++
			continue
		}
		p.copies = append(p.copies, pair)
	}
	if s.c.DryRun {
		return s.show(p)
	}
	if err := s.remove(ctx, p.first); err != nil {
		return err
	}
	if s.up {
		err = s.send(ctx, p)
	} else {
		err = s.fetch(ctx, p)
	}
	if err == nil {
		err = s.remove(ctx, p.last)
	}
	if err != nil {
		return err
	}
	return s.show(p)
}

// same reports whether two files of the same size have the same content. A stored checksum saves reading the file.
func (s *syncing) same(ctx context.Context, p syncPair) (bool, error) {
	mine, ok := s.known.local(p.local)
	if !ok {
		began := time.Now()
		f, err := s.root.Open(p.local.path)
		if err != nil {
			return false, schemas.Wrap(schemas.Conflict, "", err.Error(), err)
		}
		defer f.Close() //nolint:errcheck // it is only read
		if mine, err = sumOf(contextReader{ctx, f}); err != nil {
			return false, fmt.Errorf("%s: %w", p.local.path, err)
		}
		s.known.setLocal(p.local, mine, began)
	}
	theirs, ok := s.known.remote(p.remote)
	if !ok {
		h := sha256.New()
		if _, err := s.cl.Files(s.w).Download(ctx, path.Join(s.dir, p.remote.Path), h); err != nil {
			return false, fmt.Errorf("%s: %w", p.remote.Path, err)
		}
		theirs = hex.EncodeToString(h.Sum(nil))
		s.known.setRemote(p.remote, theirs)
	}
	return mine == theirs, nil
}

func sumOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// send copies to the workspace and then lists the files there. The checksum that was sent is recorded only for a file whose listed size
// and time, in seconds, are those that were sent.
func (s *syncing) send(ctx context.Context, p syncPlan) error {
	list := p.folders
	for _, pair := range p.copies {
		list = append(list, pair.local)
	}
	sent := map[string]string{}
	began := time.Now()
	u := treeUp{cl: s.cl, w: s.w, to: s.dir, root: s.root, progress: newProgress(s.t, len(p.copies), bytesOf(list))}
	u.sent = func(f treeFile, sum string) {
		s.done.Copied++
		s.done.Bytes += f.size
		sent[f.path] = sum
		s.known.setLocal(f, sum, began)
	}
	if err := u.all(ctx, list); err != nil || len(sent) == 0 {
		return err
	}
	now, err := remoteTree(ctx, s.t, s.cl, s.w, s.dir, s.c.Exclude)
	if err != nil {
		return err
	}
	times := map[string]treeFile{}
	for _, f := range list {
		times[f.path] = f
	}
	for _, f := range now {
		if was := times[f.Path]; sent[f.Path] != "" && was.size == f.Size && was.modified.Unix() == f.Modified.Unix() {
			s.known.setRemote(f, sent[f.Path])
		}
	}
	return nil
}

// fetch copies from the workspace to this host.
func (s *syncing) fetch(ctx context.Context, p syncPlan) error {
	total := int64(0)
	for _, pair := range p.copies {
		total += pair.remote.Size
	}
	d := treeDown{cl: s.cl, w: s.w, from: s.dir, root: s.root, progress: newProgress(s.t, len(p.copies), total)}
	for _, f := range p.folders {
		if err := d.folder(f.path); err != nil {
			return err
		}
	}
	for _, pair := range p.copies {
		sum, err := d.file(ctx, pair.remote, 0)
		if err != nil {
			return err
		}
		s.done.Copied++
		s.done.Bytes += pair.remote.Size
		if info, err := s.root.Stat(pair.remote.Path); err == nil && info.Size() == pair.remote.Size {
			s.known.setRemote(pair.remote, sum)
			s.known.setLocal(treeFile{path: pair.remote.Path, size: info.Size(), modified: info.ModTime()}, sum, time.Now())
		}
	}
	return nil
}

// remove removes files and folders. In list, the content of a folder precedes the folder. A folder that is not empty stays.
func (s *syncing) remove(ctx context.Context, list []string) error {
	for _, name := range list {
		var err error
		if s.up {
			err = s.cl.Files(s.w).Remove(ctx, path.Join(s.dir, name), false)
		} else if ctx.Err() == nil {
			err = s.root.Remove(filepath.FromSlash(name))
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fs.ErrNotExist) || schemas.CodeOf(err) == schemas.NotFound:
		case err != nil && (!s.up || schemas.CodeOf(err) == schemas.Conflict):
			fmt.Fprintf(s.t.err, "sandjet: %s stays: %v\n", printable(name), err)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		default:
			s.done.Removed++
		}
	}
	return nil
}

// show prints what was done, or what would be.
func (s *syncing) show(p syncPlan) error {
	if s.c.DryRun {
		s.done.DryRun = true
		s.done.Changes = p.changes(s.up)
	}
	if s.t.json {
		return printJSON(s.t.out, s.done)
	}
	for _, c := range s.done.Changes {
		if _, err := fmt.Fprintf(s.t.out, "%-6s  %s\n", c.Do, printable(c.Path)); err != nil {
			return wrapOutput(err)
		}
	}
	if s.done.LeftOut > 0 {
		fmt.Fprintf(s.t.err, "sandjet: left alone %s: only files and folders with names of UTF-8 in one line are copied\n",
			count(s.done.LeftOut, "entry", "entries"))
	}
	if s.c.DryRun {
		_, err := fmt.Fprintf(s.t.out, "Would copy %s, remove %d; %d the same\n", count(len(p.copies), "file"), len(p.first)+len(p.last),
			s.done.Same)
		return wrapOutput(err)
	}
	_, err := fmt.Fprintf(s.t.out, "Copied %s (%s), removed %d; %d the same\n", count(s.done.Copied, "file"), byteSize(s.done.Bytes),
		s.done.Removed, s.done.Same)
	return wrapOutput(err)
}
