// Package files serves the files of workspaces to applications: streamed up and down through a worker that reaches them, without a run.
package files

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/filesclient"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Options are the settings of a [Files].
type Options struct {
	Bus *streams.Bus
	// Workspace finds a workspace of an account. Nil: everything is answered unsupported. Code: not_found.
	Workspace func(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.WorkspaceFiles, error)
	// Stream takes a slot for a streaming request and returns its context, which ends when the request's key is revoked. Release frees the
	// slot. Code: exhausted.
	Stream func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) (ctx context.Context, release func(), err error)
	// Transfers counts the memory of transfers, in bytes. Nil: one of their own, of [TransferBytes].
	Transfers *quota.Ledger
}

// Files has the HTTP handlers of the file plane. It is safe for concurrent use.
type Files struct {
	o         Options
	transfers *quota.Ledger
}

// New returns the handlers.
func New(o Options) *Files {
	return &Files{o, cmp.Or(o.Transfers, quota.NewLedger(TransferBytesOfAccount, TransferBytes))}
}

// Transfers returns the ledger that counts the memory of transfers, for other handlers that share it.
func (f *Files) Transfers() *quota.Ledger { return f.transfers }

func (f *Files) workspace(r *http.Request, a schemas.AccountID) (*workspace, error) {
	return f.named(r.Context(), a, schemas.WorkspaceID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")))
}

func (f *Files) named(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (*workspace, error) {
	if f.o.Workspace == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway serves no files")
	}
	w, err := f.o.Workspace(ctx, a, id)
	if err != nil {
		return nil, err
	}
	return &workspace{filesclient.Workspace{Bus: f.o.Bus, Account: a, Files: w}}, nil
}

// Do executes a request about the files of a workspace at a worker. It blocks as long as [filesclient.Workspace.Do] does. Codes: those of
// the reply, not_found, unavailable.
func (f *Files) Do(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID, q schemas.FileRequest) (schemas.FileReply, error) {
	of, err := f.named(ctx, a, id)
	if err != nil {
		return schemas.FileReply{}, err
	}
	reply, _, err := of.Workspace.Do(ctx, q, nil)
	return reply, err
}

// pathOf returns the path of the file that a request's path names. Code: invalid.
func pathOf(r *http.Request) (string, error) {
	path := r.PathValue("path")
	if strings.Trim(path, "/") == "" {
		return "", schemas.Invalidf("path", "must not be empty: name a file below the workspace")
	}
	return checkPath(path)
}

func checkPath(path string) (string, error) {
	if path != strings.ToValidUTF8(path, "") || len(path) > schemas.MaxFilePath {
		return "", schemas.Invalidf("path", "is UTF-8 of at most %d bytes", schemas.MaxFilePath)
	}
	return path, nil
}

// Get serves a file, or a range of it.
func (f *Files) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	file, err := of.Stat(r.Context(), path)
	if err != nil {
		return err
	}
	switch file.Type {
	case schemas.TypeFile:
	case schemas.TypeDirectory:
		return schemas.Invalidf("path", "is a folder: list it with /v1/workspaces/{id}/files?path=")
	default:
		return schemas.Invalidf("path", "is a %s and no file", file.Type)
	}
	ctx, release, err := f.o.Stream(w, r, a)
	if err != nil {
		return err
	}
	defer release()
	h := w.Header()
	h.Set("ETag", `"`+file.ETag+`"`)
	// What commands have written is never a page of this origin.
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-cache")
	http.ServeContent(w, r, "", file.Modified, &reader{ctx: ctx, of: of, file: file})
	return nil
}

// Listing is a page of a folder's entries.
type Listing struct {
	Entries []schemas.FileInfo `json:"entries"`
	More    bool               `json:"more"` // there are more entries: request them with ?after= the last path
	// Unnamed is how many entries are left out because their names are not UTF-8.
	Unnamed int `json:"unnamed,omitzero"`
}

// List serves a page of a folder's entries.
func (f *Files) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "path", "recursive", "after", "limit")
	if err != nil {
		return err
	}
	recursive, err := q.Flag("recursive")
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", schemas.MaxFilesPage, 1, schemas.MaxFilesPage)
	if err != nil {
		return err
	}
	path, err := checkPath(q.Values.Get("path"))
	if err != nil {
		return err
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	reply, _, err := of.Do(r.Context(), schemas.FileRequest{
		Op: schemas.FileList, Path: path, Recursive: recursive, After: q.Values.Get("after"), Limit: int(limit),
	}, nil)
	if err != nil {
		return err
	}
	l := Listing{Entries: reply.Entries, More: reply.More, Unnamed: reply.Unnamed}
	if l.Entries == nil {
		l.Entries = []schemas.FileInfo{}
	}
	web.WriteJSON(w, http.StatusOK, l)
	return nil
}

