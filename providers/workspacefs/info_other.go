//go:build !linux

package workspacefs

import "io/fs"

// InfoOf returns the fields of Info that a file's fs.FileInfo provides.
func InfoOf(f fs.FileInfo) Info { return Info{Size: f.Size(), ModTime: f.ModTime()} }
