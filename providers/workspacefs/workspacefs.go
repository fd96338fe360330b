// Package workspacefs is what the file tools need of a workspace's files, as an interface: [FS]. A folder of the
// worker's host implements it, and so may an object store, a remote file system or a helper inside a sandbox.
// It imports the standard library alone, so that any module can.
//
// An implementation says what went wrong by a [Code]; [Walk] and [ReadFile] are made of its methods. The suite
// of package providertest (RunFS) shows whether an implementation keeps what is written here.
package workspacefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

// FS is the files of one workspace. Its methods may be called from many goroutines at a time, until Close;
// they block until they are done, or until their context ends, whose error they return then.
//
// # Names
//
// A name is a path below the root with "/" between components. [Clean] says which names there are, and in what
// form a method resolves them: absolute ones are relative to the root, "" and "." are the root, and a name with
// "..", NUL or a line break is refused ([ErrBadName]). Otherwise a component is any sequence of bytes, UTF-8 or not,
// and is never altered: an implementation that cannot store one refuses it ([ErrBadName], or [ErrTooLong]).
//
// # What lies outside
//
// Users of the workspace may change it at any time, also in the middle of a call. No method may read, write or describe what lies outside
// of the root, whatever is exchanged for what meanwhile: a check that is followed by a use is not enough.
//
// A symbolic link is followed where it is not the last component, and by Open, Stat and Write there too, while it
// leads to something below the root. One that is absolute or leads out is [ErrEscape]; too many are [ErrLoop].
// Rename and Remove act on a link itself. A file system without links has none of this to do.
//
// Only regular files are opened or written. A FIFO, a socket or a device is [ErrNotRegular], at once: opening it
// neither blocks nor has an effect. Other file systems that are mounted below the root are not entered.
//
// # Errors
//
// Errors are found with [CodeOf], which also knows those of package io/fs and of the system. An error without a
// code is a failure of the file system itself, such as a store that cannot be reached; a *schemas.Error is shown to
// the caller as it is, such as a quota that says what to delete.
type FS interface {
	// Open opens a regular file for reading. Its reads are bounded by ctx too. The caller closes it.
	// Codes: ErrNotFound, ErrIsDirectory, ErrNotDirectory, ErrNotRegular, ErrEscape, ErrLoop, ErrDenied, ErrBadName.
	Open(ctx context.Context, name string) (File, error)
	// Stat describes what name leads to: of a file, Size, ModTime and Mode, whose type bits and permissions are
	// used. It opens nothing, so that it also describes what Open refuses. Codes: as Open.
	Stat(ctx context.Context, name string) (fs.FileInfo, error)
	// ReadDir calls each for every entry of a directory, in any order and one at a time, and stops with the first
	// error of each, which it returns as it is. Follow says whether name may be a link to a directory; without it, a
	// link is ErrNotDirectory or ErrLoop. It holds no more of a directory than a page of it. Codes: as Open.
	ReadDir(ctx context.Context, name string, follow bool, each func(Entry) error) error
	// Write writes content to a regular file, making it and its directories (0644 and 0755) when absent; an existing
	// file keeps its mode and owner. It returns when the content would survive a crash of the host.
	//
	// Was, when not nil, is what Stat or a File of this FS said of the file before: if it is another file now, or has been changed or removed,
	// that is ErrChanged, as far as the implementation can detect it; nothing is written then. A file with several hard links is ErrHardLink:
	// one of them may be outside of the root. Without was, of several that write at once one comes last, and the others may find ErrChanged.
	// Codes: as Open, and ErrExists, ErrReadOnly, ErrChanged, ErrHardLink, ErrNoSpace.
	Write(ctx context.Context, name string, content []byte, mode Mode, was fs.FileInfo) error
	// MkdirAll makes a directory (0755) and its parents. Existing ones stay as they are. A directory stays when it
	// becomes empty. Codes: ErrNotDirectory, ErrEscape, ErrLoop, ErrDenied, ErrBadName, ErrReadOnly, ErrNoSpace.
	MkdirAll(ctx context.Context, name string) error
	// Rename gives a file, a link or a directory with all that is in it another name, in a directory that exists. A
	// file or link takes the place of one that has the name already; a directory takes no place (ErrExists), and no
	// place of a directory is taken (ErrIsDirectory). A directory need not be renamed in one step.
	// Codes: as Open, and ErrExists, ErrReadOnly, ErrNoSpace.
	Rename(ctx context.Context, from, to string) error
	// Remove removes a file, a link or an empty directory. Codes: ErrNotFound, ErrNotEmpty, ErrNotDirectory, ErrEscape, ErrLoop, ErrDenied,
	// ErrBadName, ErrReadOnly.
	Remove(ctx context.Context, name string) error
	// Close ends the use of the FS. Files that were opened may be read on.
	Close() error
}

// Marker is an [FS] that also stores modes and times of files.
type Marker interface {
	// Mark makes a regular file executable, or not so; nil leaves that as it is. Modified is when it was changed last, zero: as it is.
	// Codes: as Open of [FS], and ErrReadOnly, ErrHardLink.
	Mark(ctx context.Context, name string, executable *bool, modified time.Time) error
}

// Placer is an [FS] that can rename a file on the condition that the target is unchanged.
type Placer interface {
	// Place renames a regular file. With was nil the new name must be free, and a file that takes it at the last moment is never replaced
	// (ErrExists). Otherwise was is what Stat or a File said of the file that is replaced: if it is another file now, or has been changed or
	// removed, that is ErrChanged, as far as the implementation can detect it; nothing is renamed then. Codes: as Rename of [FS], and
	// ErrChanged.
	Place(ctx context.Context, from, to string, was fs.FileInfo) error
}

