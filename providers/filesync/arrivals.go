package filesync

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// arrivalsFolder has an empty file for each file that is on its way into the copy, under its name. A name alone would not distinguish it
// from a file of the workspace's users.
const arrivalsFolder = "arrivals"

// arrive records the name of a temporary file that is about to be written to the copy, and returns that name. After a crash of the host
// each such file has a record.
func arrive(dir string) (string, error) {
	folder := filepath.Join(dir, arrivalsFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	name := temporary + rand.Text()
	f, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(f.Sync(), f.Close(), syncFolder(folder), syncFolder(dir)); err != nil {
		return "", err
	}
	return name, nil
}

// arrived removes the record of a file that was moved to its place, or removed. If that fails, the next comparison removes it.
func arrived(dir, name string) { _ = os.Remove(filepath.Join(dir, arrivalsFolder, name)) }

// arrivals returns the names of temporary files that an interrupted comparison has left. The copy is locked, so none is in use.
func arrivals(dir string) (map[string]bool, error) {
	notes, err := os.ReadDir(filepath.Join(dir, arrivalsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make(map[string]bool, len(notes))
	for _, n := range notes {
		names[n.Name()] = true
	}
	return names, nil
}

func syncFolder(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
