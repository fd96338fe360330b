//go:build linux

package handler

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/sandjet/sandjet/providers/local/confine"
)

// entryName is this program's name where it is to start a command.
const entryName = "sandjet-lambda-run"

// statusFile is the descriptor on which a starting program says why it cannot start. An exec closes it.
const statusFile = 3

// start is what a program must do to become a command.
type start struct {
	Dir        string   `json:"dir"`
	Argv       []string `json:"argv"` // the first is a path
	ReadOnly   []string `json:"read_only"`
	ReadWrite  []string `json:"read_write"`
	Sockets    bool     `json:"sockets"`
	MaxABI     int      `json:"max_abi"`    // see Handler.MaxABI
	Unconfined bool     `json:"unconfined"` // run even if the kernel has no Landlock or takes no filter
}

// word is a message of the starting program on its status file, one for each step: a protection in force, or an error.
type word struct {
	Holds string `json:"holds,omitempty"`
	Wrong string `json:"wrong,omitempty"`
	Dir   bool   `json:"dir,omitempty"` // the working directory is what is wrong
}

// Entry becomes the command if this process was started for that, and returns otherwise. A program that runs commands must call it before
// all else, if possible with one thread.
func Entry() {
	if len(os.Args) != 2 || filepath.Base(os.Args[0]) != entryName {
		return
	}
	status := os.NewFile(statusFile, "status")
	syscall.CloseOnExec(statusFile)
	say := json.NewEncoder(status)
	w := word{Wrong: "it returned"}
	if err := enter(os.Args[1], say.Encode); err != nil {
		w.Wrong = err.Error()
		_, w.Dir = errors.AsType[dirError](err)
	}
	_ = say.Encode(w) //nolint:errchkjson // there is no reader otherwise
	os.Exit(1)
}

// dirError reports that the working directory does not exist.
type dirError struct{ error }

// enter drops rights and access that the command must not have, and becomes the command. Say reports the protections in force.
func enter(plan string, say func(any) error) error {
	runtime.LockOSThread()
	var s start
	if err := json.Unmarshal([]byte(plan), &s); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	if err := confine.NoNewPrivsThread(); err != nil {
		return err
	}
	if err := os.Chdir(s.Dir); err != nil {
		return dirError{err}
	}
	abi, err := confine.LandlockThread(confine.LandlockRules{ReadOnly: s.ReadOnly, ReadWrite: s.ReadWrite, MaxABI: s.MaxABI})
	switch {
	case err == nil && abi > 0:
		if err := say(word{Holds: "landlock"}); err != nil {
			return err
		}
	case !s.Unconfined:
		return errors.Join(errors.New("the kernel has no Landlock, which keeps workspaces apart"), err)
	}
	// Below that ABI a command could empty files of other workspaces, and of its own where it only reads.
	old := abi > 0 && abi < confine.LandlockTruncate
	switch err := confine.Seccomp(confine.SeccompOptions{DenyInet: !s.Sockets, DenyTruncate: old}); {
	case err == nil:
		if err := say(word{Holds: "seccomp"}); err != nil {
			return err
		}
	case !s.Unconfined:
		return err
	}
	return os.NewSyscallError("execve", syscall.Exec(s.Argv[0], s.Argv, os.Environ()))
}

// hide keeps commands from inspecting this process, whose environment contains the credentials of the function.
func hide() error { return confine.Dumpable(false) }
