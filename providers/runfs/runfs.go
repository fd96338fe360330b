// Package runfs reaches the files of a workspace by runs: each method of its [FS] is one run of a POSIX shell script in a sandbox that
// has the workspace mounted. It needs the programs that the file tools need there, GNU's or busybox's.
//
// Names and content go in as data, on standard input; the answer carries a mark that the run alone was given, is bounded, and is read
// strictly. What commands exchange in the workspace during a run can lead that run to whatever else its sandbox has, which belongs to
// the same account alone.
//
// Nothing is kept between two runs, neither a sandbox nor a process in it: what a worker that dies leaves is a run that ends at its time. Each
// piece of an upload is written at its place, so a run that outlives its worker writes what another writes too. What would take a run for
// each entry has a way of its own: a walk and the removal of a tree are one run.
package runfs

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // for the script
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

//go:embed files.sh
var script string

const (
	// MaxOutput is the most bytes of standard output that a run is asked for, enough for a piece of a file.
	MaxOutput = 768 << 10
	// head is what of them is beside content.
	head = 4 << 10
	// opened is how much of a file comes with its description when it is opened.
	opened = 64 << 10
	// mostListed bounds the descriptions of one listing, as the run makes them.
	mostListed = 8 << 20
	// mostEntries bounds the entries of a listing, which take more memory than their descriptions.
	mostEntries = 2 * schemas.MaxFilesListed
)

// Run carries a command out in a sandbox with the workspace mounted, whose root is the working directory. The command has a script, its
// standard input and an OutputLimit.
type Run func(context.Context, providers.Command) (providers.Result, error)

// FS is the files of one workspace. It implements [workspacefs.FS], [workspacefs.Marker], [workspacefs.TreeWalker],
// [workspacefs.TreesWalker], [workspacefs.TreeRemover] and [workspacefs.Summer].
//
// A change also returns the new state of its file. If the next call is a Stat of that file, it is answered from that.
type FS struct {
	run      Run
	output   int
	readOnly bool

	mu    sync.Mutex
	known map[string]outcome
}

// outcome is the state of a name as a run has found it.
type outcome struct {
	info info
	err  error
}

var (
	_ workspacefs.FS          = (*FS)(nil)
	_ workspacefs.Marker      = (*FS)(nil)
	_ workspacefs.TreeWalker  = (*FS)(nil)
	_ workspacefs.TreesWalker = (*FS)(nil)
	_ workspacefs.Summer      = (*FS)(nil)
	_ workspacefs.TreeRemover = (*FS)(nil)
)

// Options are the settings of [New].
type Options struct {
	Run      Run
	ReadOnly bool
	// Output is how many bytes of standard output a run keeps. 0: MaxOutput.
	Output int
}

// New returns the files of a workspace, which are accessed by runs.
func New(o Options) *FS {
	if o.Output <= 0 || o.Output > MaxOutput {
		o.Output = MaxOutput
	}
	return &FS{run: o.Run, output: o.Output, readOnly: o.ReadOnly, known: map[string]outcome{}}
}

// piece returns how many bytes of a file fit into one answer: 57 bytes become a line of 76 in base64.
func (f *FS) piece() int { return (f.output - head) / 77 * 57 }

// begin checks a name, and that the context has not ended.
func (f *FS) begin(ctx context.Context, name string, changes bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	name, err := workspacefs.Clean(name)
	if err == nil && changes && f.readOnly {
		err = workspacefs.ErrReadOnly
	}
	return name, err
}

// notRoot returns an error for the root.
func notRoot(name string) error {
	if name == "." {
		return fmt.Errorf("%w: the root itself", workspacefs.ErrBadName)
	}
	return nil
}

