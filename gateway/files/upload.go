package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/filesclient"
	"github.com/sandjet/sandjet/schemas"
)

// pieceWithin is how long the next [schemas.MaxFileChunk] bytes of a body may take: slower clients are dropped.
const pieceWithin = time.Minute

// upload is a file that is being received.
type upload struct {
	to     *workspace
	path   string // where it goes
	staged string // where it waits for the rest
	named  bool   // the client resumes it after an interruption
	ifTag  string
	ifNone bool
	offset int64  // where the body begins
	last   bool   // nothing follows the body
	want   []byte // the SHA-256 that the client announces; nil: none

	executable *bool // of a file of an archive, with its time
	modified   *time.Time
}

// uploadOf parses the parameters and headers of an upload. Code: invalid.
func uploadOf(r *http.Request, to *workspace, path string) (u upload, err error) {
	u = upload{to: to, path: path, last: true}
	q, err := web.ParseQuery(r.URL.RawQuery, "upload", "offset", "complete")
	if err != nil {
		return u, err
	}
	if id := q.Text("upload"); id != "" {
		if err := checkUpload(id); err != nil {
			return u, err
		}
		u.named, u.staged = true, schemas.UploadsFolder+"/n-"+id
	} else {
		u.staged = schemas.UploadsFolder + "/" + schemas.NewID("u")
		if q.Values.Has("offset") || q.Values.Has("complete") {
			return u, schemas.Invalidf("upload", "must be given with offset and complete: an id of your choice, by which the upload continues")
		}
	}
	if u.offset, err = q.Integer("offset", 0, 0, schemas.MaxFileSize); err != nil {
		return u, err
	}
	if q.Values.Has("complete") {
		if u.last, err = q.Flag("complete"); err != nil {
			return u, err
		}
	}
	if u.offset+max(0, r.ContentLength) > schemas.MaxFileSize {
		return u, web.WithStatus(http.StatusRequestEntityTooLarge,
			schemas.Invalidf("", "the file has more than %d bytes, the most of one file", schemas.MaxFileSize))
	}
	if u.ifTag, u.ifNone, err = conditions(r.Header); err != nil {
		return u, err
	}
	if u.want, err = digestOf(r.Header); err == nil && u.want != nil && u.offset > 0 {
		err = schemas.Invalidf("Content-Digest", "is not checked when an upload continues: leave it out")
	}
	return u, err
}

// checkUpload validates the id of an upload. Code: invalid.
func checkUpload(id string) error {
	const most = 64
	word := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if len(id) > most || strings.ContainsFunc(id, func(r rune) bool { return !word(r) }) {
		return schemas.Invalidf("upload", "is not an id: at most %d letters, digits, - and _", most)
	}
	return nil
}

