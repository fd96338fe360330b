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

// Taken is what files take of a disk.
type Taken struct {
	Bytes int64 // of blocks: holes of sparse files cost nothing
	Files int64 // inodes: files, directories, links, whatever
}

// Measured is what was found below a directory.
type Measured struct {
	Taken

	// Hidden says that there is more that could not be counted: directories that may not be read, or too many that are
	// nested deep.
	Hidden bool
}

// MeasureDepth is how many directories within one another are entered at once, each of which is held open. Of those that lie
// deeper MeasureDeep are held open too until they have their turn: so one chain may have any depth, and many may not.
const (
	MeasureDepth = 256
	MeasureDeep  = 256
)

const (
	measureBatch = 256                  // entries that are read at a time
	measurePiece = 5 * time.Millisecond // least work between two rests
)

// Measure counts what everything below the directory dir takes, which other processes may be changing at the same time. Each directory is
// opened by its name in the one above it, and no link is followed, so nothing outside is ever reached, whatever is renamed meanwhile; what
// is moved from one place to another during the count may be counted twice or not at all. A file with several links below dir counts once
// in sum. It holds some megabytes at most.
//
// Rest is called with the time of each piece of work, the last one too, and may wait; nil: no rest.
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

// measuring is a count on its way. Of a file with n links each counts as an n-th, so it need not be remembered.
type measuring struct {
	stack        []listing
	deep         []*os.File // begun when the stack is empty
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

// more reports whether there is something to look at.
func (m *measuring) more() bool {
	if n := len(m.deep); len(m.stack) == 0 && n > 0 {
		m.stack = append(m.stack, listing{f: m.deep[n-1]})
		m.deep = m.deep[:n-1]
	}
	return len(m.stack) > 0
}

// step looks at one entry, or reads some more and reports true.
func (m *measuring) step() (read bool) {
	l := &m.stack[len(m.stack)-1]
	if len(l.batch) == 0 {
		l.batch, _ = l.f.ReadDir(measureBatch) // what cannot be read any more is gone
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
		return false // it is gone
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

// enter goes into a directory, or notes one that is nested deep for later.
func (m *measuring) enter(above *os.File, name string) {
	deep := len(m.stack) >= MeasureDepth
	if deep && len(m.deep) >= MeasureDeep {
		m.found.Hidden = true
		return
	}
	fd, err := unix.Openat(int(above.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		m.found.Hidden = m.found.Hidden || errors.Is(err, unix.EACCES)
		return // gone, or something else by now
	}
	f := os.NewFile(uintptr(fd), "/proc/self/fd/"+strconv.Itoa(fd))
	if deep {
		m.deep = append(m.deep, f)
		return
	}
	m.stack = append(m.stack, listing{f: f})
}
