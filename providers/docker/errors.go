package docker

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sandjet/sandjet/schemas"
)

// engineError maps an error of the engine to one with a code, for an operation that has not begun.
func engineError(op string, err error) error {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case isFull(err.Error()):
		return schemas.Wrap(schemas.Exhausted, op, "the engine, or the sandbox, has no room for it", err)
	case errdefs.IsInvalidArgument(err):
		return schemas.Wrap(schemas.Unsupported, op, "the engine refuses such a container: "+said(err), err)
	case errdefs.IsNotFound(err) && strings.Contains(err.Error(), "image"):
		return schemas.Wrap(schemas.Unavailable, op, "the image is gone from the engine: pull or build it again", err)
	case errdefs.IsNotFound(err):
		return schemas.Wrap(schemas.NotFound, op, "the sandbox is gone: reserve it again", err)
	default:
		return schemas.Wrap(schemas.Unavailable, op, "the Docker engine does not do it: "+said(err), err)
	}
}

// said returns the beginning of the engine's message, for people.
func said(err error) string {
	const most = 300
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.TrimPrefix(text, "Error response from daemon: ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// isFull reports whether a message of an engine or a runtime reports a lack of memory, disk or processes.
func isFull(text string) bool {
	text = strings.ToLower(text)
	for _, word := range []string{
		"resource temporarily unavailable", "cannot allocate memory", "no space left", "disk quota exceeded",
		"too many open files", "procready not received", "can't fork", "cannot fork",
	} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