// Put stores a file.
func (f *Files) Put(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	if strings.HasSuffix(path, "/") {
		return schemas.Invalidf("path", "ends in /: make folders with POST /v1/workspaces/{id}/mkdir")
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	u, err := uploadOf(r, of, path)
	if err != nil {
		return err
	}
	ctx, release, err := f.o.Stream(w, r, a)
	if err != nil {
		return err
	}
	defer release()
	held := f.memory(a)
	defer held.release()
	if err := held.begin(w, uploadBytes); err != nil {
		return err
	}
	t, err := u.take(ctx, w, r.Body)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the key has ended, or the client is gone
	}
	if err != nil {
		return precondition(err, u.ifTag != "" || u.ifNone)
	}
	h := w.Header()
	if !t.complete {
		h.Set("Upload-Offset", strconv.FormatInt(t.file.Size, 10))
		web.WriteJSON(w, http.StatusAccepted, Upload{Offset: t.file.Size})
		return nil
	}
	h.Set("ETag", `"`+t.file.ETag+`"`)
	if u.offset == 0 {
		h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(t.sum)+":")
	}
	status := http.StatusOK
	if t.created {
		status = http.StatusCreated
	}
	web.WriteJSON(w, status, t.file)
	return nil
}

// precondition gives a conflict the status 412 if the request was conditional.
func precondition(err error, conditional bool) error {
	if conditional && errors.Is(err, schemas.ErrConflict) {
		return web.WithStatus(http.StatusPreconditionFailed, err)
	}
	return err
}

// Upload is the response with the number of bytes of an upload that were stored.
type Upload struct {
	Offset int64 `json:"offset"` // bytes that are stored: continue from there
}

// staged returns the workspace and the path at which an upload is stored until it is complete.
func (f *Files) staged(r *http.Request, a schemas.AccountID) (*workspace, string, error) {
	id := r.PathValue("upload")
	if err := checkUpload(id); err != nil {
		return nil, "", err
	}
	of, err := f.workspace(r, a)
	return of, schemas.UploadsFolder + "/n-" + id, err
}

// GetUpload serves the number of bytes of an upload that were stored.
func (f *Files) GetUpload(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	of, at, err := f.staged(r, a)
	if err != nil {
		return err
	}
	file, err := of.Stat(r.Context(), at)
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.OpErrorf(schemas.NotFound, "upload", "there is no such upload: it was completed, or it waited longer than %s",
			schemas.UploadLifetime)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Upload-Offset", strconv.FormatInt(file.Size, 10))
	web.WriteJSON(w, http.StatusOK, Upload{Offset: file.Size})
	return nil
}

// DeleteUpload removes an incomplete upload.
func (f *Files) DeleteUpload(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	of, at, err := f.staged(r, a)
	if err != nil {
		return err
	}
	if err := of.Remove(r.Context(), at); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Delete removes a file, or a folder.
func (f *Files) Delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "recursive")
	if err != nil {
		return err
	}
	recursive, err := q.Flag("recursive")
	if err != nil {
		return err
	}
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	tag, none, err := conditions(r.Header)
	if err == nil && none {
		err = schemas.Invalidf("If-None-Match", "says nothing about what is removed: use If-Match")
	}
	if err != nil {
		return err
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	for ask := (schemas.FileRequest{Op: schemas.FileRemove, Path: path, Recursive: recursive, If: tag}); ; ask.If, ask.Again = "", true {
		reply, _, err := of.Do(r.Context(), ask, nil)
		if err != nil {
			return precondition(err, tag != "")
		}
		if !reply.More {
			break
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// PostMkdir makes a folder and its parents. It succeeds if the folder exists.
func (f *Files) PostMkdir(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var body struct {
		Path string `json:"path"`
	}
	return f.change(w, r, a, &body, func() schemas.FileRequest { return schemas.FileRequest{Op: schemas.FileMkdir, Path: body.Path} })
}

// PostMove renames a file or folder. An existing file at the destination is replaced only if overwrite is set.
func (f *Files) PostMove(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var body struct {
		From      string `json:"from"`
		To        string `json:"to"`
		Overwrite bool   `json:"overwrite"`
	}
	return f.change(w, r, a, &body, func() schemas.FileRequest {
		return schemas.FileRequest{Op: schemas.FileMove, Path: body.From, To: body.To, IfNone: !body.Overwrite}
	})
}

// change decodes a JSON body, executes the change that ask returns, and responds with the resulting file or folder.
func (f *Files) change(w http.ResponseWriter, r *http.Request, a schemas.AccountID, body any, ask func() schemas.FileRequest) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	of, err := f.workspace(r, a)
	if err != nil {
		return err
	}
	if err := web.DecodeBody(w, r, false, body); err != nil {
		return err
	}
	q := ask()
	if q.Path == "" {
		return schemas.Invalidf(map[schemas.FileOp]string{schemas.FileMkdir: "path", schemas.FileMove: "from"}[q.Op], "must not be empty")
	}
	if len(q.Path) > schemas.MaxFilePath || len(q.To) > schemas.MaxFilePath {
		return schemas.Invalidf("path", "has more than %d bytes", schemas.MaxFilePath)
	}
	reply, _, err := of.Do(r.Context(), q, nil)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, reply.File)
	return nil
}
