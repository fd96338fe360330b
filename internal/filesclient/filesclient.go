// Package filesclient asks workers about the files of workspaces, on behalf of gateways and of who stores what chats send.
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
	// AnswerWithin bounds one question; a worker fails sooner.
	AnswerWithin = 40 * time.Second
	// askWithin bounds one question with its repeats: a worker that died has a successor by then.
	askWithin = time.Minute
)

// Workspace asks workers about the files of one workspace. Its methods may be called from many goroutines. They block for a minute, or
// as long as Patience says, and ask again when an answer was lost. Its fields must not change after the first call.
type Workspace struct {
	Bus     *streams.Bus
	Account schemas.AccountID
	Files   schemas.WorkspaceFiles
	// Patience is how long a question is asked again while no worker answers. 0: a minute.
	Patience time.Duration
}

var again = wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // settings, never changed

// Do asks until there is an answer. Codes: those of the answer, and unavailable (there is no worker that reaches the files).
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

// Stat describes what is at a path.
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

// Remove removes a file. One that is not there is no error.
func (s *Workspace) Remove(ctx context.Context, path string) error {
	_, _, err := s.Do(ctx, schemas.FileRequest{Op: schemas.FileRemove, Path: path, Again: true}, nil)
	return err
}
