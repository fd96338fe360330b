package workspacefs

import (
	"errors"
	"io/fs"
	"syscall"
)

// Code is the reason why an operation was refused. It is an error: an implementation returns it, alone or wrapped with details
// (fmt.Errorf("%w: …", code)), or transmits its text.
type Code string //nolint:errname // the codes are the errors

// The codes.
const (
	ErrNotFound     Code = "not_found"
	ErrExists       Code = "exists"
	ErrDenied       Code = "denied"        // the file system does not permit it
	ErrEscape       Code = "escape"        // the path leads out of the root
	ErrLoop         Code = "loop"          // too many symbolic links
	ErrBadName      Code = "bad_name"      // it is no name below the root
	ErrTooLong      Code = "name_too_long" // of a component or a path
	ErrIsDirectory  Code = "is_directory"
	ErrNotDirectory Code = "not_directory"
	ErrNotEmpty     Code = "not_empty"
	ErrNotRegular   Code = "not_regular" // a FIFO, a socket, a device
	ErrHardLink     Code = "hard_link"   // the file has several
	ErrTooLarge     Code = "too_large"
	ErrTooMany      Code = "too_many"
	ErrReadOnly     Code = "read_only"
	ErrChanged      Code = "changed" // by another process
	ErrNoSpace      Code = "no_space"
)

// Error describes the code.
func (c Code) Error() string {
	switch c {
	case ErrNotFound:
		return "it does not exist"
	case ErrExists:
		return "it exists already"
	case ErrDenied:
		return "permission denied"
	case ErrEscape:
		return "the path leads out of the root"
	case ErrLoop:
		return "too many symbolic links"
	case ErrBadName:
		return "the name is not one below the root"
	case ErrTooLong:
		return "the name is too long"
	case ErrIsDirectory:
		return "it is a directory"
	case ErrNotDirectory:
		return "it is not a directory"
	case ErrNotEmpty:
		return "the directory is not empty"
	case ErrNotRegular:
		return "it is not a regular file"
	case ErrHardLink:
		return "the file has several hard links"
	case ErrTooLarge:
		return "the file is too large"
	case ErrTooMany:
		return "there are too many files"
	case ErrReadOnly:
		return "the workspace is read-only"
	case ErrChanged:
		return "the file was changed by somebody else"
	case ErrNoSpace:
		return "no space is left"
	}
	return string(c)
}

// Is reports whether target is the error of package io/fs that corresponds to the code.
func (c Code) Is(target error) bool {
	switch c {
	case ErrNotFound:
		return target == fs.ErrNotExist // this is what Is is for
	case ErrExists, ErrNotEmpty:
		return target == fs.ErrExist
	case ErrDenied:
		return target == fs.ErrPermission
	default:
		return false
	}
}

// known are the errors of the system that have a code. ENOTEMPTY is fs.ErrExist too, so it stands before it.
var known = []struct { //nolint:gochecknoglobals // a table
	err  error
	code Code
}{
	{syscall.EROFS, ErrReadOnly},
	{syscall.ENOSPC, ErrNoSpace},
	{syscall.EDQUOT, ErrNoSpace},
	{syscall.ELOOP, ErrLoop},
	{syscall.ENOTDIR, ErrNotDirectory},
	{syscall.EISDIR, ErrIsDirectory},
	{syscall.ENAMETOOLONG, ErrTooLong},
	{syscall.ENOTEMPTY, ErrNotEmpty},
	{fs.ErrNotExist, ErrNotFound},
	{fs.ErrExist, ErrExists},
	{fs.ErrPermission, ErrDenied},
}

// CodeOf returns the first code in err, or the one that corresponds to an error of package io/fs or of the system; empty if there is none.
func CodeOf(err error) Code {
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	for _, k := range known {
		if errors.Is(err, k.err) {
			return k.code
		}
	}
	return ""
}
