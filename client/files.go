package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// uploadPart is how much of a file is sent with one request, and held in memory meanwhile.
const uploadPart = 8 << 20

// FilesQuery selects entries of a folder.
type FilesQuery struct {
	Path      string // empty: the root
	Recursive bool
	After     string // the path of the last entry before
	Limit     int    // at most 1000; 0: 1000
}

// FileList is a page of a folder's entries, sorted by the bytes of their paths.
type FileList struct {
	Entries []schemas.FileInfo `json:"entries"`
	More    bool               `json:"more"` // ask again with After the last path
	Unnamed int                `json:"unnamed,omitzero"`
}

func workspacePath(w schemas.WorkspaceID) string {
	return "/v1/workspaces/" + url.PathEscape(string(w))
}

// Files reads and writes the files of a workspace.
type Files struct {
	transport

	path string
}

// Files returns access to the files of a workspace. It sends no request.
func (c *Client) Files(w schemas.WorkspaceID) Files { return Files{c.transport(), workspacePath(w)} }

// List returns a page of a folder's entries. Codes: not_found, invalid (it is not a folder), exhausted (it has more than 10,000 entries),
// unavailable (no worker reaches the files).
func (c Files) List(ctx context.Context, q FilesQuery) (list FileList, err error) {
	values := url.Values{}
	for name, v := range map[string]string{"path": q.Path, "after": q.After} {
		if v != "" {
			values.Set(name, v)
		}
	}
	if q.Recursive {
		values.Set("recursive", "true")
	}
	if q.Limit != 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	err = c.keepAsking(ctx, http.MethodGet, withQuery(c.path+"/files", values), nil, &list)
	return list, err
}

// UploadOptions are the conditions and settings of an upload.
type UploadOptions struct {
	// IfMatch is the ETag that the file must have. Empty: any, or none.
	IfMatch string
	// IfNoneMatch: there must be no such file.
	IfNoneMatch bool
	// ID identifies the upload, by at most 64 letters, digits, - and _: an upload that was interrupted within the last day, also in
	// another process, is continued. The reader must provide the same bytes as then. Empty: an interrupted upload is discarded.
	ID string
	// Progress is called with the bytes that are stored so far. Nil: no progress is reported.
	Progress func(stored int64)
}

// Upload stores the content of r as a file, and makes its folders. It holds 8 MiB of it in memory. The file appears when it is complete.
// After a temporary failure it continues from where it was, until ctx ends. Codes: conflict (a condition does not hold), invalid (also if
// the file is too large), exhausted (the workspace has no room), unavailable.
func (c Files) Upload(ctx context.Context, path string, r io.Reader, o UploadOptions) (
	f schemas.FileInfo, err error,
) {
	header := http.Header{}
	if o.IfMatch != "" {
		header.Set("If-Match", `"`+o.IfMatch+`"`)
	}
	if o.IfNoneMatch {
		header.Set("If-None-Match", "*")
	}
	header.Set("Content-Type", "application/octet-stream")
	part, id, from := make([]byte, uploadPart), cmp.Or(o.ID, schemas.NewID("u")), int64(0)
	if o.ID != "" {
		if from, err = c.stored(ctx, o.ID); err != nil {
			return f, err
		}
	}
	for at := int64(0); ; {
		n, err := io.ReadFull(r, part)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			if o.ID == "" && at > 0 {
				c.forgetUpload(ctx, id)
			}
			return f, fmt.Errorf("read what is uploaded: %w", err)
		}
		if !last && at+int64(n) <= from { // it is there
			at += int64(n)
			continue
		}
		values := url.Values{}
		if at > 0 || !last {
			values = url.Values{"upload": {id}, "offset": {strconv.FormatInt(at, 10)}, "complete": {strconv.FormatBool(last)}}
		}
		to := withQuery(c.at(path), values)
		_, b, err := c.answer(ctx, forever, http.MethodPut, to, part[:n], header)
		if err == nil {
			err = decodeAnswer("PUT "+to, b, &f)
		}
		if err != nil {
			if o.ID == "" && len(values) > 0 { // some of the part may be stored
				c.forgetUpload(ctx, id)
			}
			return f, err
		}
		if at += int64(n); o.Progress != nil {
			o.Progress(at)
		}
		if last {
			return f, nil
		}
	}
}

// stored returns how many bytes of an upload are stored.
func (c Files) stored(ctx context.Context, id string) (int64, error) {
	var u struct {
		Offset int64 `json:"offset"`
	}
	err := c.keepAsking(ctx, http.MethodGet, c.path+"/uploads/"+url.PathEscape(id), nil, &u)
	if schemas.CodeOf(err) == schemas.NotFound {
		return 0, nil
	}
	return u.Offset, err
}

// at returns the URL path of a file or folder.
func (c Files) at(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return c.path + "/files/" + strings.Join(parts, "/")
}

