package docker

import (
	"context"
	"errors"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/sandjet/sandjet/schemas"
)

// engineError gives an error of the engine a code, for what had not begun yet.
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

// said is what the engine says, for people: the first line, and not too much of it.
func said(err error) string {
	const most = 300
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.TrimPrefix(text, "Error response from daemon: ")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// isFull reports whether an engine's or a runtime's words are about want of room.
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
