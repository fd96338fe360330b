package safefs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadFile returns the whole of a regular file of at most limit bytes, and what it was when it was
// read. A larger one is [ErrTooLarge]; sparse or endless files cost no more than limit.
func (r *Root) ReadFile(name string, limit int64) ([]byte, fs.FileInfo, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return readAll(f, limit)
}

func readAll(f *os.File, limit int64) ([]byte, fs.FileInfo, error) {
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
		if err == io.EOF { // a file's Read returns it bare
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