// ask runs the script for one question. Parameters are lines, of which the first are the operation and the path.
func (f *FS) ask(ctx context.Context, op, name string, content []byte, output int, more ...string) (reply, error) {
	mark := rand.Text()
	var in bytes.Buffer
	in.Grow(len(content) + len(name) + 200)
	for _, line := range append([]string{mark, op, name}, more...) {
		in.WriteString(line)
		in.WriteByte('\n')
	}
	in.Write(content)
	res, err := f.run(ctx, providers.Command{Script: script, Stdin: in.Bytes(), OutputLimit: output})
	if err != nil {
		if ctx.Err() != nil && schemas.CodeOf(err) != schemas.Interrupted {
			return reply{}, context.Cause(ctx)
		}
		if schemas.CodeOf(err) == schemas.Interrupted { // the same question may be asked again
			err = schemas.Wrap(schemas.Unavailable, "files", "the sandbox that reaches the files has ended: try again", err)
		}
		return reply{}, err
	}
	r, err := parse(mark, res.Stdout)
	if err != nil {
		return reply{}, unreadable(res, err)
	}
	if r.word != "ok" {
		return reply{}, refusal(r.word, res)
	}
	return r, nil
}

// unreadable returns the error for a run whose answer is incomplete.
func unreadable(r providers.Result, err error) error {
	const field = "files"
	switch {
	case r.TimedOut:
		return schemas.Wrap(schemas.Timeout, field, "the run that reaches the files did not end in time", err)
	case r.OOMKilled:
		return schemas.Wrap(schemas.Exhausted, field, "the run that reaches the files ran out of memory", err)
	case r.ExitCode == 127: // of shells: a program is missing
		return schemas.Wrap(schemas.Unsupported, field, "the sandbox lacks a program that files need: "+excerpt(r.Stderr), err)
	case errors.Is(err, errGarbled):
		return schemas.Wrap(schemas.Internal, field, "the answer of the run that reaches the files is not understood", err)
	}
	return schemas.Wrap(schemas.Unavailable, field,
		fmt.Sprintf("the run that reaches the files gave no answer (exit code %d): %s", r.ExitCode, excerpt(r.Stderr)), err)
}

// excerpt returns the end of a program's output.
func excerpt(b []byte) string {
	const most = 300
	return strings.ToValidUTF8(strings.TrimSpace(string(b[max(0, len(b)-most):])), "?")
}

// code returns the error code of an outcome; false if it has none.
func code(word string) (workspacefs.Code, bool) {
	switch c := workspacefs.Code(word); c {
	case workspacefs.ErrNotFound, workspacefs.ErrExists, workspacefs.ErrDenied, workspacefs.ErrEscape, workspacefs.ErrLoop,
		workspacefs.ErrBadName, workspacefs.ErrTooLong, workspacefs.ErrIsDirectory, workspacefs.ErrNotDirectory, workspacefs.ErrNotEmpty,
		workspacefs.ErrNotRegular, workspacefs.ErrHardLink, workspacefs.ErrReadOnly, workspacefs.ErrChanged, workspacefs.ErrNoSpace:
		return c, true
	default:
		return "", false
	}
}

// refusal returns the error for an outcome.
func refusal(word string, r providers.Result) error {
	if c, ok := code(word); ok {
		return c
	}
	if word == "incomplete" {
		return schemas.OpErrorf(schemas.Unavailable, "files", "the content did not arrive whole in the sandbox: try again")
	}
	return fmt.Errorf("files by a run: %s: %s", word, excerpt(r.Stderr))
}

// note caches the state of a name after a change, and drops all other cached states.
func (f *FS) note(name string, r reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.known)
	if name != "" && len(r.found) == 1 {
		f.known[name] = r.found[0]
	}
}

// recall returns and drops the cached state of a name.
func (f *FS) recall(name string) (outcome, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.known[name]
	delete(f.known, name)
	return o, ok
}

// change runs a change. At is the name that it changes.
func (f *FS) change(ctx context.Context, at, op, name string, content []byte, more ...string) (reply, error) {
	f.note("", reply{})
	r, err := f.ask(ctx, op, name, content, head, more...)
	if err == nil {
		f.note(at, r)
	}
	return r, err
}

// Stat implements [workspacefs.FS].
func (f *FS) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	name, err := f.begin(ctx, name, false)
	if err != nil {
		return nil, err
	}
	o, known := f.recall(name)
	if !known {
		r, err := f.stats(ctx, name)
		if err != nil {
			return nil, err
		}
		o = r[0]
	}
	if o.err != nil {
		return nil, o.err
	}
	return o.info.named(name), nil
}

