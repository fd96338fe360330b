package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sandjet/sandjet/schemas"
)

const (
	privateDir  = 0o700
	privateFile = 0o600
)

// dataDir is the folder that the processes of one installation on one host share.
type dataDir string

// The files in it.
func (d dataDir) upFile() string       { return filepath.Join(string(d), "up.json") }
func (d dataDir) lockFile() string     { return filepath.Join(string(d), "up.lock") }
func (d dataDir) identityFile() string { return filepath.Join(string(d), "identity.json") }
func (d dataDir) formatFile() string   { return filepath.Join(string(d), "format.json") }
func (d dataDir) roleFile() string     { return filepath.Join(string(d), "role.json") }
func (d dataDir) secretsFile() string  { return filepath.Join(string(d), "secrets.key") }
func (d dataDir) store() string        { return filepath.Join(string(d), "nats") }
func (d dataDir) workspaces() string   { return filepath.Join(string(d), "workspaces") }
func (d dataDir) local() string        { return filepath.Join(string(d), "local") }

// openDataDir creates the folder if it is missing and returns its absolute path. Codes: denied (it cannot be created or written), and
// those of checkFormat.
func openDataDir(path string) (dataDir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	if err := os.MkdirAll(abs, privateDir); err != nil {
		return "", schemas.Errorf(schemas.Denied, "cannot make the data folder: %v: choose another with --data-dir", err)
	}
	d := dataDir(abs)
	return d, d.checkFormat()
}

const defaultDataDir = "./.sandjet"

// clientDir returns the data folder of a client command: the one that was named, or else the nearest .sandjet in this folder or those
// above it, as git finds its own. Above this folder those of other users are skipped: their up.json could lead anywhere.
func clientDir(named string) string {
	if named != defaultDataDir {
		return named
	}
	at, err := os.Getwd()
	if err != nil {
		return named
	}
	for first := true; ; first = false {
		path := filepath.Join(at, ".sandjet")
		if info, err := os.Stat(path); err == nil && info.IsDir() && (first || ownedByUs(info)) {
			if first {
				return named
			}
			return path
		}
		if at == filepath.Dir(at) {
			return named
		}
		at = filepath.Dir(at)
	}
}

func ownedByUs(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// secure removes other users' permission to write to the folder, with which they could replace files in it, and logs the change. A folder
// that belongs to another user is used nevertheless, with a warning: volumes of containers are often created like that.
func (d dataDir) secure(log *slog.Logger) {
	const othersWrite = 0o022
	info, err := os.Stat(string(d))
	if err != nil {
		return // the next use of the folder reports a better error
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		log.Warn("data folder belongs to another user, who can replace files in it", "folder", d, "uid", s.Uid)
	}
	mode := info.Mode().Perm()
	if mode&othersWrite == 0 {
		return
	}
	if err := os.Chmod(string(d), mode&^othersWrite); err != nil {
		log.Warn("other users can write to the data folder and replace files in it: run chmod go-w on it", "folder", d,
			"mode", mode.String(), "error", err)
		return
	}
	log.Warn("other users could write to the data folder: their write permission was removed", "folder", d, "mode", mode.String())
}

// endpoint is how a client reaches a running Sandjet. It is stored in up.json while that runs.
type endpoint struct {
	URL     string            `json:"url"`
	NATSURL string            `json:"nats_url"` // with the account's credential; empty when there is no listener
	Account schemas.AccountID `json:"account"`
	Key     string            `json:"key"`
	PID     int               `json:"pid"`

	SecretsKeys []string `json:"secrets_keys,omitempty"` // ids of the process's keys that encrypt secrets
}

// credentials puts a user and a password into a NATS address.
func credentials(url, user, password string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	return scheme + "://" + user + ":" + password + "@" + rest
}

// identity is the account, with its key, that up and gateway create at their first start.
type identity struct {
	Account schemas.AccountID `json:"account"`
	Key     string            `json:"key"`
}

// role is the credential of Sandjet's own processes for the log. It has all permissions there.
type role struct {
	URL      string `json:"url"`
	User     string `json:"user"`
	Password string `json:"password"`
}

const roleUser = "sandjet"

// identity returns the identity of this folder. It is created once: two processes that start together get the same. If the file of an
// existing one is lost, no other is created, because everything in the folder belongs to that account. Codes: not_found (it is lost),
// invalid (it is incomplete).
func (d dataDir) identity() (identity, error) {
	had, err := d.account()
	if err != nil {
		return identity{}, err
	}
	if _, err := os.Lstat(d.identityFile()); errors.Is(err, fs.ErrNotExist) && had != "" {
		return identity{}, schemas.Errorf(schemas.NotFound, "%s is gone, with the key of the account %s: restore it from a backup, "+
			"or start with --account %s and a new --key of at least 16 bytes. To begin a new account instead, choose another --data-dir",
			d.identityFile(), had, had)
	}
	id := identity{Account: schemas.AccountID(schemas.NewID(schemas.AccountPrefix)), Key: "sk_" + strings.ToLower(rand.Text())}
	got, err := once(d.identityFile(), id)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return got, fmt.Errorf("%w: restore it from a backup. Without it the account and its key are lost: sandboxes, workspaces and calls "+
			"stay in the log, under that account", err)
	case err == nil && (got.Account == "" || got.Key == ""):
		return got, schemas.Errorf(schemas.Invalid, "%s has no account or no key: restore it from a backup", d.identityFile())
	case err == nil && had != got.Account:
		err = d.remember(got.Account)
	}
	return got, err
}

