package files

import (
	"context"
	"errors"
	"io"

	"github.com/sandjet/sandjet/internal/filesclient"
	"github.com/sandjet/sandjet/schemas"
)

// workspace is what the handlers ask about files.
type workspace = filesclient.Workspace

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