func (f *FS) stats(ctx context.Context, names ...string) ([]outcome, error) {
	r, err := f.ask(ctx, "stats", names[0], []byte(strings.Join(names[1:], "\n")+"\n"), head, fmt.Sprint(len(names)))
	if err == nil && len(r.found) != len(names) {
		err = unreadable(providers.Result{}, errGarbled)
	}
	return r.found, err
}

// Prefetch reads the state of several names in one run. The next Stat of each name is answered from that, unless something is changed
// before. Names that cannot be read now are read by those calls.
func (f *FS) Prefetch(ctx context.Context, names ...string) {
	f.note("", reply{})
	found, err := f.stats(ctx, names...)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, name := range names {
		f.known[name] = found[i]
	}
}

// ReadPiece reads a piece of a regular file and the file's state in one run. The piece may be shorter than requested, and is empty only at
// the end. Codes: as Open.
func (f *FS) ReadPiece(ctx context.Context, name string, offset int64, length int) (fs.FileInfo, []byte, error) {
	name, err := f.begin(ctx, name, false)
	if err != nil {
		return nil, nil, err
	}
	return f.read(ctx, name, offset, length, nil)
}

func (f *FS) read(ctx context.Context, name string, offset int64, length int, was fs.FileInfo) (fs.FileInfo, []byte, error) {
	length = min(length, f.piece())
	if offset < 0 || length < 0 {
		return nil, nil, fmt.Errorf("read at %d: %w", offset, fs.ErrInvalid)
	}
	r, err := f.ask(ctx, "read", name, nil, f.output, fmt.Sprint(offset, " ", length), identity(was))
	if err != nil {
		return nil, nil, err
	}
	if len(r.found) != 1 || r.found[0].err != nil || len(r.content) != int(min(int64(length), max(0, r.found[0].info.Size()-offset))) {
		return nil, nil, unreadable(providers.Result{}, errGarbled)
	}
	return r.found[0].info.named(name), r.content, nil
}

// Open implements [workspacefs.FS]. If the file is replaced, reads fail with [workspacefs.ErrChanged].
func (f *FS) Open(ctx context.Context, name string) (workspacefs.File, error) {
	name, err := f.begin(ctx, name, false)
	if err != nil {
		return nil, err
	}
	info, first, err := f.read(ctx, name, 0, opened, nil)
	if err != nil {
		return nil, err
	}
	return &file{ctx: ctx, fs: f, name: name, info: info, have: first}, nil
}

// Write implements [workspacefs.FS].
func (f *FS) Write(ctx context.Context, name string, content []byte, mode workspacefs.Mode, was fs.FileInfo) error {
	name, err := f.begin(ctx, name, true)
	if err != nil {
		return err
	}
	if name == "." {
		return workspacefs.ErrIsDirectory
	}
	how := map[workspacefs.Mode]string{workspacefs.Replace: "replace", workspacefs.InPlace: "inplace", workspacefs.Create: "create",
		workspacefs.Append: "append"}[mode]
	_, err = f.change(ctx, name, "write", name, content, fmt.Sprint(how, " ", len(content)), identity(was))
	return err
}

// identity returns the state with which the script compares a file; "-" for any.
func identity(was fs.FileInfo) string {
	if was == nil {
		return "-"
	}
	inode := "-"
	if i, ok := was.Sys().(workspacefs.Info); ok && i.Inode != 0 {
		inode = fmt.Sprint(i.Inode)
	}
	return fmt.Sprintf("%s %d %d %09d", inode, was.Size(), was.ModTime().Unix(), was.ModTime().Nanosecond())
}

// MkdirAll implements [workspacefs.FS].
func (f *FS) MkdirAll(ctx context.Context, name string) error {
	name, err := f.begin(ctx, name, true)
	if err != nil {
		return err
	}
	if o, known := f.recall(name); known && o.err == nil && o.info.IsDir() {
		return nil
	}
	_, err = f.change(ctx, name, "mkdir", name, nil)
	return err
}

