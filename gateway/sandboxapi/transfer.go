package sandboxapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// BinaryAnswer is the response to read_binary: a whole file.
type BinaryAnswer struct {
	ContentBase64 string `json:"content_base64"`
	MIMEType      string `json:"mime_type"`
	Size          int64  `json:"size"`
	SHA256        string `json:"sha256"`
}

// ReadBinary reads a whole file. A client that accepts application/octet-stream gets the bytes, any other gets JSON.
func (a *API) ReadBinary(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q ReadBinaryRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	name, err := checkFile("path", q.Path)
	if err != nil {
		return err
	}
	x, done, err := a.begin(w, r, c, "read_binary", q.common())
	if err != nil {
		return answered(err)
	}
	defer done()
	data, sum, err := x.readAll(r.Context(), name)
	x.end("ok", err)
	if err != nil {
		return err
	}
	if web.Accepts(r.Header, "application/octet-stream") {
		if err := web.HoldOf(r.Context()).Answer(int64(len(data))); err != nil {
			return err
		}
		h := w.Header()
		// What commands have written is never a page of this origin.
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", "attachment")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Length", strconv.Itoa(len(data)))
		h.Set("ETag", `"`+sum+`"`)
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(data) //nolint:gosec // no page: the headers above see to that; the client may have gone
		return nil
	}
	web.WriteJSON(w, http.StatusOK, BinaryAnswer{base64.StdEncoding.EncodeToString(data), typeOf(name, data), int64(len(data)), sum})
	return nil
}

// typeOf guesses a media type by the name, or else by the first bytes.
func typeOf(name string, data []byte) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return http.DetectContentType(data)
}

// readAll reads a file in pieces, one call for each, and compares the whole with the SHA-256 that came with the first. Codes: not_found,
// invalid, conflict (the file was changed meanwhile).
func (x *execution) readAll(ctx context.Context, name string) (data []byte, sum string, err error) {
	result, err := x.finished(x.bash(ctx, readPiece(name, 0), 0))
	if err != nil {
		return nil, "", err
	}
	head, text, _ := strings.Cut(result.Output.Stdout, "\n")
	var size int64
	if _, err := fmt.Sscanf(head, "file %d %64s", &size, &sum); err != nil {
		return nil, "", notRead(head)
	}
	if size > MaxBinary {
		return nil, "", schemas.Invalidf("path", "has %d bytes: the limit is %d; download it from /v1/workspaces/{id}/files", size, MaxBinary)
	}
	for {
		part, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(part) == 0 && int64(len(data)) < size {
			break // it was cut short, or something else printed
		}
		if data = append(data, part...); int64(len(data)) >= size {
			break
		}
		result, err := x.finished(x.bash(ctx, readPiece(name, int64(len(data))), 0))
		if err != nil {
			return nil, "", err
		}
		text = result.Output.Stdout
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
		return nil, "", fault(schemas.Conflict, "path", "the file was changed while it was read: read it again")
	}
	return data, sum, nil
}

// notRead returns the error for a file that was not read, from the word that [readPiece] printed.
func notRead(word string) error {
	switch word {
	case "missing":
		return fault(schemas.NotFound, "path", "there is no such file")
	case "directory":
		return schemas.Invalidf("path", "is a folder: name a file")
	case "outside":
		return schemas.Invalidf("path", "is a link that leads out of the workspace")
	case "other":
		return schemas.Invalidf("path", "is not a readable file")
	}
	return schemas.OpErrorf(schemas.Internal, "sandbox", "the sandbox says %s of the file", schemas.Quotable(word))
}

// WriteAnswer is the response to write.
type WriteAnswer struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
	ETag  string `json:"etag"` // sha256 of the content in hex, for if_match
}