// role returns the role credential of this folder, which is created once. Its URL is that of the last server.
func (d dataDir) role() (role, error) {
	return once(d.roleFile(), role{User: roleUser, Password: rand.Text()})
}

// once returns the content of the file, after writing v to it if it does not exist.
func once[T any](path string, v T) (got T, err error) {
	b, err := encode(path, v)
	if err != nil {
		return got, err
	}
	if err := makeOnce(path, b); err != nil {
		return got, err
	}
	return readJSON[T](path)
}

// makeOnce writes the file unless it exists. The file appears whole or not at all: a crash leaves no partial credential, and of two
// processes that start together one writes it.
func makeOnce(path string, b []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	tmp, err := writeTemp(path, b)
	if err != nil {
		return err
	}
	err = os.Link(tmp, path) // fails if the name exists: the other process was first
	_ = os.Remove(tmp)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keep %s: %w", filepath.Base(path), err)
	}
	return syncDir(filepath.Dir(path))
}

// writeJSON replaces the file by v in one step, readable by its owner only.
func writeJSON(path string, v any) error {
	b, err := encode(path, v)
	if err != nil {
		return err
	}
	tmp, err := writeTemp(path, b)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return syncDir(filepath.Dir(path))
}

func encode(path string, v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return append(b, '\n'), nil
}

func writeTemp(path string, b []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return "", fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return f.Name(), nil
}

func syncDir(path string) error {
	d, err := os.Open(path) // our own folder
	if err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// readJSON reads a file that Sandjet wrote. If it is missing, the error wraps fs.ErrNotExist.
func readJSON[T any](path string) (v T, err error) {
	b, err := os.ReadFile(path) // our own file
	if err != nil {
		return v, fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return v, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return v, nil
}

// lock is the exclusive right to run a Sandjet on a data folder. The kernel releases it when the process ends, also by a crash, so there
// are no stale locks.
type lock struct{ f *os.File }

// claim takes the lock of the folder, and removes an up.json that a killed process left. Code conflict: another process has the lock; the
// error names it by its up.json.
func (d dataDir) claim() (*lock, error) {
	f, err := os.OpenFile(d.lockFile(), os.O_RDWR|os.O_CREATE, privateFile)
	if err != nil {
		return nil, schemas.Errorf(schemas.Denied, "cannot write to the data folder: %v: choose another with --data-dir", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) // a file descriptor fits
	if err == nil {
		if err = os.Remove(d.upFile()); err == nil || errors.Is(err, fs.ErrNotExist) {
			return &lock{f}, nil
		}
	}
	_ = f.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("claim %s: %w", d, err)
	}
	who := "another process"
	if e, err := readJSON[endpoint](d.upFile()); err == nil {
		who = fmt.Sprintf("process %d at %s", e.PID, e.URL)
	}
	return nil, schemas.Errorf(schemas.Conflict, "%s runs on %s already: use that one, stop it, or choose another folder with --data-dir", who, d)
}

// release releases the lock. The file stays: another process may just have locked it.
func (l *lock) release() { _ = l.f.Close() }

// running returns the endpoint of the Sandjet that runs on the folder. Code unavailable: none runs.
func (d dataDir) running() (endpoint, error) {
	e, err := readJSON[endpoint](d.upFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, schemas.Errorf(schemas.Unavailable,
			"nothing is running on %s: start it with \"sandjet up\", or name another folder with --data-dir, or set SANDJET_URL and SANDJET_KEY", d)
	case err != nil:
		return e, err
	case !alive(e.PID):
		return e, schemas.Errorf(schemas.Unavailable,
			"process %d, which ran on %s, has died: start it again with \"sandjet up\"; its calls are kept", e.PID, d)
	}
	return e, nil
}

// alive reports whether a process of this host exists.
func alive(pid int) bool {
	return pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// nearestFolder returns the path itself if it is a folder, else the first above it that exists.
func nearestFolder(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--data-dir: %w", err)
	}
	for ; ; abs = filepath.Dir(abs) {
		info, err := os.Stat(abs)
		switch {
		case err == nil && info.IsDir():
			return abs, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a folder: %w", abs, fs.ErrInvalid)
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("--data-dir: %w", err)
		}
	}
}
