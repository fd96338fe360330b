// Package skills serves the skills of accounts: records with a bundle of files each, which is stored before the record that names it.
package skills

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/membudget"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/skills"
	"github.com/sandjet/sandjet/streams"
)

const (
	// UploadBytes limits the memory of all uploads in a gateway beside their bodies, from unpacking until the record is written. If the
	// limit is reached uploads wait, and accounts take turns.
	UploadBytes = 2 * UploadBytesOfAccount
	// UploadBytesOfAccount limits that of one account: the largest upload fits.
	UploadBytesOfAccount = 80 << 20
	// storedWithin is the time limit from the first write of an upload to its record: far less than the time after which unreferenced
	// bundles are removed.
	storedWithin = streams.SkillsKept / 4
	// maxUpload is the largest request, in bytes: a tar, and what multipart adds.
	maxUpload = streams.MaxSkillTar + 1<<20
)

// Records stores the records of skills. It must be safe for concurrent use. A skill is found by its id or its name. If a revision other
// than 0 is given, the record must have it; otherwise the error is a conflict with the field If-Match.
type Records interface {
	List(ctx context.Context, a schemas.AccountID) ([]schemas.Skill, error)
	Get(ctx context.Context, a schemas.AccountID, id string) (schemas.Skill, uint64, error)
	// Admit reports whether the account may have a skill of that name, before its bundle is stored. Codes: conflict, exhausted.
	Admit(ctx context.Context, a schemas.AccountID, m schemas.SkillManifest, fresh bool) error
	Put(ctx context.Context, k schemas.Skill, fresh bool, revision uint64) (schemas.Skill, uint64, error)
	Remove(ctx context.Context, a schemas.AccountID, id string, revision uint64) error
}

// Options are the settings of [Skills].
type Options struct {
	Bus     *streams.Bus
	Records Records // nil: the routes answer unsupported
	// Most limits the bundles of an account, in bytes. 0: [schemas.MaxSkillsKept].
	Most int64
	// Stream takes a slot for a streaming request and returns its context, which ends when the request's key is revoked. Release frees the
	// slot. Code: exhausted.
	Stream func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) (ctx context.Context, release func(), err error)
}

// Skills has the HTTP handlers of skills. It is safe for concurrent use.
type Skills struct {
	o      Options
	memory *membudget.Budget
}

// New returns the handlers.
func New(o Options) *Skills { return &Skills{o, membudget.New(UploadBytes, UploadBytesOfAccount)} }

// List is the response with an account's skills.
type List struct {
	Skills []schemas.SkillDocument `json:"skills"`
}

// Deleted is the response to the deletion of a skill.
type Deleted struct {
	Deleted bool `json:"deleted"`
}

func (s *Skills) records() (Records, error) {
	if s.o.Records == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway keeps no skills")
	}
	return s.o.Records, nil
}

func pathID(r *http.Request) string { return strings.ToValidUTF8(r.PathValue("id"), "\uFFFD") }

// List serves the account's skills, sorted by name.
func (s *Skills) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := s.records()
	if err != nil {
		return err
	}
	list, err := records.List(r.Context(), a)
	if err != nil {
		return err
	}
	out := List{Skills: make([]schemas.SkillDocument, len(list))}
	for i, k := range list {
		out.Skills[i] = k.Document()
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (s *Skills) find(r *http.Request, a schemas.AccountID) (schemas.Skill, uint64, error) {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return schemas.Skill{}, 0, err
	}
	records, err := s.records()
	if err != nil {
		return schemas.Skill{}, 0, err
	}
	return records.Get(r.Context(), a, pathID(r))
}

// Get serves one skill.
func (s *Skills) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	k, revision, err := s.find(r, a)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, k, revision)
	return nil
}

func write(w http.ResponseWriter, code int, k schemas.Skill, revision uint64) {
	web.SetRevision(w.Header(), revision)
	web.WriteJSON(w, code, k.Document())
}

// Bundle serves the files of a skill as a tar, or a range of it.
func (s *Skills) Bundle(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	k, _, err := s.find(r, a)
	if err != nil {
		return err
	}
	ctx, release, err := s.o.Stream(w, r, a)
	if err != nil {
		return err
	}
	defer release()
	h := w.Header()
	h.Set("ETag", `"`+k.Digest+`"`)
	h.Set("Content-Type", "application/x-tar")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": k.Name + ".tar"}))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-cache")
	http.ServeContent(w, r, "", k.Updated, &reader{ctx: ctx, bus: s.o.Bus, skill: k})
	return nil
}

