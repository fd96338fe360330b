package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	// attempts limits retries for a path that has ".." in a link. If something was renamed meanwhile, the kernel cannot know whether the
	// path stayed below the root, and returns EAGAIN.
	attempts = 128
)

// openBackend returns a backend that uses openat2 if the kernel has it (5.6) and no filter forbids it, else the fallback.
func openBackend(dir string) (backend, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	b := kernel{os.NewFile(uintptr(fd), dir)}
	probe, err := b.openat2(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		_ = b.close()
		return openFallback(dir)
	}
	return b, unix.Close(probe)
}

// kernel resolves names with openat2.
type kernel struct{ root *os.File }

func (b kernel) openat2(name string, flag int, perm fs.FileMode) (int, error) {
	how := unix.OpenHow{Flags: uint64(flag) | unix.O_CLOEXEC, Resolve: beneath} // flags are positive
	if flag&os.O_CREATE != 0 {
		how.Mode = uint64(perm.Perm())
	}
	var (
		fd  int
		err error
	)
	for range attempts {
		fd, err = unix.Openat2(int(b.root.Fd()), name, &how) // a descriptor fits
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
	return fd, nil
}

func (b kernel) open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	fd, err := b.openat2(name, flag, perm)
	if err != nil {
		return nil, err
	}
	if flag&unix.O_DIRECTORY != 0 { // a caller that reads its entries opens them by this name, which cannot change
		name = "/proc/self/fd/" + strconv.Itoa(fd)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (b kernel) stat(name string) (fs.FileInfo, error) {
	f, err := b.open(name, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only a name
	return f.Stat()
}

func (b kernel) lstat(name string) (fs.FileInfo, error) {
	f, err := b.open(name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it is only a name
	return f.Stat()
}

func (b kernel) dir(name string) (directory, error) {
	d, err := b.openDir(name)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (b kernel) openDir(name string) (kernelDir, error) {
	fd, err := b.openat2(name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return kernelDir{}, err
	}
	return kernelDir{kernel{os.NewFile(uintptr(fd), name)}}, nil
}

func (b kernel) rename(from, to string) error {
	return b.between(from, to, func(source int, old string, target int, base string) error {
		return failed("renameat", to, unix.Renameat(source, old, target, base))
	})
}

// renameNew renames without replacing, by link if the file system has no such rename.
func (b kernel) renameNew(from, to string) error {
	err := b.between(from, to, func(source int, old string, target int, base string) error {
		return failed("renameat2", to, unix.Renameat2(source, old, target, base, unix.RENAME_NOREPLACE))
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		return b.renameByLink(from, to)
	}
	return err
}

// renameByLink creates a second name, because link replaces nothing, and removes the first.
func (b kernel) renameByLink(from, to string) error {
	return b.between(from, to, func(source int, old string, target int, base string) error {
		if err := unix.Linkat(source, old, target, base, 0); err != nil {
			return failed("linkat", to, err)
		}
		return failed("unlinkat", from, unix.Unlinkat(source, old, 0))
	})
}

// between opens the directories of two names and calls do with them and the base names.
func (b kernel) between(from, to string, do func(source int, old string, target int, base string) error) error {
	source, err := b.openDir(path.Dir(from))
	if err != nil {
		return err
	}
	defer func() { _ = source.close() }() // it is only a name
	target, err := b.openDir(path.Dir(to))
	if err != nil {
		return err
	}
	defer func() { _ = target.close() }() // as above
	return do(source.fd(), path.Base(from), target.fd(), path.Base(to))
}

func (b kernel) close() error { return b.root.Close() }

// kernelDir changes one directory by its descriptor. Files opened in it must be beneath it too.
type kernelDir struct{ kernel }

func (d kernelDir) fd() int { return int(d.root.Fd()) } // a descriptor fits

func (d kernelDir) mkdir(base string, perm fs.FileMode) error {
	return failed("mkdirat", base, unix.Mkdirat(d.fd(), base, uint32(perm.Perm())))
}

func (d kernelDir) chown(base string, uid, gid int) error {
	return failed("fchownat", base, unix.Fchownat(d.fd(), base, uid, gid, unix.AT_SYMLINK_NOFOLLOW))
}

func (d kernelDir) rename(from, to string) error {
	return failed("renameat", to, unix.Renameat(d.fd(), from, d.fd(), to))
}

func (d kernelDir) link(from, to string) error {
	return failed("linkat", to, unix.Linkat(d.fd(), from, d.fd(), to, 0))
}

func (d kernelDir) remove(base string) error {
	err := unix.Unlinkat(d.fd(), base, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		if e := unix.Unlinkat(d.fd(), base, unix.AT_REMOVEDIR); !errors.Is(e, unix.ENOTDIR) {
			err = e
		}
	}
	return failed("unlinkat", base, err)
}

func (d kernelDir) readlink(base string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.fd(), base, buf)
	if err != nil {
		return "", failed("readlinkat", base, err)
	}
	return string(buf[:n]), nil
}

func (d kernelDir) sync() error {
	f, err := d.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f), f.Close())
}

func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
