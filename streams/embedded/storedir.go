package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/schemas"
)

// leastRoom is the free space in bytes below which no server is started, be it the first time or again: it would soon be unable to write.
const leastRoom = 16 << 20

// storeDir is the directory of an embedded server, locked by this process until it ends.
type storeDir struct {
	path   string
	lock   *os.File
	temp   bool
	before int64 // what was free when [storeDir.reserve] looked last
}

// openStoreDir creates the directory and checks everything that would later end the server's process: no other process uses it, it is
// writable, it has room.
func openStoreDir(path string, memory bool) (*storeDir, error) {
	const op = "open the data directory"
	d := &storeDir{path: path}
	if path == "" {
		if !memory {
			return nil, schemas.Invalidf("data_dir", "must not be empty")
		}
		var err error
		if d.path, err = tempDir(); err != nil {
			return nil, schemas.Wrap(schemas.Unavailable, op, "a temporary one could not be made", err)
		}
		d.temp = true
	}
	path, err := filepath.Abs(d.path)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, op, schemas.Quotable(d.path)+" is no path", err)
	}
	d.path = path
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, schemas.Wrap(schemas.Denied, op, d.path+" cannot be made: choose another with --data-dir", err)
	}
	if err := d.take(); err != nil {
		return nil, err
	}
	if d.room() < leastRoom {
		_, _ = d.reserve(false) // if there is one, this is what it is for
	}
	if room := d.room(); room < leastRoom && !memory {
		d.close()
		return nil, schemas.OpErrorf(schemas.Exhausted, op,
			"%s has %d MiB free, at least %d are needed: make room or choose another with --data-dir",
			d.path, room>>20, leastRoom>>20)
	}
	return d, nil
}

// take locks the directory. The lock file names the process.
func (d *storeDir) take() error {
	const op = "open the data directory"
	f, err := os.OpenFile(filepath.Join(d.path, "server.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return schemas.Wrap(schemas.Denied, op, d.path+" cannot be written: choose another with --data-dir", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close() //nolint:errcheck // read only
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return schemas.Wrap(schemas.Unavailable, op, d.path+" cannot be locked", err)
		}
		return schemas.OpErrorf(schemas.Conflict, op, "%s is in use%s: stop that one or choose another with --data-dir", d.path, holder(f))
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		f.Close() //nolint:errcheck // the error before counts
		return schemas.Wrap(schemas.Unavailable, op, d.path+" cannot be written", err)
	}
	d.lock = f
	return nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// holder reads " by process N" from a lock file, or nothing.
func holder(f io.Reader) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" by process %d", pid)
}

// room returns how many bytes may still be written; 0 if unknown.
func (d *storeDir) room() int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(d.path, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * int64(st.Bsize) //nolint:unconvert // no disk has 2^63 bytes; the types differ by platform
}

func (d *storeDir) close() {
	if d.lock != nil {
		d.lock.Close() //nolint:errcheck // frees the lock in any case
		d.lock = nil
	}
	if d.temp {
		_ = os.RemoveAll(d.path)
	}
}