// Delete removes a skill. Its bundle is removed later, once no call can need it.
func (s *Skills) Delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	revision, err := web.Revision(r.Header)
	if err != nil {
		return err
	}
	records, err := s.records()
	if err != nil {
		return err
	}
	if err := records.Remove(r.Context(), a, pathID(r), revision); err != nil {
		return web.Precondition(err)
	}
	web.WriteJSON(w, http.StatusOK, Deleted{true})
	return nil
}

// Post adds a skill. Code conflict: there is one with its name.
func (s *Skills) Post(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return s.upload(w, r, a, "", true)
}

// Put adds a skill, or replaces the one with its name.
func (s *Skills) Put(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	return s.upload(w, r, a, pathID(r), false)
}

// upload stores the bundle of a request, then the record that refers to it. The process may die between any two steps: a bundle without a
// record is removed later, and a repeated request has the same result.
func (s *Skills) upload(w http.ResponseWriter, r *http.Request, a schemas.AccountID, id string, fresh bool) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	revision, err := web.Revision(r.Header)
	if err != nil {
		return err
	}
	records, err := s.records()
	if err != nil {
		return err
	}
	up, room, err := s.read(w, r, a)
	defer room.Release() // the tar is in memory until it is stored
	if err != nil {
		return err
	}
	name := up.skill.Name
	before, _, err := records.Get(r.Context(), a, cmp.Or(id, name))
	there := err == nil
	switch {
	case err != nil && !errors.Is(err, schemas.ErrNotFound):
		return err
	case id == "" || id == name || there && before.Name == name:
	case !there && strings.HasPrefix(id, schemas.SkillPrefix):
		return err // of another name, or without a record
	default:
		return schemas.Invalidf(skills.FileName, "says the name %q, and the request names %q: they must be the same",
			name, schemas.Quotable(id))
	}
	if err := records.Admit(r.Context(), a, up.skill.SkillManifest, fresh); err != nil {
		return err
	}
	if err := s.store(r.Context(), up.skill, up.tar); err != nil {
		return err
	}
	k, revision, err := records.Put(r.Context(), up.skill, fresh, revision)
	if err != nil {
		return web.Precondition(err)
	}
	w.Header().Set("Location", "/v1/skills/"+string(k.ID))
	status := http.StatusOK
	if !there {
		status = http.StatusCreated
	}
	write(w, status, k, revision)
	return nil
}

// store stores a bundle. Code exhausted: the account has no room for it.
func (s *Skills) store(ctx context.Context, k schemas.Skill, tar []byte) error {
	kept, err := streams.SkillBytes(ctx, s.o.Bus, k.Account, k.Digest)
	if err != nil {
		return err
	}
	most := cmp.Or(s.o.Most, schemas.MaxSkillsKept)
	if kept+k.Size > most {
		return schemas.Errorf(schemas.Exhausted,
			"the account keeps %d bytes of skills, and may keep %d: remove some. What was removed or replaced counts for about an hour more",
			kept, most)
	}
	// A bundle that is stored already is written again. Its age then begins again, and no cleaner removes it before its record exists.
	if err := s.o.Bus.Room(ctx, len(tar)); err != nil {
		return err
	}
	began := time.Now()
	if _, err := streams.StoreSkill(ctx, s.o.Bus, k.Account, tar); err != nil {
		return err
	}
	if time.Since(began) > storedWithin {
		return schemas.Errorf(schemas.Unavailable, "storing the skill took too long: send it again")
	}
	return nil
}

// upload is the parsed body of an upload.
type upload struct {
	skill schemas.Skill // without an id
	tar   []byte
}

// read reads and unpacks the bundle of a request, and reserves memory for it, which the caller must release.
func (s *Skills) read(w http.ResponseWriter, r *http.Request, a schemas.AccountID) (up upload, room *membudget.Room, err error) {
	kind, params, err := mime.ParseMediaType(cmp.Or(r.Header.Get("Content-Type"), "application/x-tar"))
	if err != nil {
		kind = "" // no one of those below
	}
	switch kind {
	case "application/x-tar", "application/tar", "application/gzip", "application/x-gzip", "application/x-gtar", "application/octet-stream",
		"multipart/form-data":
	default:
		return up, nil, web.WithStatus(http.StatusUnsupportedMediaType, schemas.Invalidf("",
			"the body must be a tar (application/x-tar, application/gzip) of the skill's folder, or its files as multipart/form-data"))
	}
	body, err := web.ReadBody(w, r, maxUpload, "a skill is small: keep large data elsewhere")
	if err != nil {
		return up, nil, err
	}
	if room, err = s.memory.Take(r.Context(), string(a), unpacked(body)); err != nil {
		return up, nil, err
	}
	up, err = unpack(a, kind == "multipart/form-data", params["boundary"], body)
	room.Shrink(int64(len(up.tar)))
	return up, room, err
}

