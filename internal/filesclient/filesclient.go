// Package filesclient requests file operations on workspaces from workers, for gateways and for the part that stores files from chats.
package filesclient

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// AnswerWithin limits one request. A worker fails before that.
	AnswerWithin = 40 * time.Second
	// askWithin limits a request with its retries. It is long enough for a worker that died to be replaced.
	askWithin = time.Minute
)

// Workspace requests file operations on one workspace from workers. It is safe for concurrent use. Its methods block for up to a minute,
// or for Patience, and retry if an answer was lost. The fields must not change after the first call.
type Workspace struct {
	Bus     *streams.Bus
	Account schemas.AccountID
	Files   schemas.WorkspaceFiles
	// Patience is how long a request is retried while no worker answers; 0: a minute.
	Patience time.Duration
}

var again = wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // settings, never changed

// Do sends a request until it is answered. Codes: those of the answer, and unavailable (no worker that can reach the files has answered).
func (s *Workspace) Do(ctx context.Context, q schemas.FileRequest, data []byte) (r schemas.FileReply, body []byte, err error) {
	q.Account, q.Workspace = s.Account, s.Files.ID
	until := time.Now().Add(cmp.Or(s.Patience, askWithin))
	for n := 1; ; n++ {
		r, body, err = s.once(ctx, q, data)
		if !errors.Is(err, schemas.ErrUnavailable) || ctx.Err() != nil || time.Now().After(until) || !again.Sleep(ctx, n) {
			break
		}
		q.Again = true
	}
	if errors.Is(err, schemas.ErrUnavailable) && ctx.Err() == nil {
		remedy := "start one of " + s.Files.Provider + " and try again"
		switch s.place() {
		case streams.FilesInOwnBucket:
			remedy = "start one, of any provider, and try again"
		case streams.FilesInBucket:
			remedy = "start one with --s3-bucket, of any provider, and try again"
		}
		err = schemas.Wrap(schemas.Unavailable, "files", "no worker answers that reaches the files of this workspace: "+remedy, err)
	}
	return r, body, err
}

func (s *Workspace) place() streams.FilesPlace { return streams.FilesPlaceOf(s.Files) }

func (s *Workspace) once(ctx context.Context, q schemas.FileRequest, data []byte) (r schemas.FileReply, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	message, err := schemas.EncodeFileMessage(q, data)
	if err != nil {
		return r, nil, err
	}
	answer, err := s.Bus.AskAboutFiles(ctx, s.Account, s.place(), message)
	if err != nil {
		return r, nil, err
	}
	if body, err = schemas.DecodeFileMessage(answer, &r); err != nil {
		return r, nil, schemas.Wrap(schemas.Internal, "files", "the worker's answer is not understood", err)
	}
	return r, body, nil
}

// Stat describes the entry at a path.
func (s *Workspace) Stat(ctx context.Context, path string) (schemas.FileInfo, error) {
	r, _, err := s.Do(ctx, schemas.FileRequest{Op: schemas.FileStat, Path: path}, nil)
	if err == nil && r.File == nil {
		err = schemas.OpErrorf(schemas.Internal, "files", "the worker describes nothing")
	}
	if err != nil {
		return schemas.FileInfo{}, err
	}
	return *r.File, nil
}

// Remove removes a file. A missing one is no error.
func (s *Workspace) Remove(ctx context.Context, path string) error {
	_, _, err := s.Do(ctx, schemas.FileRequest{Op: schemas.FileRemove, Path: path, Again: true}, nil)
	return err
}
