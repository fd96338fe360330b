package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// settled is how long a local file must be unchanged before its size and time identify its content: file systems give changes in quick
// succession the same time.
const settled = 2 * time.Second

// mostSums is the maximum size of a file of checksums, in bytes.
const mostSums = 128 << 20

// sums caches the SHA-256 checksums of the files of two synchronized folders. Each is valid for a size and a time of modification; without
// one, the file is read.
type sums struct {
	file   string         // path of the cache; "": it is not saved
	Local  map[string]sum `json:"local"`
	Remote map[string]sum `json:"remote"`
}

type sum struct {
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds since 1970
	SHA256   string `json:"sha256"`
}

// openSums reads the cache for a folder of a workspace and a local one. If it cannot be read, it is empty.
func openSums(workspace, dir, local string) *sums {
	s := &sums{Local: map[string]sum{}, Remote: map[string]sum{}}
	cache, err := os.UserCacheDir()
	if err != nil {
		return s
	}
	name := sha256.Sum256([]byte(workspace + "\x00" + dir + "\x00" + local))
	s.file = filepath.Join(cache, "sandjet", "sync", hex.EncodeToString(name[:16])+".json")
	f, err := os.Open(s.file)
	if err != nil {
		return s
	}
	defer f.Close() //nolint:errcheck // it is only read
	read := sums{}
	if err := json.NewDecoder(io.LimitReader(f, mostSums)).Decode(&read); err == nil && read.Local != nil && read.Remote != nil {
		s.Local, s.Remote = read.Local, read.Remote
	}
	return s
}

func (s *sums) local(f treeFile) (string, bool) {
	known, ok := s.Local[f.path]
	return known.SHA256, ok && known.Size == f.size && known.Modified == f.modified.UnixNano()
}

// setLocal records the checksum of a file whose reading began at read, unless the file had changed just before.
func (s *sums) setLocal(f treeFile, digest string, read time.Time) {
	if read.Sub(f.modified) < settled {
		delete(s.Local, f.path)
		return
	}
	s.Local[f.path] = sum{f.size, f.modified.UnixNano(), digest}
}

func (s *sums) remote(f schemas.FileInfo) (string, bool) {
	known, ok := s.Remote[f.Path]
	return known.SHA256, ok && known.Size == f.Size && known.Modified == f.Modified.UnixNano()
}

func (s *sums) setRemote(f schemas.FileInfo, digest string) {
	s.Remote[f.Path] = sum{f.Size, f.Modified.UnixNano(), digest}
}

// save writes the cache. If that fails, the next run reads the files again.
func (s *sums) save() {
	b, err := json.Marshal(s)
	if s.file == "" || err != nil || len(b) > mostSums || os.MkdirAll(filepath.Dir(s.file), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(s.file), "sums")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil && cerr == nil {
		err = os.Rename(f.Name(), s.file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}
