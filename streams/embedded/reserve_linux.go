package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves blocks for a file without writing them.
func allocate(f *os.File, size int64) error { return unix.Fallocate(int(f.Fd()), 0, 0, size) }
