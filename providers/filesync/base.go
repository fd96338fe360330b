package filesync

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/sandjet/sandjet/providers/bucket"
)

// base is the state in which copy and bucket were last equal, file by file.
type base struct {
	Version int              `json:"version"`
	Where   string           `json:"where"` // the bucket's, see [bucket.Bucket.Where]
	Root    string           `json:"root"`  // distinguishes the folder of the copy from another one in its place
	Left    string           `json:"left"`  // what was said last of files that are left out
	Files   map[string]entry `json:"files"`
}

// entry is a file of the base. Stamp describes the copy's file when its content was known to be this version. It is zero if the file had
// been changed so recently that a later change could have the same stamp; its content must be read then.
type entry struct {
	ETag  string `json:"etag"` // empty: the service gave none, and may have another version at any time
	Hash  string `json:"hash"` // SHA-256, hexadecimal
	Size  int64  `json:"size"`
	Stamp stamp  `json:"stamp,omitzero"`
}

// has reports whether the object in the bucket is the entry's version.
func (e entry) has(o bucket.Object) bool { return e.ETag != "" && e.ETag == o.ETag }

type stamp struct {
	Modified int64 `json:"modified"` // Unix nanoseconds
	Changed  int64 `json:"changed"`
}

const (
	baseVersion = 1
	baseFile    = "base.json"
	maxBase     = 256 << 20 // bytes
)

// decodeBase parses a base. Anything invalid is an error: without a base nothing is removed on either side.
func decodeBase(data []byte) (base, error) {
	var b base
	if err := json.Unmarshal(data, &b); err != nil {
		return base{}, fmt.Errorf("read the base: %w", err)
	}
	if b.Version != baseVersion {
		return base{}, fmt.Errorf("the base is of version %d", b.Version)
	}
	for name, e := range b.Files {
		if _, err := hex.DecodeString(e.Hash); err != nil || len(e.Hash) != 64 || e.Size < 0 || bucket.Problem(name) != "" {
			return base{}, fmt.Errorf("the base has an entry %q that cannot be", name)
		}
	}
	if b.Files == nil {
		b.Files = map[string]entry{}
	}
	return b, nil
}

func emptyBase(where, root string) base {
	return base{Version: baseVersion, Where: where, Root: root, Files: map[string]entry{}}
}

// loadBase returns the base of a folder. It is empty if there is none, if it is of another copy, or if it cannot be read (lost says why).
// It may be of another location in S3 if the workspace has moved.
func loadBase(dir, where, root string) (b base, lost error) {
	empty := emptyBase(where, root)
	name := filepath.Join(dir, baseFile)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err == nil && info.Size() > maxBase {
		err = fmt.Errorf("the base has %d bytes", info.Size())
	}
	if err != nil {
		return empty, err
	}
	data, err := os.ReadFile(name)
	if err == nil {
		b, err = decodeBase(data)
	}
	if err != nil {
		return empty, err
	}
	if b.Root != root {
		return empty, nil
	}
	return b, nil
}

// save replaces the stored base atomically.
func (b base) save(dir string) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("write the base: %w", err)
	}
	return writeFile(filepath.Join(dir, baseFile), data)
}

// writeFile writes a file atomically and durably.
func writeFile(name string, data []byte) error {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// rootOf returns the identity of a workspace's root folder; empty if its file system has none.
func rootOf(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return strconv.FormatUint(uint64(st.Dev), 36) + "-" + strconv.FormatUint(st.Ino, 36) //nolint:unconvert // not on all systems
	}
	return ""
}
