//go:build !linux

package workspacefs

import "io/fs"

// InfoOf is what a file's own description says of it, as far as it says that.
func InfoOf(f fs.FileInfo) Info { return Info{Size: f.Size(), ModTime: f.ModTime()} }