// unpacked returns the most memory that unpacking a body takes beside the body itself: its files, the largest of them once more, and the
// tar that is made of them.
func unpacked(body []byte) int64 {
	const copies, small = 2, 64 << 10
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b}) { // it is compressed, and may be anything
		return UploadBytesOfAccount
	}
	size := int64(len(body)) + small
	return min(copies*size+min(size, 2*schemas.MaxSkillFile), UploadBytesOfAccount)
}

// unpack unpacks a body and returns the tar to store, with its metadata.
func unpack(a schemas.AccountID, form bool, boundary string, body []byte) (up upload, err error) {
	var b skills.Bundle
	if form {
		b, err = readParts(multipart.NewReader(bytes.NewReader(body), boundary))
	} else {
		b, err = skills.Read(bytes.NewReader(body))
	}
	if err != nil {
		return up, err
	}
	if up.tar, err = b.Tar(); err != nil {
		return up, err
	}
	up.skill = schemas.Skill{
		Account: a, SkillManifest: b.Manifest, Digest: skills.Digest(up.tar), Size: int64(len(up.tar)), Files: len(b.Files),
	}
	for _, f := range b.Files {
		up.skill.Bytes += int64(len(f.Content))
	}
	return up, nil
}

// readParts reads a bundle from the parts of a form; the file names are the paths.
func readParts(parts *multipart.Reader) (skills.Bundle, error) {
	var files []skills.File
	var content bytes.Buffer // it grows, and what is kept of it is as large as what was there
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return skills.Bundle{}, schemas.Invalidf("bundle", "is not multipart/form-data that can be read to its end")
		}
		_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if err != nil || params["filename"] == "" { // the part's own method would leave the folders out
			return skills.Bundle{}, schemas.Invalidf("bundle", "has a part without a filename: each part is one file, with its path as filename")
		}
		if len(files) > schemas.MaxSkillFiles {
			return skills.Bundle{}, schemas.Errorf(schemas.Exhausted, "the bundle has more than %d files", schemas.MaxSkillFiles)
		}
		content.Reset()
		if _, err := io.Copy(&content, io.LimitReader(p, schemas.MaxSkillFile+1)); err != nil { // one more is refused as too large
			return skills.Bundle{}, schemas.Invalidf("bundle", "is not multipart/form-data that can be read to its end")
		}
		files = append(files, skills.File{
			Path: params["filename"], Content: bytes.Clone(content.Bytes()), Executable: bytes.HasPrefix(content.Bytes(), []byte("#!")),
		})
	}
	if len(files) == 0 {
		return skills.Bundle{}, schemas.Invalidf("bundle", "has no files")
	}
	return skills.New(files)
}

// reader reads a bundle, chunk by chunk.
type reader struct {
	ctx    context.Context //nolint:containedctx // that of the request: io.Reader has none
	bus    *streams.Bus
	skill  schemas.Skill
	at     int64
	have   []byte // a chunk
	number int64  // of it, while there is one
}

var _ io.ReadSeeker = (*reader)(nil)

// Read implements [io.Reader].
func (f *reader) Read(p []byte) (int, error) {
	if f.at >= f.skill.Size {
		return 0, io.EOF
	}
	number, offset := f.at/streams.SkillChunk, f.at%streams.SkillChunk
	if f.have == nil || number != f.number {
		chunk, err := streams.ReadSkillChunk(f.ctx, f.bus, f.skill.Account, f.skill.Digest, f.skill.Size, number)
		if err != nil {
			return 0, err
		}
		f.have, f.number = chunk, number
	}
	n := copy(p, f.have[offset:])
	f.at += int64(n)
	return n, nil
}

// Seek implements [io.Seeker].
func (f *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.skill.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("%d is before the beginning", offset)
	}
	f.at = offset
	return offset, nil
}
