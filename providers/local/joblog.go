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

// segment is one file of a log. Start is its offset in the job's output.
type segment struct{ start, size int64 }

func (s segment) name() string { return fmt.Sprintf("%s%020d", segmentPrefix, s.start) }

// jobLog stores the last MaxJobOutput bytes of a job's output, in several files. If the disk refuses a write or is short of room, the log
// has a gap. One goroutine may add; reads are safe concurrently.
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

// add appends p and counts it. If p cannot be stored it is counted nevertheless, and the error says why.
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

// last returns the segment that is being written.
func (l *jobLog) last() segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[len(l.segments)-1]
}

// count adds printed bytes to the total, and kept bytes to the last segment.
func (l *jobLog) count(kept, printed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += int64(printed)
	if kept > 0 {
		l.segments[len(l.segments)-1].size += int64(kept)
	}
}

// begin opens a new segment and drops the oldest ones that exceed the limit. After a refused write it drops nothing, so that a full disk
// does not cost the stored output.
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

// drop removes all but the last most segments, and returns how many bytes they had.
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

// shrink removes all but the last segment, and returns the bytes freed. It is safe for concurrent use.
func (l *jobLog) shrink() (freed int64) {
	freed, _ = l.drop(1) // what cannot be removed now is with the job
	return freed
}

// kept returns how many bytes are stored.
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

// abandon closes a segment after a failed write, and removes it from the list if it is empty.
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

// close closes the segment that is being written; the next byte opens a new one.
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

// measure returns how many bytes the job printed, and whether some of them are not stored.
func (l *jobLog) measure() (total int64, truncated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.keptLocked() != l.total
}

// read returns at most limit bytes from offset on, or the last ones if offset is -1, with their offset and the total printed.
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

// dropped reports whether the oldest of these segments has been removed since they were read.
func (l *jobLog) dropped(segments []segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(segments) > 0 && len(l.segments) > 0 && l.segments[0].start != segments[0].start
}

// piece is a range of bytes of a segment.
type piece struct {
	segment

	from, size int64 // in the segment
}

// pick chooses the contiguous bytes that answer a read, which begin at offset or, if that byte is not stored, at the next one that is.
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

// gather reads the bytes of the pieces.
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
