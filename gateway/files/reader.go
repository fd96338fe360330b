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

// workspace is what the handlers ask about files.
type workspace struct{ filesclient.Workspace }

// Do is that of [filesclient.Workspace], with the status of a refusal that no repetition changes.
func (w *workspace) Do(ctx context.Context, q schemas.FileRequest, data []byte) (schemas.FileReply, []byte, error) {
	r, body, err := w.Workspace.Do(ctx, q, data)
	return r, body, final(err)
}

// final gives a refusal the status of one that clients do not repeat: a limit of the files is not one of requests, which passes by itself.
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

// tooLarge reports whether a file is refused because of its size.
func tooLarge(err error) bool {
	e := schemas.Public(err)
	return err != nil && e.Code == schemas.Invalid && e.Field == schemas.FieldFileSize
}

// reader reads one version of a file, piece by piece. A version that is replaced meanwhile ends it with an error of the code conflict.
type reader struct {
	ctx  context.Context //nolint:containedctx // that of the request: io.Reader has none
	of   *workspace
	file schemas.FileInfo
	at   int64  // where the next read is
	from int64  // where piece begins
	have []byte // a piece
}

var _ io.ReadSeeker = (*reader)(nil)

// Read reads on.
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

// Seek moves.
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
