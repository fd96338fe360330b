package safefs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

const (
	fileMode = 0o644
	dirMode  = 0o755
	maxLinks = 40 // links followed for one name, as many as the kernel follows
)

// Write writes content to a regular file. It creates the file and its parents (0644 and 0755) if they are missing; an existing file keeps
// its mode and owner. A symbolic link in the last position is followed and stays. It returns when the content is on the disk.
//
// If was is not nil, the file must still be that one: if its inode, size or time differ, the error is [workspacefs.ErrChanged]. A file
// with several hard links is refused, because another name may be outside of the root.
func (r *Root) Write(ctx context.Context, name string, content []byte, mode workspacefs.Mode, was fs.FileInfo) error {
	name, err := r.change(ctx, name)
	if err != nil {
		return err
	}
	if name == "." {
		return workspacefs.ErrIsDirectory
	}
	if err := r.admit(ctx, name, int64(len(content)), mode); err != nil {
		return err
	}
	if err := r.MkdirAll(ctx, path.Dir(name)); err != nil {
		return err
	}
	d, base, err := r.place(name)
	if err != nil {
		return refusal(err)
	}
	defer func() { _ = d.close() }() // entries are synced where needed
	return refusal(r.write(d, base, content, mode, was))
}

// change is begin of methods that change something: it refuses them on a read-only root.
func (r *Root) change(ctx context.Context, name string) (string, error) {
	if r.opt.ReadOnly {
		return "", workspacefs.ErrReadOnly
	}
	return begin(ctx, name)
}

// admit calls Options.Admit with the growth of a write.
func (r *Root) admit(ctx context.Context, name string, size int64, mode workspacefs.Mode) error {
	if r.opt.Admit == nil {
		return nil
	}
	info, err := r.Stat(ctx, name)
	if err != nil {
		return r.opt.Admit(size, 1)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (mode == workspacefs.Replace || mode == workspacefs.InPlace) && stat.Nlink == 1 {
		size -= min(info.Size(), stat.Blocks*512) // its previous size, without holes
	}
	return r.opt.Admit(size, 0)
}

// place follows the links of name and opens the directory of its target, which need not exist. It returns the directory and the target's
// name in it.
func (r *Root) place(name string) (directory, string, error) {
	for range maxLinks {
		// The target of a link may contain "..", which the kernel resolves relative to the real directory.
		dir, base := "", name
		if i := strings.LastIndexByte(strings.TrimRight(name, "/"), '/'); i >= 0 {
			dir, base = name[:i], strings.TrimRight(name[i+1:], "/")
		}
		if base == ".." || base == "." {
			return nil, "", workspacefs.ErrIsDirectory
		}
		if dir == "" {
			dir = "."
		}
		d, err := r.at.dir(dir)
		if err != nil {
			return nil, "", err
		}
		info, err := d.lstat(base)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return d, base, nil //nolint:nilerr // absent: the caller makes it
		}
		target, err := d.readlink(base)
		err = errors.Join(err, d.close())
		switch {
		case err != nil:
			return nil, "", err
		case strings.HasPrefix(target, "/"):
			return nil, "", fmt.Errorf("%w: an absolute link", workspacefs.ErrEscape)
		}
		name = dir + "/" + target
	}
	return nil, "", syscall.ELOOP
}

func (r *Root) write(d directory, base string, content []byte, mode workspacefs.Mode, was fs.FileInfo) error {
	old, err := d.open(base, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if was != nil {
			return workspacefs.ErrChanged
		}
		return r.create(d, base, content, mode)
	case err != nil:
		return err
	}
	defer func() { _ = old.Close() }() // synced below
	info, err := writable(old, mode, was)
	if err != nil {
		return err
	}
	switch mode {
	case workspacefs.Append:
		if _, err := old.Seek(0, 2); err != nil {
			return fmt.Errorf("seek: %w", err)
		}
		return fill(old, content)
	case workspacefs.InPlace:
		if err := old.Truncate(0); err != nil {
			return fmt.Errorf("truncate: %w", err)
		}
		return fill(old, content)
	case workspacefs.Create, workspacefs.Replace:
	}
	return r.replace(d, base, content, info)
}