// Rename implements [workspacefs.FS].
func (f *FS) Rename(ctx context.Context, from, to string) error {
	from, err := f.begin(ctx, from, true)
	if err != nil {
		return err
	}
	if to, err = f.begin(ctx, to, true); err != nil {
		return err
	}
	if err := errors.Join(notRoot(from), notRoot(to)); err != nil {
		return err
	}
	r, err := f.change(ctx, "", "rename", from, nil, to)
	if err == nil && len(r.found) == 1 && r.found[0].info.Mode()&fs.ModeSymlink == 0 { // Stat describes what a link leads to
		f.note(to, r)
	}
	return err
}

// Remove implements [workspacefs.FS].
func (f *FS) Remove(ctx context.Context, name string) error {
	name, err := f.begin(ctx, name, true)
	if err == nil {
		err = notRoot(name)
	}
	if err == nil {
		_, err = f.change(ctx, "", "remove", name, nil)
	}
	return err
}

// RemoveTree implements [workspacefs.TreeRemover]. If the run's time does not suffice, the next call removes the rest.
func (f *FS) RemoveTree(ctx context.Context, name string, _ workspacefs.Bounds) (more bool, err error) {
	name, err = f.begin(ctx, name, true)
	if err == nil {
		err = notRoot(name)
	}
	if err != nil {
		return false, err
	}
	r, err := f.change(ctx, "", "rmtree", name, nil)
	if schemas.CodeOf(err) == schemas.Timeout && ctx.Err() == nil {
		return true, nil
	}
	return r.more, err
}

// Mark implements [workspacefs.Marker]. In a sandbox whose touch does not support fractions of a second it sets no times.
func (f *FS) Mark(ctx context.Context, name string, executable *bool, modified time.Time) error {
	name, err := f.begin(ctx, name, true)
	if err != nil {
		return err
	}
	may, at := "-", "-"
	if executable != nil {
		may = map[bool]string{true: "1", false: "0"}[*executable]
	}
	if !modified.IsZero() {
		at = fmt.Sprintf("%d.%09d", modified.Unix(), modified.Nanosecond())
	}
	_, err = f.change(ctx, name, "mark", name, nil, may+" "+at)
	return err
}

// ReadDir implements [workspacefs.FS]. After the entries of one answer, at most mostEntries, it returns [workspacefs.ErrTooMany].
func (f *FS) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) error {
	return f.list(ctx, "list", name, follow, mostListed, func(_ string, e workspacefs.Entry) error { return each(e) })
}

// WalkTree implements [workspacefs.TreeWalker].
func (f *FS) WalkTree(ctx context.Context, name string, b workspacefs.Bounds, visit workspacefs.Visit) error {
	var skipped string // its contents are left out
	left := b.Entries
	return f.list(ctx, "walk", name, true, min(mostListed, b.Bytes+b.Entries*perEntry), func(p string, e workspacefs.Entry) error {
		if skipped != "" && strings.HasPrefix(p, skipped) {
			return nil
		}
		if left--; left < 0 {
			return fmt.Errorf("%w below %s", workspacefs.ErrTooMany, name)
		}
		err := visit(p, e)
		if e.Type.IsDir() && errors.Is(err, fs.SkipDir) {
			skipped = p + "/"
			return nil
		}
		return err
	})
}

// perEntry is what the description of an entry takes beside its name, and more.
const perEntry = 160

// WalkTrees implements [workspacefs.TreesWalker].
func (f *FS) WalkTrees(ctx context.Context, trees []workspacefs.Tree, b workspacefs.Bounds,
	visit func(tree int, path string, e workspacefs.Entry) error) (whole []bool, err error) {
	if len(trees) == 0 {
		return nil, nil
	}
	var of strings.Builder
	for _, t := range trees {
		folder, err := f.begin(ctx, t.Folder, false)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&of, "%d %d\n%s\n", max(-1, t.Depth), map[bool]int{true: 1}[t.Hidden], folder)
	}
	r, err := f.ask(ctx, "trees", ".", []byte(of.String()), f.output,
		fmt.Sprint(len(trees), " ", min(mostListed, b.Bytes+b.Entries*perEntry), " ", f.packed()))
	if err != nil {
		return nil, err
	}
	begins := func(n int) string { return fmt.Sprintf("\n//@%d\n", n) } // no path has two slashes in a row
	_, rest, _ := strings.Cut(string(r.content), begins(0))
	whole = make([]bool, len(trees))
	for n := range trees {
		var body string
		if body, rest, _ = strings.Cut(rest, begins(n+1)); len(body) < len("//") {
			continue // the answer was cut off before it
		}
		list, all, err := entries([]byte(body))
		if err != nil {
			return nil, unreadable(providers.Result{}, err)
		}
		if len(list) > b.Entries {
			list, all = list[:b.Entries], false
		}
		whole[n] = all
		for _, e := range list {
			if err := visit(n, e.path, e.entry()); err != nil {
				return nil, err
			}
		}
	}
	return whole, nil
}

