package workspacefs

import (
	"io/fs"
	"syscall"
	"time"
)

// InfoOf returns the fields of Info that a file's fs.FileInfo provides.
func InfoOf(f fs.FileInfo) Info {
	i := Info{Size: f.Size(), ModTime: f.ModTime()}
	if st, ok := f.Sys().(*syscall.Stat_t); ok {
		i.Changed, i.Inode, i.Links = time.Unix(st.Ctim.Unix()), st.Ino, uint64(st.Nlink) //nolint:unconvert // it differs by architecture
	}
	return i
}
