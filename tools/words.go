package tools

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// word is the outcome of a file tool.
type word string

// The words, as the scripts print them.
const (
	wordOK           word = "ok"
	wordNotFound     word = "not_found"
	wordIsDirectory  word = "is_directory"
	wordNotDirectory word = "not_directory"
	wordNotRegular   word = "not_regular"
	wordEscape       word = "escape"
	wordLoop         word = "loop"
	wordDenied       word = "denied"
	wordReadOnly     word = "read_only"
	wordHardLink     word = "hard_link"
	wordExists       word = "exists"
	wordChanged      word = "changed"
	wordTooLarge     word = "too_large"
	wordNoSpace      word = "no_space"
	wordNotText      word = "not_text"
	wordNoMatch      word = "no_match"
	wordMany         word = "many"
	wordGrown        word = "grown" // the file to be written is too large
	wordTooMany      word = "too_many"
	wordBadPattern   word = "bad_pattern"
	wordNoScratch    word = "no_scratch"
	wordFailed       word = "failed"
)

// wordOf returns the word for an error of the native tools; false for errors of the context.
func wordOf(err error) (word, bool) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "", false
	}
	switch c := workspacefs.CodeOf(err); c {
	case workspacefs.ErrNotFound, workspacefs.ErrIsDirectory, workspacefs.ErrNotDirectory, workspacefs.ErrNotRegular,
		workspacefs.ErrEscape, workspacefs.ErrLoop, workspacefs.ErrDenied, workspacefs.ErrReadOnly, workspacefs.ErrHardLink,
		workspacefs.ErrExists, workspacefs.ErrChanged, workspacefs.ErrTooLarge, workspacefs.ErrNoSpace, workspacefs.ErrTooMany:
		return word(c), true // the scripts use the same words
	case workspacefs.ErrBadName, workspacefs.ErrTooLong, workspacefs.ErrNotEmpty:
	}
	return wordFailed, true
}

// failure returns the error for a word, about the file or folder shown as path.
func failure(w word, kind, path string) *schemas.Error {
	code, format := schemas.Internal, "the file system refused %s"
	switch w {
	case wordNotFound:
		return &schemas.Error{Code: schemas.NotFound, Message: fmt.Sprintf("%s not found: %s", kind, path)}
	case wordIsDirectory:
		code, format = schemas.Invalid, "is a directory: %s"
	case wordNotDirectory:
		code, format = schemas.Invalid, "not a directory: %s"
	case wordNotRegular:
		code, format = schemas.Invalid, "not a regular file: %s"
	case wordEscape:
		code, format = schemas.Denied, "Invalid path: %s leads outside the workspace through a symbolic link (absolute links are not followed)"
	case wordLoop:
		code, format = schemas.Invalid, "too many symbolic links: %s"
	case wordDenied:
		code, format = schemas.Denied, "permission denied: %s"
	case wordReadOnly:
		code, format = schemas.Denied, "the workspace is read-only: %s"
	case wordHardLink:
		code, format = schemas.Denied, "%s has several hard links: copy the file and write to the copy"
	case wordExists:
		code, format = schemas.Conflict, "file already exists: %s"
	case wordChanged:
		code, format = schemas.Conflict, "%s has changed since it was read: read it again"
	case wordTooLarge:
		code, format = schemas.Exhausted, "%s is too large for this tool: use bash"
	case wordNoSpace:
		code, format = schemas.Exhausted, "no space left for %s"
	case wordNotText:
		code, format = schemas.Invalid, "not a text file: %s"
	case wordTooMany:
		code, format = schemas.Exhausted, "there are too many files below %s: use a narrower path"
	case wordBadPattern:
		return &schemas.Error{Code: schemas.Unsupported,
			Message: "this sandbox's grep does not support the pattern: simplify it, or install ripgrep (rg) in the sandbox"}
	case wordNoScratch:
		return &schemas.Error{Code: schemas.Unavailable, Message: "the sandbox has no space left for temporary files"}
	case wordOK, wordNoMatch, wordMany, wordGrown, wordFailed:
	}
	return &schemas.Error{Code: code, Message: fmt.Sprintf(format, path)}
}