// conditions parses If-Match and If-None-Match of a change: the former is one ETag or "*", the latter "*" alone. Code: invalid.
func conditions(h http.Header) (tag string, none bool, err error) {
	if v := h.Get("If-None-Match"); v != "" {
		if v != "*" {
			return "", false, schemas.Invalidf("If-None-Match", "of a change is * alone: it is refused where there is a file")
		}
		none = true
	}
	v := h.Get("If-Match")
	if v == "" || v == "*" {
		return v, none, nil
	}
	tag, ok := strings.CutPrefix(v, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	if !ok || !closed || strings.Contains(tag, `"`) {
		return "", false, schemas.Invalidf("If-Match", "is one ETag in quotes, or *")
	}
	return tag, none, nil
}

// digestOf returns the SHA-256 in Content-Digest (RFC 9530); nil if there is none. Other algorithms are ignored. Code: invalid.
func digestOf(h http.Header) ([]byte, error) {
	for _, line := range h.Values("Content-Digest") {
		for part := range strings.SplitSeq(line, ",") {
			value, ok := strings.CutPrefix(strings.TrimSpace(part), "sha-256=:")
			if !ok {
				continue
			}
			value, ok = strings.CutSuffix(value, ":")
			sum, err := base64.StdEncoding.DecodeString(value)
			if !ok || err != nil || len(sum) != sha256.Size {
				return nil, schemas.Invalidf("Content-Digest", "is not a SHA-256: sha-256=:BASE64:")
			}
			return sum, nil
		}
	}
	return nil, nil
}

// taken is the result of an upload whose body was stored.
type taken struct {
	file     schemas.FileInfo // of the file, or of the stored part of the upload
	created  bool
	complete bool
	sum      []byte // of the body
}

// take reads the body and stores it. Its memory is bounded by one piece. An upload that cannot be resumed is removed after a failure.
func (u upload) take(ctx context.Context, w http.ResponseWriter, body io.Reader) (t taken, err error) {
	rc := http.NewResponseController(w)
	sum := sha256.New()
	piece := make([]byte, schemas.MaxFileChunk)
	for at := u.offset; ; {
		_ = rc.SetReadDeadline(time.Now().Add(pieceWithin)) // a writer without deadlines, as in tests, is fine
		n, rerr := fill(body, piece)
		sum.Write(piece[:n])
		ended := errors.Is(rerr, io.EOF)
		switch {
		case rerr != nil && !ended:
			return t, u.brokenOff(ctx, at, piece[:n], rerr)
		case at+int64(n) > schemas.MaxFileSize:
			u.forget(ctx)
			return t, web.WithStatus(http.StatusRequestEntityTooLarge,
				schemas.Invalidf("", "the file has more than %d bytes, the most of one file", schemas.MaxFileSize))
		case ended:
			if err := u.check(sum); err != nil {
				u.forget(ctx)
				return t, err
			}
			return u.end(ctx, at, piece[:n], sum)
		}
		if _, err := u.add(ctx, at, piece); err != nil {
			return t, err
		}
		at += int64(n)
	}
}

// fill reads until the piece is full. The error is io.EOF only at the end of the body; for a body that was cut off it is
// io.ErrUnexpectedEOF. io.ReadFull does not distinguish the two.
func fill(body io.Reader, piece []byte) (n int, err error) {
	for n < len(piece) && err == nil {
		var m int
		m, err = body.Read(piece[n:])
		n += m
	}
	if n == len(piece) {
		err = nil // what it is comes with the next read
	}
	return n, err
}

func (u upload) check(sum hash.Hash) error {
	if u.want != nil && !bytes.Equal(u.want, sum.Sum(nil)) {
		return schemas.Invalidf("Content-Digest", "is not that of the body: it was changed on its way")
	}
	return nil
}

// add appends a piece to the stored part of the upload.
func (u upload) add(ctx context.Context, at int64, piece []byte) (*schemas.FileInfo, error) {
	r, _, err := u.to.Do(ctx, schemas.FileRequest{Op: schemas.FileAppend, Path: u.staged, Offset: at}, piece)
	if err == nil && r.File == nil {
		err = schemas.OpErrorf(schemas.Internal, "files", "the worker describes nothing")
	}
	if err != nil && (!u.named || tooLarge(err)) {
		u.forget(ctx)
	}
	return r.File, err
}

// end stores the last piece and, if the upload is complete, moves the file to its path.
func (u upload) end(ctx context.Context, at int64, piece []byte, sum hash.Hash) (t taken, err error) {
	t = taken{complete: u.last, sum: sum.Sum(nil)}
	var r schemas.FileReply
	switch {
	case at == 0 && !u.named: // it is all there
		r, _, err = u.to.Do(ctx, schemas.FileRequest{
			Op: schemas.FileWrite, Path: u.path, If: u.ifTag, IfNone: u.ifNone, Executable: u.executable, Modified: u.modified,
		}, piece)
	default:
		var staged *schemas.FileInfo
		if staged, err = u.add(ctx, at, piece); err != nil || !u.last {
			r.File = staged
			break
		}
		r, _, err = u.to.Do(ctx, schemas.FileRequest{
			Op: schemas.FileCommit, Path: u.staged, To: u.path, Size: at + int64(len(piece)), Was: staged, If: u.ifTag, IfNone: u.ifNone,
			Executable: u.executable, Modified: u.modified,
		}, nil)
		if err != nil && !u.named {
			u.forget(ctx)
		}
	}
	if err == nil && r.File == nil {
		err = schemas.OpErrorf(schemas.Internal, "files", "the worker describes nothing")
	}
	if err != nil {
		return t, err
	}
	t.file, t.created = *r.File, r.Created
	return t, nil
}

// brokenOff stores the bytes received so far if the client can resume the upload, and otherwise removes it.
func (u upload) brokenOff(ctx context.Context, at int64, piece []byte, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), filesclient.AnswerWithin)
	defer cancel()
	if !u.named {
		u.forget(ctx)
	} else if len(piece) > 0 {
		_, _ = u.add(ctx, at, piece) // the client asks how much there is
	}
	return schemas.Wrap(schemas.Invalid, "files", "the body does not arrive whole", err)
}

// forget removes the stored part of the upload. If that fails, it is removed later, with another upload.
func (u upload) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), filesclient.AnswerWithin)
	defer cancel()
	_ = u.to.Remove(ctx, u.staged)
}