// writable returns the description of the open file, or why it must not be written.
func writable(f *os.File, mode workspacefs.Mode, was fs.FileInfo) (fs.FileInfo, error) {
	info, err := regular(f)
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case mode == workspacefs.Create:
		return nil, fs.ErrExist
	case ok && stat.Nlink > 1:
		return nil, workspacefs.ErrHardLink
	case was != nil && !unchanged(was, info):
		return nil, workspacefs.ErrChanged
	}
	return info, nil
}

func unchanged(was, is fs.FileInfo) bool {
	return os.SameFile(was, is) && was.Size() == is.Size() && was.ModTime().Equal(is.ModTime())
}

// create creates the file. With O_EXCL it never overwrites one that appears meanwhile.
func (r *Root) create(d directory, base string, content []byte, mode workspacefs.Mode) error {
	if mode == workspacefs.InPlace || mode == workspacefs.Append {
		f, err := d.open(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, fileMode)
		if err != nil {
			return err
		}
		return errors.Join(r.own(f), fill(f, content), f.Close(), d.sync())
	}
	publish := d.rename
	if mode == workspacefs.Create { // unlike rename, link never replaces a file
		publish = d.link
	}
	err := beside(d, base, publish, func(f *os.File) error {
		return errors.Join(r.own(f), f.Chmod(fileMode), fill(f, content))
	})
	return errors.Join(err, d.sync())
}

// replace writes a temporary file and renames it over the old one.
func (r *Root) replace(d directory, base string, content []byte, old fs.FileInfo) error {
	rename := func(temp, base string) error {
		if now, err := d.lstat(base); err != nil || !unchanged(old, now) {
			return workspacefs.ErrChanged
		}
		return d.rename(temp, base)
	}
	err := beside(d, base, rename, func(f *os.File) error {
		return errors.Join(keepOwner(f, old), f.Chmod(old.Mode().Perm()), fill(f, content))
	})
	return errors.Join(err, d.sync())
}

// beside creates a temporary file in the directory, and publishes it under the name base when complete has succeeded.
func beside(d directory, base string, publish func(temp, base string) error, complete func(*os.File) error) error {
	temp := ".sandjet-" + rand.Text() + ".tmp"
	f, err := d.open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(complete(f), f.Close()); err == nil {
		err = publish(temp, base)
	}
	if e := d.remove(temp); e != nil && !errors.Is(e, fs.ErrNotExist) { // it is missing after a rename
		err = errors.Join(err, e)
	}
	return err
}

