//go:build unix

package docker

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user that owns a file; -1 if unknown.
func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
