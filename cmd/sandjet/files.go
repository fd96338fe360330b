package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type filesCommand struct {
	LS    filesListCommand   `cmd:"" name:"ls" help:"List a folder."`
	CP    filesCopyCommand   `cmd:"" name:"cp" help:"Copy files to a workspace, or from it."`
	Sync  filesSyncCommand   `cmd:"" help:"Make a folder of a workspace like one of this host, or the other way round."`
	Cat   filesCatCommand    `cmd:"" help:"Print a file."`
	RM    filesRemoveCommand `cmd:"" name:"rm" help:"Remove a file or a folder."`
	MV    filesMoveCommand   `cmd:"" name:"mv" help:"Move or rename a file or a folder."`
	Mkdir filesMkdirCommand  `cmd:"" help:"Create a folder with its parents."`
}

// Help returns the detailed help, for kong.
func (*filesCommand) Help() string {
	return `Files of workspaces, without a call: byte by byte as they are, of any size up to 16 GiB. A worker of the
workspace's provider must run. Where only sandboxes see the files, each piece is a run in one: that is faster while a
persistent sandbox of the workspace is up.

A file is named WORKSPACE:PATH, with the workspace's id or name; :PATH is in the workspace "default".

Examples:
  sandjet files cp data.csv :inputs/data.csv
  sandjet files ls :inputs
  sandjet files sync ./src :src
  sandjet files cp --recursive docs:outputs ./outputs
  sandjet files cat :notes.txt
  sandjet files rm --recursive docs:tmp`
}

// remoteFile is a parsed WORKSPACE:PATH.
type remoteFile struct {
	workspace string
	path      string
}

// defaultWorkspace is the name of the workspace that each account has from the start.
const defaultWorkspace = "default"

// parseRemote parses WORKSPACE:PATH. ok is false if there is no colon before the first slash.
func parseRemote(s string) (f remoteFile, ok bool) {
	before, after, ok := strings.Cut(s, ":")
	if !ok || strings.Contains(before, "/") {
		return f, false
	}
	if before == "" {
		before = defaultWorkspace
	}
	return remoteFile{before, strings.Trim(after, "/")}, true
}

// remoteAt resolves WORKSPACE:PATH to the workspace's id and the path. Errors name the field. Codes: invalid, and those of looking up the
// workspace.
func remoteAt(ctx context.Context, cl *client.Client, field, s string) (schemas.WorkspaceID, string, error) {
	f, ok := parseRemote(s)
	if !ok {
		return "", "", schemas.Invalidf(field, "%q names no workspace: WORKSPACE:PATH, or :PATH for the workspace %q",
			schemas.Quotable(s), defaultWorkspace)
	}
	for part := range strings.SplitSeq(f.path, "/") {
		if part == ".." {
			return "", "", schemas.Invalidf(field, "%q: .. is not allowed, paths begin at the root of the workspace", schemas.Quotable(s))
		}
	}
	id, err := workspaceKind().id(ctx, cl, f.workspace)
	return schemas.WorkspaceID(id), f.path, err
}

type filesListCommand struct {
	listTarget

	Folder    string `arg:"" optional:"" default:":" help:"WORKSPACE:PATH of the folder. Default: the workspace \"default\"."`
	Recursive bool   `short:"r" use:"" help:"List the folders below, too."`
}

// Run lists a folder.
func (c *filesListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		w, p, err := remoteAt(ctx, cl, "folder", c.Folder)
		if err != nil {
			return err
		}
		list, err := allFiles(ctx, t, cl, w, p, c.Recursive)
		if err != nil {
			return err
		}
		return printList(t, list, "No files.", "PATH\tTYPE\tSIZE\tMODIFIED", func(f schemas.FileInfo) string {
			size := "-"
			if f.Type == schemas.TypeFile {
				size = strconv.FormatInt(f.Size, 10)
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s", printable(f.Path), f.Type, size, ago(f.Modified))
		})
	})
}

// allFiles returns the entries of a folder, from all pages of its list.
func allFiles(
	ctx context.Context, t terminal, cl *client.Client, w schemas.WorkspaceID, p string, recursive bool,
) ([]schemas.FileInfo, error) {
	var all []schemas.FileInfo
	q := client.FilesQuery{Path: p, Recursive: recursive}
	for {
		list, err := cl.Files(w).List(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, list.Entries...)
		if !list.More || len(list.Entries) == 0 {
			if list.Unnamed > 0 {
				fmt.Fprintf(t.err, "sandjet: %d entries are left out: their names are not UTF-8\n", list.Unnamed)
			}
			return all, nil
		}
		q.After = list.Entries[len(list.Entries)-1].Path
	}
}