// TreeWalker is an [FS] that visits a tree faster than folder by folder. [Walk] uses it.
type TreeWalker interface {
	// WalkTree is [Walk]: its order, links, bounds and errors.
	WalkTree(ctx context.Context, name string, b Bounds, visit Visit) error
}

// Tree is one of the trees that a [TreesWalker] visits.
type Tree struct {
	Folder string
	Depth  int  // how many folders below it are entered; less than 0: any number
	Hidden bool // names with a leading dot are visited too, and what is below them
}

// TreesWalker is an [FS] that visits several trees at less cost than folder by folder.
type TreesWalker interface {
	// WalkTrees visits all but directories in trees, tree by tree. Visit gets the index of the tree, and the path below its folder. No link is
	// followed: neither that of a folder, nor one above it. A tree that is not there has no entries. Whole reports for each tree whether all
	// that is in it was visited: entries and bytes of one tree have bounds, and so have those of all together. Visit's error ends the walk.
	WalkTrees(ctx context.Context, trees []Tree, b Bounds, visit func(tree int, path string, e Entry) error) (whole []bool, err error)
}

// Sum is a file's state and digest, by a [Summer].
type Sum struct {
	Info   Info
	SHA256 string // in hexadecimal digits; empty: not known
}

// Summer is an [FS] that returns digests of files at less cost than reading them. Digests are only as trustworthy as the processes in the
// workspace.
type Summer interface {
	// Sums returns one Sum for each name, of one version of a regular file. A file that is none, or no longer there, may be an error for all.
	Sums(ctx context.Context, names []string) ([]Sum, error)
}

// TreeRemover is an [FS] that removes a tree faster than entry by entry. [RemoveTree] uses it.
type TreeRemover interface {
	// RemoveTree is [RemoveTree] of this package. It may have other bounds.
	RemoveTree(ctx context.Context, name string, b Bounds) (more bool, err error)
}

// File is an open regular file. Read continues at the current position; ReadAt reads a range without changing the position. Both see one
// version of the content if the implementation can guarantee that, else the current content.
type File interface {
	fs.File
	io.ReaderAt
}

// Mode is what a write does with an existing file.
type Mode int

// The modes.
const (
	// Replace puts a new file in the place of the old one: readers see the old content or the new one, whole, and so
	// does a crash.
	Replace Mode = iota
	// InPlace writes into the file that is there, so that those who have it open see it. A crash in between may
	// leave a part of the content. A store whose objects are only ever replaced replaces.
	InPlace
	// Create makes the file and fails with [ErrExists] when there is one: of several that create at once, one succeeds.
	Create
	// Append writes at the end of the file, as InPlace does.
	Append
)

// Entry is one name in a directory.
type Entry struct {
	Name string
	Type fs.FileMode // type bits: directory, link, regular (0), …
	// Source describes the entry while each of ReadDir looks at it. Nil: no description.
	Source Describer
}

// Describer returns the state of an entry of a directory that is being read: of the entry itself, without following a link.
type Describer interface {
	Describe(name string) (Info, error)
}

// Info is the size, times and identity of an entry.
type Info struct {
	Size    int64
	ModTime time.Time
	// Changed is when anything of the entry was changed last, its name and its times included, which no process can set back. Zero where the
	// implementation does not know it.
	Changed time.Time
	// Inode distinguishes a file from another that has taken its name, Links is how many names it has. Zero as Changed.
	Inode, Links uint64
}

// Same reports whether two Infos are of the same unchanged file, as far as both have the data.
func (i Info) Same(o Info) bool {
	return i.Size == o.Size && i.ModTime.Equal(o.ModTime) && i.Changed.Equal(o.Changed) && i.Inode == o.Inode
}

// Info returns the state of the entry. It is valid until the function that was called with the entry returns.
func (e Entry) Info() (Info, error) {
	if e.Source == nil {
		return Info{}, fmt.Errorf("describe %q: %w", e.Name, fs.ErrInvalid)
	}
	return e.Source.Describe(e.Name)
}

// Clean returns name in the form in which it is resolved: relative to the root, without a leading
// slash, "." and "//"; the root itself is ".". It refuses ".." in every place, NUL and line breaks.
func Clean(name string) (string, error) {
	if strings.ContainsAny(name, "\x00\n") {
		return "", fmt.Errorf("%w: NUL and line breaks are not allowed", ErrBadName)
	}
	for seg := range strings.SplitSeq(name, "/") {
		if seg == ".." {
			return "", fmt.Errorf("%w: .. is not allowed", ErrBadName)
		}
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// ReadFile returns the content of a regular file of at most limit bytes, and the file's state when it was read. A larger one is
// [ErrTooLarge]; sparse or endless files cost no more than limit.
func ReadFile(ctx context.Context, fsys FS, name string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := fsys.Open(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return readAll(f, limit)
}

func readAll(f File, limit int64) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("stat: %w", err)
	}
	if info.Size() > limit {
		return nil, info, fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrTooLarge, info.Size(), limit)
	}
	buf := make([]byte, 0, info.Size()+1)
	for {
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit { // it grew while it was read
			return nil, info, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)
		}
		if errors.Is(err, io.EOF) {
			return buf, info, nil
		}
		if err != nil {
			return nil, info, fmt.Errorf("read: %w", err)
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}
