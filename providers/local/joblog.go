//go:build linux

package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// segmentSize is the bytes of one file of a job's log.
	segmentSize = schemas.MaxJobOutput / mostSegments
	// mostSegments is how many there are: the oldest goes when one more is begun.
	mostSegments = 4
	// segmentPrefix begins the name of each; the offset of its first byte follows.
	segmentPrefix = "log-"
)

// segment is a file of a log. Start counts from the job's first byte.
type segment struct{ start, size int64 }

func (s segment) name() string { return fmt.Sprintf("%s%020d", segmentPrefix, s.start) }

// jobLog is what a job printed, in files of which the last MaxJobOutput bytes are kept. Where the disk
// refuses a piece, or has too little room, the log has a hole. One goroutine adds; any may read.
type jobLog struct {
	dir  string
	room *outputs // nil: there is no end of it
	file *os.File // the last segment; nil: the next byte begins one
	// refused says that the last write took nothing.
	refused bool

	mu       sync.Mutex
	total    int64
	segments []segment // from the oldest
}

// openLog returns the log of a job that has ended, which printed at least total bytes.
func openLog(dir string, total int64) (*jobLog, error) {
	l := &jobLog{dir: dir, total: total}
	entries, err := os.ReadDir(dir) // by name, so by offset
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), segmentPrefix)
		start, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || start < 0 {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			l.segments = append(l.segments, segment{start, info.Size()})
			l.total = max(l.total, start+info.Size())
		}
	}
	return l, nil
}

// errNoRoom is why output is counted and not kept.
var errNoRoom = errors.New("the disk has too little room")

// add appends p and counts it, also where it cannot be kept: then the error says why.
func (l *jobLog) add(p []byte) error {
	if l.room != nil && !l.room.admits(l, len(p)) {
		l.count(0, len(p))
		return errors.Join(errNoRoom, l.close())
	}
	for len(p) > 0 {
		if l.file == nil {
			if err := l.begin(); err != nil {
				l.count(0, len(p))
				return err
			}
		}
		n, err := l.file.Write(p[:min(int64(len(p)), segmentSize-l.last().size)])
		if err != nil {
			l.count(n, len(p))
			return errors.Join(fmt.Errorf("write log: %w", err), l.abandon())
		}
		l.refused = false
		l.count(n, n)
		p = p[n:]
		if l.last().size >= segmentSize {
			if err := l.close(); err != nil {
				l.count(0, len(p))
				return err
			}
		}
	}
	return nil
}

// last is the segment that is written.
func (l *jobLog) last() segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[len(l.segments)-1]
}

// count notes bytes that were printed, and how many of them the last segment has got.
func (l *jobLog) count(kept, printed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += int64(printed)
	if kept > 0 {
		l.segments[len(l.segments)-1].size += int64(kept)
	}
}

// begin opens a segment and drops what is too old. After a write that took nothing, nothing is
// dropped: a full disk must not cost all that is kept.
func (l *jobLog) begin() error {
	next := segment{start: l.printed()}
	f, err := os.OpenFile(filepath.Join(l.dir, next.name()), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("begin log: %w", err)
	}
	l.file = f
	most := mostSegments
	if l.room != nil && l.room.grow(l) {
		most = 2 // with one alone there would be no tail right after it was begun
	}
	l.mu.Lock()
	l.segments = append(l.segments, next)
	l.mu.Unlock()
	if !l.refused {
		_, err = l.drop(most)
	}
	return err
}

// drop drops all but the last few segments, and reports how many bytes those had that it dropped.
func (l *jobLog) drop(most int) (freed int64, err error) {
	var old []segment
	l.mu.Lock()
	if n := len(l.segments) - most; n > 0 {
		old = slices.Clone(l.segments[:n])
		l.segments = slices.Delete(l.segments, 0, n)
	}
	l.mu.Unlock()
	for _, s := range old {
		if err := os.Remove(filepath.Join(l.dir, s.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return freed, fmt.Errorf("drop log: %w", err)
		}
		freed += s.size
	}
	return freed, nil
}

// shrink drops all but the last segment. It may be called beside all else.
func (l *jobLog) shrink() (freed int64) {
	freed, _ = l.drop(1) // what cannot be removed now is with the job
	return freed
}

// kept is how many bytes of it there are.
func (l *jobLog) kept() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keptLocked()
}

func (l *jobLog) keptLocked() (n int64) {
	for _, s := range l.segments {
		n += s.size
	}
	return n
}

func (l *jobLog) printed() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// abandon ends a segment that could not be written, and forgets it when it is empty.
func (l *jobLog) abandon() error {
	err := l.close()
	s := l.last()
	if l.refused = s.size == 0; !l.refused {
		return err
	}
	l.mu.Lock()
	l.segments = l.segments[:len(l.segments)-1]
	l.mu.Unlock()
	return errors.Join(err, os.Remove(filepath.Join(l.dir, s.name())))
}

// close ends the segment that is written; a byte more begins another.
func (l *jobLog) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

// measure is what was printed, and whether not all of it is kept.
func (l *jobLog) measure() (total int64, truncated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.keptLocked() != l.total
}

// read returns at most limit bytes from offset on, -1 for the last ones, and where they begin.
func (l *jobLog) read(offset int64, limit int) (data []byte, at, total int64, err error) {
	for {
		l.mu.Lock()
		segments, printed := slices.Clone(l.segments), l.total
		l.mu.Unlock()
		from, pieces := pick(segments, printed, offset, int64(limit))
		data, err := l.gather(pieces)
		if errors.Is(err, fs.ErrNotExist) && l.dropped(segments) {
			continue
		}
		return data, from, printed, err
	}
}

// dropped reports whether the oldest segment is not kept any more.
func (l *jobLog) dropped(segments []segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(segments) > 0 && len(l.segments) > 0 && l.segments[0].start != segments[0].start
}

// piece is some bytes of a segment.
type piece struct {
	segment

	from, size int64 // in the segment
}

// pick chooses what answers a read: bytes that follow one another, the first at offset or, when that
// is not kept, at the next that is.
func pick(segments []segment, total, offset, limit int64) (at int64, pieces []piece) {
	if offset < 0 {
		offset = max(0, total-limit)
	}
	at = min(offset, total)
	for _, s := range segments {
		end := s.start + s.size
		switch {
		case limit == 0 || len(pieces) > 0 && s.start > offset:
			return at, pieces
		case end <= offset:
			continue
		case s.start > offset:
			offset, at = s.start, s.start
		}
		n := min(end-offset, limit)
		pieces = append(pieces, piece{s, offset - s.start, n})
		offset, limit = offset+n, limit-n
	}
	if len(pieces) == 0 {
		at = total
	}
	return at, pieces
}

// gather reads pieces.
func (l *jobLog) gather(pieces []piece) ([]byte, error) {
	size := int64(0)
	for _, p := range pieces {
		size += p.size
	}
	data := make([]byte, 0, size)
	for _, p := range pieces {
		more, err := l.fetch(data, p)
		if err != nil {
			return nil, err
		}
		short := int64(len(more)-len(data)) < p.size
		if data = more; short {
			break // the machine stopped before all was on the disk
		}
	}
	return data, nil
}

func (l *jobLog) fetch(data []byte, p piece) ([]byte, error) {
	f, err := os.Open(filepath.Join(l.dir, p.name()))
	if err != nil {
		return data, fmt.Errorf("read log: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	n, err := f.ReadAt(data[len(data):len(data)+int(p.size)], p.from)
	if err != nil && !errors.Is(err, io.EOF) {
		return data, fmt.Errorf("read log: %w", err)
	}
	return data[:len(data)+n], nil
}
