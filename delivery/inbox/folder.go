package inbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sandjet/sandjet/internal/filesclient"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Folder is the workspace in which files of messages are stored.
type Folder interface {
	// Stat returns the file or folder at a path. Code: not_found.
	Stat(ctx context.Context, path string) (schemas.FileInfo, error)
	// Stage begins to store a file, which gets its name when it is complete.
	Stage(path string) Staged
}

// Staged is a file that is being stored in pieces.
type Staged interface {
	// Add appends a piece at the offset at. It is not the last piece.
	Add(ctx context.Context, at int64, piece []byte) error
	// End appends the last piece and gives the file its name. Code: conflict (a file of that name exists).
	End(ctx context.Context, at int64, piece []byte) error
	// Forget removes the pieces that were stored, if that is possible now.
	Forget(ctx context.Context)
}

// Workers returns a function that opens workspaces' files, which are accessed by workers.
func Workers(bus *streams.Bus) func(schemas.AccountID, schemas.WorkspaceFiles) Folder {
	return func(a schemas.AccountID, w schemas.WorkspaceFiles) Folder {
		return folder{&filesclient.Workspace{Bus: bus, Account: a, Files: w, Patience: patience}}
	}
}

type folder struct{ of *filesclient.Workspace }

func (f folder) Stat(ctx context.Context, path string) (schemas.FileInfo, error) {
	return f.of.Stat(ctx, path)
}

// Stage begins a file under a temporary name that is unique to this try, so that two processes that fetch the same file at once do not mix
// their pieces. Remains of dead processes are removed after a day, see [schemas.UploadLifetime].
func (f folder) Stage(path string) Staged {
	sum := sha256.Sum256([]byte(path))
	return &staged{of: f.of, to: path, at: schemas.UploadsFolder + "/" + schemas.NewID("in-"+hex.EncodeToString(sum[:4]))}
}

type staged struct {
	of     *filesclient.Workspace
	to, at string
	was    *schemas.FileInfo
}

func (s *staged) Add(ctx context.Context, at int64, piece []byte) error {
	r, _, err := s.of.Do(ctx, schemas.FileRequest{Op: schemas.FileAppend, Path: s.at, Offset: at}, piece)
	if err != nil {
		return err // earlier pieces must still be removed
	}
	s.was = r.File
	return nil
}

func (s *staged) End(ctx context.Context, at int64, piece []byte) error {
	if at == 0 { // the only piece: written in one step
		_, _, err := s.of.Do(ctx, schemas.FileRequest{Op: schemas.FileWrite, Path: s.to, IfNone: true}, piece)
		return err
	}
	if len(piece) > 0 {
		if err := s.Add(ctx, at, piece); err != nil {
			return err
		}
	}
	_, _, err := s.of.Do(ctx, schemas.FileRequest{
		Op: schemas.FileCommit, Path: s.at, To: s.to, Size: at + int64(len(piece)), Was: s.was, IfNone: true,
	}, nil)
	return err
}

// forgetWithin bounds the removal of abandoned files.
const forgetWithin = 5 * time.Second

func (s *staged) Forget(ctx context.Context) {
	if s.was == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetWithin)
	defer cancel()
	_ = s.of.Remove(ctx, s.at)
}
