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

// settled is how old a change of a file of this host must be before its size and time are taken for its content: file systems give
// changes in quick succession the same time.
const settled = 2 * time.Second

// mostSums is the size of a file of sums that is read, in bytes.
const mostSums = 128 << 20

// sums are the SHA-256 of files of two folders that were synchronized, each for a size and a time. It is a cache: without it files are
// read.
type sums struct {
	file   string         // "": nothing is kept
	Local  map[string]sum `json:"local"`
	Remote map[string]sum `json:"remote"`
}

type sum struct {
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // nanoseconds since 1970
	SHA256   string `json:"sha256"`
}

// openSums reads what is known of a folder of a workspace and one of this host. What cannot be read is not known.
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

// setLocal notes the sum of a file that was read from a time on.
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

// save keeps what is known. Where it cannot, the next run reads the files.
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
