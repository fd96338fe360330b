// Package files answers for the files of workspaces: what gateways ask on behalf of applications, without a call. It reaches them as the
// file tools do, by the provider's own [providers.Filer] or else by runs, and those on S3 in the bucket itself.
//
// Every question stands alone and may be asked again, of this worker or of another one that reaches the same files: what was done
// already is found to be done. A large file arrives in pieces in a file of [schemas.UploadsFolder] and gets its name in one step.
package files

import (
	"context"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// slots is how many questions a worker answers at the same time, of one account three quarters. Each holds [schemas.MaxFileChunk]
	// bytes twice.
	slots = 8
	// waiting is how many wait for one of them. Each holds as many bytes once.
	waiting = 64
	// within bounds one answer: a gateway has asked another worker by then.
	within = 30 * time.Second
)

// Server answers requests for the files of workspaces at one place.
type Server struct {
	Bus   *streams.Bus
	Place streams.FilesPlace
	// Open opens the files of a workspace.
	Open func(ctx context.Context, a schemas.AccountID, w schemas.WorkspaceID) (workspacefs.FS, error)
	// Room bounds what a workspace may have, where its files do not do that themselves. Nil: nothing does.
	Room *Room
	Log  *slog.Logger
}

// InFolders opens the files of workspaces that a provider keeps in folders.
func InFolders(f providers.Filer) func(context.Context, schemas.AccountID, schemas.WorkspaceID) (workspacefs.FS, error) {
	return func(ctx context.Context, a schemas.AccountID, w schemas.WorkspaceID) (workspacefs.FS, error) {
		return f.OpenWorkspace(ctx, a, providers.Mount{Namespace: schemas.Namespace(a, w)})
	}
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) {
	again := wait.Backoff{First: time.Second, Most: 10 * time.Second}
	for n := 1; ctx.Err() == nil; n++ {
		err := s.Bus.Share(ctx, streams.FilesSubject(s.Place), streams.Sharing{
			Slots: slots, Each: slots * 3 / 4, Waiting: waiting, Account: accountOf,
		}, s.answer)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("questions about files not subscribed, retrying", "error", err)
			again.Sleep(ctx, n)
		}
	}
}

// accountOf returns the account of a request, empty if the request is not understood.
func accountOf(message []byte) schemas.AccountID {
	var q schemas.FileRequest
	if _, err := schemas.DecodeFileMessage(message, &q); err != nil {
		return ""
	}
	return q.Account
}

func (s *Server) answer(ctx context.Context, message []byte) ([]byte, error) {
	var q schemas.FileRequest
	data, err := schemas.DecodeFileMessage(message, &q)
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	fsys, err := s.Open(ctx, q.Account, q.Workspace)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := fsys.Close(); err != nil {
			s.Log.Info("workspace not closed", "workspace", q.Workspace, "error", err)
		}
	}()
	if err := s.Room.admit(ctx, fsys, q, len(data)); err != nil {
		return nil, public(q, err)
	}
	if err := streams.StillAwaited(ctx); err != nil {
		return nil, err
	}
	reply, body, err := Do(ctx, fsys, q, data)
	if err != nil {
		return nil, public(q, err)
	}
	return schemas.EncodeFileMessage(reply, body)
}

// public converts an error of the file system for the requester, with the field that it is about.
func public(q schemas.FileRequest, err error) error {
	code := workspacefs.CodeOf(err)
	field := "path"
	if q.Op == schemas.FileCommit || q.Op == schemas.FileMove {
		field = "to"
	}
	text := code.Error()
	switch code {
	case "":
		return err // a failure, or an error with a code of its own, such as a quota
	case workspacefs.ErrNotFound:
		return &schemas.Error{Code: schemas.NotFound, Field: field, Message: text, Err: err}
	case workspacefs.ErrExists, workspacefs.ErrChanged, workspacefs.ErrNotEmpty:
		return &schemas.Error{Code: schemas.Conflict, Field: field, Message: text, Err: err}
	case workspacefs.ErrDenied, workspacefs.ErrReadOnly:
		return &schemas.Error{Code: schemas.Denied, Field: field, Message: text, Err: err}
	case workspacefs.ErrNoSpace, workspacefs.ErrTooMany:
		return &schemas.Error{Code: schemas.Exhausted, Field: field, Message: text, Err: err}
	case workspacefs.ErrTooLarge:
		return &schemas.Error{Code: schemas.Invalid, Field: schemas.FieldFileSize, Message: text, Err: err}
	default:
		return &schemas.Error{Code: schemas.Invalid, Field: field, Message: text, Err: err}
	}
}