func fill(f *os.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// own changes the owner of a new file to the root's.
func (r *Root) own(f *os.File) error {
	if !r.owned() {
		return nil
	}
	return f.Chown(r.opt.UID, r.opt.GID)
}

func (r *Root) owned() bool { return os.Geteuid() == 0 && (r.opt.UID > 0 || r.opt.GID > 0) }

// SetMode sets the permissions of a regular file. A final link is not followed.
func (r *Root) SetMode(ctx context.Context, name string, mode fs.FileMode) error {
	name, err := r.change(ctx, name)
	if err != nil {
		return err
	}
	d, err := r.at.dir(path.Dir(name))
	if err != nil {
		return refusal(err)
	}
	defer func() { _ = d.close() }() // it was only opened
	f, err := d.open(path.Base(name), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return refusal(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return refusal(err)
	case !info.Mode().IsRegular():
		return workspacefs.ErrNotRegular
	}
	return refusal(f.Chmod(mode.Perm()))
}

func keepOwner(f *os.File, old fs.FileInfo) error {
	stat, ok := old.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return f.Chown(int(stat.Uid), int(stat.Gid))
}

// MkdirAll creates a directory and its parents, with mode 0755 and the root's owner. Existing ones stay as they are; links to directories
// below the root are followed.
func (r *Root) MkdirAll(ctx context.Context, name string) error {
	name, err := r.change(ctx, name)
	if err != nil {
		return err
	}
	return refusal(r.mkdirAll(name))
}

func (r *Root) mkdirAll(name string) error {
	d, err := r.at.dir(name)
	if err == nil {
		return d.close()
	}
	if !errors.Is(err, fs.ErrNotExist) || name == "." {
		return err
	}
	parent := path.Dir(name)
	if err := r.mkdirAll(parent); err != nil {
		return err
	}
	d, err = r.at.dir(parent)
	if err != nil {
		return err
	}
	base := path.Base(name)
	err = d.mkdir(base, dirMode)
	switch {
	case errors.Is(err, fs.ErrExist): // another process has created it, or it is a dangling link
		err = nil
		if info, e := d.lstat(base); e == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
	case err == nil && r.owned():
		err = d.chown(base, r.opt.UID, r.opt.GID)
	}
	return errors.Join(err, d.sync(), d.close())
}

// Remove removes a file, an empty directory or a link (not its target).
func (r *Root) Remove(ctx context.Context, name string) error {
	name, err := r.change(ctx, name)
	if err != nil {
		return err
	}
	if name == "." {
		return fmt.Errorf("%w: the root itself", workspacefs.ErrBadName)
	}
	d, err := r.at.dir(path.Dir(name))
	if err != nil {
		return refusal(err)
	}
	return refusal(errors.Join(d.remove(path.Base(name)), d.sync(), d.close()))
}

// Rename renames a file, a link or a directory. The directory of the new name must exist.
func (r *Root) Rename(ctx context.Context, from, to string) error {
	from, err := r.change(ctx, from)
	if err != nil {
		return err
	}
	to, err = r.change(ctx, to)
	if err != nil {
		return err
	}
	if from == "." || to == "." {
		return fmt.Errorf("%w: the root itself", workspacefs.ErrBadName)
	}
	return refusal(r.rename(from, to))
}

func (r *Root) rename(from, to string) error {
	moved, err := r.at.lstat(from)
	if err != nil {
		return err
	}
	// The entry may be replaced between this check and the rename. At worst an empty directory is then replaced by another: in all other
	// cases the kernel only replaces an entry by one of the same type.
	if there, err := r.at.lstat(to); err == nil && !os.SameFile(there, moved) {
		switch {
		case there.IsDir():
			return workspacefs.ErrIsDirectory
		case moved.IsDir():
			return workspacefs.ErrExists
		}
	}
	if err := r.at.rename(from, to); err != nil {
		return err
	}
	return errors.Join(r.syncDir(path.Dir(to)), r.syncDir(path.Dir(from)))
}

// Place implements [workspacefs.Placer]. The file that is replaced is compared right before the rename: a change between these two system
// calls goes unnoticed.
func (r *Root) Place(ctx context.Context, from, to string, was fs.FileInfo) error {
	from, err := r.change(ctx, from)
	if err != nil {
		return err
	}
	to, err = r.change(ctx, to)
	if err != nil {
		return err
	}
	if from == "." || to == "." {
		return fmt.Errorf("%w: the root itself", workspacefs.ErrBadName)
	}
	return refusal(r.put(from, to, was))
}

func (r *Root) put(from, to string, was fs.FileInfo) error {
	moved, err := r.at.lstat(from)
	switch {
	case err != nil:
		return err
	case !moved.Mode().IsRegular():
		return workspacefs.ErrNotRegular
	}
	rename := r.at.renameNew
	if was != nil {
		now, err := r.at.lstat(to)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !unchanged(was, now) {
			return workspacefs.ErrChanged
		}
		if err != nil {
			return err
		}
		rename = r.at.rename
	}
	if err := rename(from, to); err != nil {
		return err
	}
	return errors.Join(r.syncDir(path.Dir(to)), r.syncDir(path.Dir(from)))
}

func (r *Root) syncDir(name string) error {
	d, err := r.at.dir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.sync(), d.close())
}