// forgetUpload removes the stored part of an upload. If that fails, the server removes it within a day.
func (c Files) forgetUpload(ctx context.Context, id string) {
	if ctx.Err() != nil {
		return
	}
	_ = c.exchange(ctx, 0, http.MethodDelete, c.path+"/uploads/"+url.PathEscape(id), nil, nil)
}

// Download writes a file to out and returns its size in bytes. If the connection breaks it continues from there, with the same version of
// the file. Codes: not_found, invalid (it is not a file), conflict (it was replaced meanwhile), unavailable.
func (c Files) Download(ctx context.Context, path string, out io.Writer) (n int64, err error) {
	d := download{t: c.transport, path: c.at(path), out: &written{w: out}}
	err = d.all(ctx)
	return d.at, err
}

type download struct {
	t    transport
	path string
	out  *written
	at   int64
	etag string // of the version that is being read

	disposition string // the Content-Disposition of the response
}

// once continues the download over one connection.
func (d *download) once(ctx context.Context) error {
	header := http.Header{}
	if d.etag != "" {
		header.Set("If-Match", d.etag)
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.at))
	}
	resp, err := d.t.do(ctx, http.MethodGet, d.path, nil, header)
	if err != nil {
		if ctx.Err() == nil && schemas.CodeOf(err) == schemas.Unavailable {
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	switch resp.StatusCode {
	case http.StatusOK, http.StatusPartialContent:
	case http.StatusPreconditionFailed:
		return schemas.OpErrorf(schemas.Conflict, "download", "the file was replaced while it was read: ask again")
	case http.StatusRequestedRangeNotSatisfiable:
		return nil // nothing was left to read
	default:
		body, _ := io.ReadAll(io.LimitReader(resp.Body, mostAnswer)) // the status says enough
		err := problem(resp.StatusCode, body)
		if passing(resp.StatusCode) && !concernsRequest(err) {
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		return err
	}
	d.etag, d.disposition = resp.Header.Get("ETag"), resp.Header.Get("Content-Disposition")
	n, err := io.Copy(d.out, resp.Body)
	d.at += n
	switch {
	case d.out.err != nil:
		return fmt.Errorf("write the file: %w", d.out.err)
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// Remove removes a file or folder. A folder that is not empty is removed only if recursive is set. Codes: not_found, conflict.
func (c Files) Remove(ctx context.Context, path string, recursive bool) error {
	values := url.Values{}
	if recursive {
		values.Set("recursive", "true")
	}
	return c.keepAsking(ctx, http.MethodDelete, withQuery(c.at(path), values), nil, nil)
}

// Move renames a file or folder. Codes: not_found, conflict (the destination exists, and overwrite is false).
func (c Files) Move(ctx context.Context, from, to string, overwrite bool) (f schemas.FileInfo, err error) {
	err = c.postOnce(ctx, c.path+"/move", map[string]any{"from": from, "to": to, "overwrite": overwrite}, &f)
	return f, err
}

// MakeFolder makes a folder and its parents. It succeeds if the folder exists.
func (c Files) MakeFolder(ctx context.Context, path string) (f schemas.FileInfo, err error) {
	err = c.keepAsking(ctx, http.MethodPost, c.path+"/mkdir", map[string]any{"path": path}, &f)
	return f, err
}

// DownloadArchive writes all files and folders below a folder ("" is the root) to out, as a tar, and returns its size in bytes. It is not
// resumed: after an error the archive is incomplete. Codes: not_found, invalid (it is not a folder), exhausted (it has more than 10,000
// entries), unavailable.
func (c Files) DownloadArchive(ctx context.Context, folder string, out io.Writer) (n int64, err error) {
	path := withQuery(c.path+"/archive", url.Values{"path": {folder}})
	resp, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, mostAnswer)) // the status says enough
		return 0, problem(resp.StatusCode, body)
	}
	if n, err = io.Copy(out, resp.Body); err != nil {
		return n, schemas.Wrap(schemas.Unavailable, "archive", "the archive broke off", err)
	}
	return n, nil
}

// Unpacked says what was written from an archive.
type Unpacked struct {
	Files   int    `json:"files"`
	Folders int    `json:"folders"` // entries of their own
	Bytes   int64  `json:"bytes"`
	Last    string `json:"last,omitzero"` // the path of the last entry
}

// UploadArchive unpacks a tar, optionally compressed with gzip, into a folder ("" is the root), which is made if needed. Existing files
// are replaced. The archive is sent once; after an error it can be sent again. Codes: invalid (an entry that is not accepted, or an
// incomplete archive), exhausted, unavailable.
func (c Files) UploadArchive(ctx context.Context, folder string, r io.Reader) (u Unpacked, err error) {
	path := withQuery(c.path+"/archive", url.Values{"path": {folder}})
	resp, err := c.send(ctx, http.MethodPut, path, r, http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return u, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := readAnswer(resp.Body)
	if err != nil {
		return u, err
	}
	if resp.StatusCode != http.StatusOK {
		return u, problem(resp.StatusCode, body)
	}
	return u, decodeAnswer("PUT "+path, body, &u)
}