type filesCopyCommand struct {
	gatewayTarget

	From      string `arg:"" help:"What is copied: a path of this host, or WORKSPACE:PATH; - is the standard input."`
	To        string `arg:"" help:"Where to: WORKSPACE:PATH, or a path of this host; - is the standard output."`
	Recursive bool   `short:"r" use:"" help:"Copy a folder with all that is in it."`
	Create    bool   `use:"" help:"Refuse to replace files that are there."`
}

// Help returns the detailed help, for kong.
func (*filesCopyCommand) Help() string {
	return `One side is WORKSPACE:PATH, the other a path of this host. A path that ends in / is a folder that gets the file.
An upload that breaks off goes on where it was; the file is there once it is whole. Links, devices and the folder .sandjet at the
top are left out. A folder is sent in archives, with its executable bits, and large files one by one.

Examples:
  sandjet files cp data.csv :inputs/
  sandjet files cp --recursive ./site docs:www
  tar c src | sandjet files cp - :src.tar
  sandjet files cp :outputs/plot.png .`
}

// Run copies.
func (c *filesCopyCommand) Run(ctx context.Context, t terminal) error {
	_, fromRemote := parseRemote(c.From)
	_, toRemote := parseRemote(c.To)
	if fromRemote == toRemote {
		return schemas.Invalidf("to", "one of both is WORKSPACE:PATH, and the other a path of this host (./a:b for a name with a colon)")
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	if toRemote {
		w, p, err := remoteAt(ctx, cl, "to", c.To)
		if err != nil {
			return err
		}
		return c.up(ctx, t, cl, w, p)
	}
	w, p, err := remoteAt(ctx, cl, "from", c.From)
	if err != nil {
		return err
	}
	return c.down(ctx, t, cl, w, p)
}

// up copies a file or a folder to a workspace.
func (c *filesCopyCommand) up(ctx context.Context, t terminal, cl *client.Client, w schemas.WorkspaceID, to string) error {
	o := client.UploadOptions{IfNoneMatch: c.Create}
	if c.From == "-" {
		_, err := cl.Files(w).Upload(ctx, to, t.in, o)
		return err
	}
	info, err := os.Stat(c.From)
	if err != nil {
		return schemas.Wrap(schemas.NotFound, "from", err.Error(), err)
	}
	if !info.IsDir() {
		if to == "" || strings.HasSuffix(c.To, "/") {
			to = path.Join(to, filepath.Base(c.From))
		}
		return uploadFile(ctx, cl, w, c.From, to, o)
	}
	if !c.Recursive {
		return schemas.Invalidf("from", "%s is a folder: copy it with --recursive", c.From)
	}
	root, err := os.OpenRoot(c.From)
	if err != nil {
		return schemas.Wrap(schemas.NotFound, "from", err.Error(), err)
	}
	defer root.Close() //nolint:errcheck // it is only a handle
	list, left, err := localTree(root, nil)
	if err != nil {
		return err
	}
	files := 0
	for _, f := range list {
		if !f.folder {
			files++
		}
	}
	if c.Create { // an archive would replace existing files
		err = c.eachUp(ctx, cl, w, to, list)
	} else {
		u := treeUp{cl: cl, w: w, to: to, root: root, progress: newProgress(t, files, bytesOf(list))}
		err = u.all(ctx, list)
	}
	if err != nil {
		return err
	}
	return copied(t, files, len(left))
}

// eachUp uploads files one by one, and fails if one exists already.
func (c *filesCopyCommand) eachUp(ctx context.Context, cl *client.Client, w schemas.WorkspaceID, to string, list []treeFile) (err error) {
	for _, f := range list {
		if at := path.Join(to, f.path); f.folder {
			_, err = cl.Files(w).MakeFolder(ctx, at)
		} else {
			err = uploadFile(ctx, cl, w, filepath.Join(c.From, filepath.FromSlash(f.path)), at, client.UploadOptions{IfNoneMatch: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copied(t terminal, n, left int) error {
	if left > 0 {
		fmt.Fprintf(t.err, "sandjet: left out %s: only files and folders with names of UTF-8 in one line are copied\n",
			count(left, "entry", "entries"))
	}
	if !t.json {
		_, err := fmt.Fprintf(t.out, "Copied %s\n", count(n, "file"))
		return wrapOutput(err)
	}
	return printJSON(t.out, map[string]int{"copied": n, "left_out": left})
}

func uploadFile(ctx context.Context, cl *client.Client, w schemas.WorkspaceID, from, to string, o client.UploadOptions) error {
	f, err := os.Open(from) // the user's own file
	if err != nil {
		return schemas.Wrap(schemas.NotFound, "from", err.Error(), err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	if _, err := cl.Files(w).Upload(ctx, to, f, o); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// down copies a file or a folder from a workspace.
func (c *filesCopyCommand) down(ctx context.Context, t terminal, cl *client.Client, w schemas.WorkspaceID, from string) error {
	if c.To == "-" {
		_, err := cl.Files(w).Download(ctx, from, t.out)
		return err
	}
	if !c.Recursive {
		to := c.To
		if info, err := os.Stat(to); err == nil && info.IsDir() || strings.HasSuffix(to, "/") {
			to = filepath.Join(to, path.Base(from))
		}
		return c.downloadFile(ctx, cl, w, from, to)
	}
	list, err := remoteTree(ctx, t, cl, w, from, nil)
	if err != nil {
		return err
	}
	files, size := 0, int64(0)
	for _, f := range list {
		if f.Type != schemas.TypeFile {
			continue
		}
		files++
		size += f.Size
		if _, err := os.Lstat(filepath.Join(c.To, filepath.FromSlash(f.Path))); err == nil && c.Create {
			return schemas.OpErrorf(schemas.Conflict, "to", "%s is there already", filepath.Join(c.To, filepath.FromSlash(f.Path)))
		}
	}
	if err := os.MkdirAll(c.To, 0o755); err != nil { //nolint:gosec // as mkdir does
		return schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	root, err := os.OpenRoot(c.To)
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	defer root.Close() //nolint:errcheck // it is only a handle
	d := treeDown{cl: cl, w: w, from: from, root: root, progress: newProgress(t, files, size)}
	n, left, err := d.all(ctx, list)
	if err != nil {
		return err
	}
	return copied(t, n, left)
}

// downloadFile downloads a file. An existing one is replaced only when all of it has arrived.
func (c *filesCopyCommand) downloadFile(ctx context.Context, cl *client.Client, w schemas.WorkspaceID, from, to string) (err error) {
	if _, err := os.Lstat(to); err == nil && c.Create {
		return schemas.OpErrorf(schemas.Conflict, "to", "%s is there already", to)
	}
	_, err = saveFile(to, func(out io.Writer) (string, error) {
		_, err := cl.Files(w).Download(ctx, from, out)
		return to, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// saveFile has fetch write to a temporary file beside to, and then renames that to the name that fetch returns. On an error the temporary
// file is removed.
func saveFile(to string, fetch func(io.Writer) (name string, err error)) (name string, err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // as mkdir does
		return "", schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if name, err = fetch(f); err != nil {
		_ = f.Close()
		return "", err
	}
	if err = f.Chmod(0o644); err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return "", schemas.Wrap(schemas.Invalid, "to", err.Error(), err)
	}
	return name, nil
}

// fileArg names one file of a workspace.
type fileArg struct {
	gatewayTarget

	File string `arg:"" help:"WORKSPACE:PATH of the file; :PATH is in the workspace \"default\"."`
}

func (a *fileArg) find(ctx context.Context, t terminal) (*client.Client, schemas.WorkspaceID, string, error) {
	cl, err := a.dial(ctx, t)
	if err != nil {
		return nil, "", "", err
	}
	w, p, err := remoteAt(ctx, cl, "file", a.File)
	if err == nil && p == "" {
		err = schemas.Invalidf("file", "%q names no file of the workspace", schemas.Quotable(a.File))
	}
	return cl, w, p, err
}

type filesCatCommand struct{ fileArg }

// Run prints a file.
func (c *filesCatCommand) Run(ctx context.Context, t terminal) error {
	cl, w, p, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	_, err = cl.Files(w).Download(ctx, p, t.out)
	return err
}

type filesRemoveCommand struct {
	fileArg

	Recursive bool `short:"r" use:"" help:"Also a folder that is not empty, with all that is in it."`
}

// Run removes a file or a folder.
func (c *filesRemoveCommand) Run(ctx context.Context, t terminal) error {
	cl, w, p, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	return cl.Files(w).Remove(ctx, p, c.Recursive)
}

type filesMoveCommand struct {
	fileArg

	To    string `arg:"" help:"The new path in the same workspace."`
	Force bool   `use:"" help:"Replace a file of that name."`
}

// Run moves a file or a folder.
func (c *filesMoveCommand) Run(ctx context.Context, t terminal) error {
	cl, w, p, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	to := c.To
	if f, ok := parseRemote(to); ok {
		if mine, _ := parseRemote(c.File); mine.workspace != f.workspace {
			return schemas.Invalidf("to", "is in another workspace: copy it there, with cp to this host and from it")
		}
		to = f.path
	}
	_, err = cl.Files(w).Move(ctx, p, to, c.Force)
	return err
}

type filesMkdirCommand struct{ fileArg }

// Run creates a folder.
func (c *filesMkdirCommand) Run(ctx context.Context, t terminal) error {
	cl, w, p, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	_, err = cl.Files(w).MakeFolder(ctx, p)
	return err
}
