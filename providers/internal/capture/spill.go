package capture

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	// spillDir is the folder for whole outputs in the workspace.
	spillDir = ".sandjet/output"
	// mostSpilled is the maximal size of such a file, in bytes.
	mostSpilled = 64 << 20
)

// Spill is a file in the workspace for output that is too long for a result: stdout and stderr in the order of arrival, at most 64 MiB.
// Processes in the box may change or remove the file, but cannot make it lead outside of the workspace (os.Root) or to an existing file
// (O_EXCL). Not safe for concurrent use.
type Spill struct {
	Dir   string // the workspace on the host
	Owner int    // user and group id of created files; 0: this process's user

	name string
	file *os.File
	size int64
	err  error // the first error; nothing is written after it
}

// Add appends p, up to the size limit. Done reports errors.
func (s *Spill) Add(p []byte) {
	if s.err != nil || len(p) == 0 {
		return
	}
	if s.file == nil {
		if s.err = s.open(); s.err != nil {
			return
		}
	}
	room := mostSpilled - s.size
	if int64(len(p)) > room {
		p = p[:room]
	}
	var n int
	n, s.err = s.file.Write(p)
	s.size += int64(n)
}

func (s *Spill) open() error {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	defer root.Close() //nolint:errcheck // only looked up in
	for _, dir := range []string{".sandjet", spillDir} {
		switch err := root.Mkdir(dir, 0o700); {
		case errors.Is(err, os.ErrExist):
		case err != nil:
			return fmt.Errorf("make directory: %w", err)
		case s.Owner > 0:
			if err := root.Lchown(dir, s.Owner, s.Owner); err != nil {
				return fmt.Errorf("give directory away: %w", err)
			}
		}
	}
	if err := s.hide(root); err != nil {
		return err
	}
	name := spillDir + "/" + strings.ToLower(rand.Text()) + ".log"
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	if s.Owner > 0 {
		if err := f.Chown(s.Owner, s.Owner); err != nil {
			return errors.Join(fmt.Errorf("give file away: %w", err), f.Close())
		}
	}
	s.name, s.file = name, f
	return nil
}

// hide makes git ignore the directory .sandjet, by a .gitignore in it. An existing .gitignore stays.
func (s *Spill) hide(root *os.Root) error {
	f, err := root.OpenFile(".sandjet/.gitignore", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	_, err = f.WriteString("*\n")
	if s.Owner > 0 {
		err = errors.Join(err, f.Chown(s.Owner, s.Owner))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("hide from git: %w", err)
	}
	return nil
}

// Done closes the file and returns its path in the workspace. It is empty if nothing was added or, with the error, if the file is
// incomplete.
func (s *Spill) Done() (string, error) {
	if s.file == nil {
		return "", s.err
	}
	err := errors.Join(s.err, closed(s.file.Close()))
	if err != nil {
		return "", err
	}
	return s.name, nil
}

// Close closes the file. It may be called more than once.
func (s *Spill) Close() {
	if s.file != nil {
		if err := closed(s.file.Close()); err != nil && s.err == nil {
			s.err = err
		}
	}
}

func closed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
