package files

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/filesclient"
	"github.com/sandjet/sandjet/schemas"
)

// workspace executes the handlers' requests about files.
type workspace struct{ filesclient.Workspace }

// Do is [filesclient.Workspace.Do], with HTTP statuses that show which errors a retry does not change.
func (w *workspace) Do(ctx context.Context, q schemas.FileRequest, data []byte) (schemas.FileReply, []byte, error) {
	r, body, err := w.Workspace.Do(ctx, q, data)
	return r, body, final(err)
}

// final gives an error the status 507 or 413 if it is about a limit of the files. Clients retry after a 429, which is for limits of
// requests.
func final(err error) error {
	switch e := schemas.Public(err); {
	case err == nil:
		return nil
	case e.Code == schemas.Exhausted:
		return web.WithStatus(http.StatusInsufficientStorage, err)
	case tooLarge(err):
		return web.WithStatus(http.StatusRequestEntityTooLarge, err)
	}
	return err
}

// tooLarge reports whether a file was rejected because of its size.
func tooLarge(err error) bool {
	e := schemas.Public(err)
	return err != nil && e.Code == schemas.Invalid && e.Field == schemas.FieldFileSize
}

// reader reads one version of a file, piece by piece. If the file is replaced meanwhile, it fails with a conflict.
type reader struct {
	ctx  context.Context //nolint:containedctx // that of the request: io.Reader has none
	of   *workspace
	file schemas.FileInfo
	at   int64  // where the next read is
	from int64  // where piece begins
	have []byte // a piece
}

var _ io.ReadSeeker = (*reader)(nil)

// Read implements [io.Reader].
func (f *reader) Read(p []byte) (int, error) {
	if f.at >= f.file.Size {
		return 0, io.EOF
	}
	if f.at < f.from || f.at >= f.from+int64(len(f.have)) {
		r, piece, err := f.of.Do(f.ctx, schemas.FileRequest{
			Op: schemas.FileRead, Path: f.file.Path, Offset: f.at, Length: schemas.MaxFileChunk, If: f.file.ETag,
		}, nil)
		if err != nil {
			return 0, err
		}
		if r.File == nil || len(piece) == 0 {
			return 0, io.ErrUnexpectedEOF
		}
		f.from, f.have = f.at, piece
	}
	n := copy(p, f.have[f.at-f.from:])
	f.at += int64(n)
	return n, nil
}

// Seek implements [io.Seeker].
func (f *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.file.Size
	}
	if offset < 0 {
		return 0, errors.New("before the beginning")
	}
	f.at = offset
	return offset, nil
}