// Sums implements [workspacefs.Summer].
func (f *FS) Sums(ctx context.Context, names []string) ([]workspacefs.Sum, error) {
	if len(names) == 0 {
		return nil, nil
	}
	clean := make([]string, len(names))
	for n, name := range names {
		var err error
		if clean[n], err = f.begin(ctx, name, false); err != nil {
			return nil, err
		}
	}
	r, err := f.ask(ctx, "sums", clean[0], []byte(strings.Join(clean[1:], "\n")+"\n"), f.output, fmt.Sprint(len(clean)))
	if err != nil {
		return nil, err
	}
	if len(r.sums) != len(clean) || len(r.found) != 2*len(clean) {
		return nil, workspacefs.ErrChanged // one has just gone
	}
	sums := make([]workspacefs.Sum, len(names))
	for n := range sums {
		before, after := r.found[n], r.found[len(clean)+n]
		if before.err == nil && after.err == nil && before.info.Same(after.info.Info) {
			sums[n] = workspacefs.Sum{Info: before.info.Info, SHA256: r.sums[n]}
		}
	}
	return sums, nil
}

// packed returns how many packed bytes of a listing fit into one answer.
func (f *FS) packed() int { return (f.output - head) / 77 * 76 / 4 * 3 }

func (f *FS) list(ctx context.Context, op, name string, follow bool, most int, visit workspacefs.Visit) error {
	name, err := f.begin(ctx, name, false)
	if err != nil {
		return err
	}
	r, err := f.ask(ctx, op, name, nil, f.output, fmt.Sprint(map[bool]int{true: 1}[follow], " ", most, " ", f.packed()))
	if err != nil {
		return err
	}
	list, whole, err := entries(r.content)
	if err != nil {
		return unreadable(providers.Result{}, err)
	}
	for _, e := range list {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := visit(e.path, e.entry()); err != nil {
			return err
		}
	}
	if !whole {
		return fmt.Errorf("%w below %s", workspacefs.ErrTooMany, name)
	}
	return nil
}

// Close implements [workspacefs.FS]. There is nothing to close.
func (f *FS) Close() error { return nil }

// file is an open file.
type file struct {
	ctx  context.Context //nolint:containedctx // Open's bounds the reads
	fs   *FS
	name string
	info fs.FileInfo

	mu   sync.Mutex
	at   int64  // where the next Read is
	from int64  // where have begins
	have []byte // a piece
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

// Read reads the next bytes.
func (f *file) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.once(p, f.at)
	f.at += int64(n)
	return n, err
}

// ReadAt reads a range.
func (f *file) ReadAt(p []byte, at int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at < 0 || at > math.MaxInt64-int64(len(p)) {
		return 0, fmt.Errorf("read %s at %d: %w", f.name, at, fs.ErrInvalid)
	}
	for n < len(p) && err == nil {
		var m int
		m, err = f.once(p[n:], at+int64(n))
		n += m
	}
	return n, err
}

// once reads as much as one run returns, io.EOF at the end.
func (f *file) once(p []byte, at int64) (int, error) {
	if at >= f.info.Size() {
		return 0, io.EOF
	}
	if at < f.from || at >= f.from+int64(len(f.have)) {
		_, piece, err := f.fs.read(f.ctx, f.name, at, f.fs.piece(), f.info)
		if err != nil {
			return 0, err
		}
		f.from, f.have = at, piece
	}
	return copy(p, f.have[at-f.from:]), nil
}
