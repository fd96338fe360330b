// Package folderid gives a directory an identity, by which processes find out whether they use the same directory.
package folderid

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is the file in a directory of workspaces that contains its identity. No workspace can have its name, because names that begin with
// a dot are refused.
const File = ".store-id"

// Of returns the identity of a directory, and creates one if there is none. If several processes do so at the same time, one identity
// wins.
func Of(dir string) (string, error) {
	path := filepath.Join(dir, File)
	if id, err := read(path); !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	f, err := os.CreateTemp(dir, File+".*")
	if err != nil {
		return "", fmt.Errorf("identity of the workspaces: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is linked or of no use
	_, err = f.WriteString("store_" + hex.EncodeToString(b[:]) + "\n")
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("identity of the workspaces: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("identity of the workspaces: %w", err)
	}
	return read(path)
}

func read(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("identity of the workspaces: %w", err)
	}
	const prefix, length = "store_", 6 + 32
	id := string(data)
	if len(id) > 0 && id[len(id)-1] == '\n' {
		id = id[:len(id)-1]
	}
	if len(id) != length || id[:len(prefix)] != prefix {
		return "", fmt.Errorf("%s is damaged: remove it when no worker runs", path)
	}
	return id, nil
}
