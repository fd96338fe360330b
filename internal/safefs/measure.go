//go:build unix

package safefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Taken is how much of a disk files occupy.
type Taken struct {
	Bytes int64 // in blocks: holes of sparse files do not count
	Files int64 // inodes of any kind: files, directories, links
}

// Measured is the result of a measurement.
type Measured struct {
	Taken

	// Hidden reports that some of it could not be counted: in unreadable directories, or in too many deeply nested ones.
	Hidden bool
}

// MeasureDepth is the maximum number of nested directories that are entered at once, each of which is an open file. Up to MeasureDeep
// deeper directories are kept open as well and measured later. So a single chain may have any depth, but not many of them.
const (
	MeasureDepth = 256
	MeasureDeep  = 256
)

const (
	measureBatch = 256                  // directory entries read at a time
	measurePiece = 5 * time.Millisecond // least work between two calls of rest
)

// Measure counts the disk space of everything below the directory dir, which other processes may change meanwhile. It opens each directory
// by its name in its parent and follows no link, so that it never leaves dir, whatever is renamed. Something that is moved during the
// measurement may be counted twice or not at all. A file with several links below dir counts once in total. It uses some megabytes of
// memory at most.
//
// rest is called after each piece of work, including the last, with the time that it took, and may block. It may be nil.
func Measure(ctx context.Context, dir string, rest func(ctx context.Context, worked time.Duration)) (Measured, error) {
	top, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Measured{}, fmt.Errorf("measure: %w", err)
	}
	m := measuring{stack: []listing{{f: top}}}
	defer m.close()
	var st unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &st); err != nil { // a descriptor fits
		return Measured{}, fmt.Errorf("measure: %w", err)
	}
	m.device = uint64(st.Dev) //nolint:unconvert // it is of another type on other systems
	for began := time.Now(); m.more(); {
		if err := ctx.Err(); err != nil {
			return Measured{}, err
		}
		if !m.step() || rest == nil {
			continue
		}
		if worked := time.Since(began); worked >= measurePiece || len(m.stack)+len(m.deep) == 0 {
			rest(ctx, worked)
			began = time.Now()
		}
	}
	m.found.Bytes, m.found.Files = int64(m.bytes+0.5), int64(m.files+0.5)
	return m.found, nil
}

// measuring is the state of a measurement. Each link to a file with n links counts as 1/n of it, so that files need not be remembered.
type measuring struct {
	stack        []listing
	deep         []*os.File // measured when the stack is empty
	device       uint64
	bytes, files float64
	found        Measured
}

// listing is a directory that is being read.
type listing struct {
	f     *os.File
	batch []fs.DirEntry
}

func (m *measuring) close() {
	for _, l := range m.stack {
		_ = l.f.Close() // it was only read
	}
	for _, f := range m.deep {
		_ = f.Close() // as above
	}
}

// more reports whether something is left to measure.
func (m *measuring) more() bool {
	if n := len(m.deep); len(m.stack) == 0 && n > 0 {
		m.stack = append(m.stack, listing{f: m.deep[n-1]})
		m.deep = m.deep[:n-1]
	}
	return len(m.stack) > 0
}

// step counts one entry, or reads more entries and returns true.
func (m *measuring) step() (read bool) {
	l := &m.stack[len(m.stack)-1]
	if len(l.batch) == 0 {
		l.batch, _ = l.f.ReadDir(measureBatch) // after an error the rest counts as removed
		if len(l.batch) == 0 {
			_ = l.f.Close() // as above
			m.stack = m.stack[:len(m.stack)-1]
		}
		return true
	}
	name := l.batch[0].Name()
	l.batch = l.batch[1:]
	var st unix.Stat_t
	if unix.Fstatat(int(l.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false // it was removed
	}
	share := 1.0
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		share = 1 / float64(max(1, st.Nlink))
	}
	m.bytes += float64(st.Blocks) * 512 * share
	m.files += share
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && uint64(st.Dev) == m.device { //nolint:unconvert // likewise
		m.enter(l.f, name)
	}
	return false
}

// enter enters a directory, or stores a deeply nested one for later.
func (m *measuring) enter(above *os.File, name string) {
	deep := len(m.stack) >= MeasureDepth
	if deep && len(m.deep) >= MeasureDeep {
		m.found.Hidden = true
		return
	}
	fd, err := unix.Openat(int(above.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		m.found.Hidden = m.found.Hidden || errors.Is(err, unix.EACCES)
		return // removed or replaced meanwhile
	}
	f := os.NewFile(uintptr(fd), "/proc/self/fd/"+strconv.Itoa(fd))
	if deep {
		m.deep = append(m.deep, f)
		return
	}
	m.stack = append(m.stack, listing{f: f})
}