// Write serves POST /v1/sandbox/write: it stores a file.
func (a *API) Write(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q WriteRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	name, err := checkFile("path", q.Path)
	if err != nil {
		return err
	}
	text, data, binary, err := q.content()
	if err != nil {
		return err
	}
	if q.IfMatch != "" && (len(q.IfMatch) != sha256.Size*2 || strings.Trim(q.IfMatch, "0123456789abcdef") != "") {
		return schemas.Invalidf("if_match", "is not an etag: send the sha256 of the content that is there, in hex")
	}
	if !binary && strings.IndexByte(text, 0) >= 0 {
		data, binary = []byte(text), true // the tool for text refuses it
		if len(data) > MaxTransfer {
			return schemas.Invalidf("content", "has NUL bytes and is %d bytes: of such content the limit is %d", len(data), MaxTransfer)
		}
	}
	x, done, err := a.begin(w, r, c, "write", q.common())
	if err != nil {
		return answered(err)
	}
	defer done()
	answer := WriteAnswer{Path: name, Bytes: len(text) + len(data)}
	if binary {
		answer.Bytes = len(data)
		answer.ETag, err = x.writeBinary(r.Context(), file{path: name, data: data, mode: "644", replace: true, ifMatch: q.IfMatch})
	} else {
		var result schemas.Result
		in := schemas.WriteInput{FilePath: name, Content: text, IfMatch: q.IfMatch}
		if result, err = x.finished(x.call(r.Context(), schemas.ToolWrite, in, "", 0)); err == nil {
			sum := sha256.Sum256([]byte(text))
			answer.ETag = hex.EncodeToString(sum[:])
			err = failure(result)
		}
	}
	x.end("ok", err)
	if err != nil {
		return aboutPath(err)
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}

func (x *execution) writeBinary(ctx context.Context, f file) (etag string, err error) {
	words, err := x.store(ctx, []file{f})
	if err != nil {
		return "", err
	}
	if etag, ok := strings.CutPrefix(words[0], "ok "); ok {
		return etag, nil
	}
	return "", notStored("path", words[0])
}

// store stores files by two calls: one carries all of them as text, the other makes files of it. It returns the line that [unpack] printed
// for each file.
func (x *execution) store(ctx context.Context, list []file) ([]string, error) {
	at := schemas.UploadsFolder + "/" + string(x.id(1)) // what is left of it there is removed after a day
	in := schemas.WriteInput{FilePath: at, Content: bundle(list)}
	if _, err := x.finished(x.call(ctx, schemas.ToolWrite, in, "", 0)); err != nil {
		return nil, err
	}
	result, err := x.finished(x.bash(ctx, unpack(at, list), 0))
	if err != nil {
		return nil, err
	}
	words := strings.Split(strings.TrimSuffix(result.Output.Stdout, "\n"), "\n")
	if len(words) != len(list) {
		return nil, schemas.OpErrorf(schemas.Internal, "sandbox", "the sandbox says nothing of some files: exit code %d, %s",
			result.Output.ExitCode, schemas.Quotable(result.Output.Stderr))
	}
	return words, nil
}

// notStored returns the error for a file that was not stored, from the word that [unpack] printed.
func notStored(field, word string) *schemas.Error {
	e := func(code schemas.Code, text string) *schemas.Error {
		return &schemas.Error{Code: code, Field: field, Message: text}
	}
	switch word {
	case "directory":
		return e(schemas.Invalid, "is a folder: name a file")
	case "folder":
		return e(schemas.Invalid, "has a part that is a file: its folder cannot be made")
	case "outside":
		return e(schemas.Invalid, "leads out of the workspace by a link")
	case "changed":
		return e(schemas.Conflict, "has changed, or is not there: its etag is not that of if_match; read it again")
	case "exists":
		return e(schemas.Conflict, "is there already: say overwrite to replace it")
	case "denied":
		return e(schemas.Denied, "cannot be written: the sandbox may not, or its disk is full")
	}
	return e(schemas.Internal, "was not stored")
}

// CopyAnswer is the response to copy, with the result of each file in the order of the request.
type CopyAnswer struct {
	Written int          `json:"written"`
	Results []CopyResult `json:"results"`
}

// CopyResult is the result of one file.
type CopyResult struct {
	Path  string         `json:"path"`
	Error *schemas.Error `json:"error,omitzero"`
}

// Copy stores files. A file that cannot be stored does not affect the others.
func (a *API) Copy(w http.ResponseWriter, r *http.Request, c Caller) error {
	tenant, session, err := a.place(r, c)
	if err != nil {
		return err
	}
	var q CopyRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	files, bad, err := q.files()
	if err != nil {
		return err
	}
	answer := CopyAnswer{Results: make([]CopyResult, len(files))}
	var good []file
	var places []int
	for i := range files {
		answer.Results[i] = CopyResult{Path: q.Files[i].Path, Error: bad[i]}
		if bad[i] == nil {
			answer.Results[i].Path = files[i].path
			good, places = append(good, files[i]), append(places, i)
		}
	}
	if len(good) > 0 {
		x, done, err := a.open(w, r, tenant, session, "copy", nil)
		if err != nil {
			return answered(err)
		}
		defer done()
		words, err := x.store(r.Context(), good)
		x.end("ok", err)
		if err != nil {
			return err
		}
		for n, word := range words {
			i := places[n]
			if strings.HasPrefix(word, "ok ") {
				answer.Written++
				continue
			}
			answer.Results[i].Error = notStored("files."+strconv.Itoa(i)+".path", word)
		}
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}
