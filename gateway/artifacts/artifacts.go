// Package artifacts serves the artifacts of calls: lists for conversations, and the bytes, with headers that keep a browser from executing
// them.
package artifacts

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Limits of a page of a list.
const (
	DefaultPage = 50
	MaxPage     = 200
)

// Options are the settings of [Artifacts].
type Options struct {
	Bus *streams.Bus
	// Stream takes a slot for a streaming request and returns its context, which ends when the request's key is revoked. Release frees the
	// slot. Code: exhausted.
	Stream func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) (ctx context.Context, release func(), err error)
}

// Artifacts has the HTTP handlers of artifacts. It is safe for concurrent use.
type Artifacts struct{ o Options }

// New returns the handlers.
func New(o Options) *Artifacts { return &Artifacts{o} }

// List is a page of the artifacts of a conversation, the oldest first.
type List struct {
	Artifacts []schemas.Artifact `json:"artifacts"`
	// Next is the last artifact of the page: request those after it with ?after=. Absent if there are no more.
	Next schemas.ArtifactID `json:"next,omitzero"`
}

// OfConversation serves a page of the artifacts of a conversation.
func (s *Artifacts) OfConversation(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "limit", "after")
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return err
	}
	conversation := schemas.ConversationID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
	if err := conversation.Validate(); err != nil {
		return err
	}
	after := schemas.ArtifactID(q.Text("after"))
	if after != "" {
		if err := after.Validate(); err != nil {
			return web.Rename(err, "after")
		}
	}
	found, more, err := streams.ListArtifacts(r.Context(), s.o.Bus, a, conversation, after, int(limit))
	if after != "" && errors.Is(err, schemas.ErrNotFound) {
		return web.Rename(err, "after")
	}
	if err != nil {
		return err
	}
	list := List{Artifacts: found}
	if more && len(found) > 0 {
		list.Next = found[len(found)-1].ID
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

func (s *Artifacts) find(r *http.Request, a schemas.AccountID) (streams.KeptArtifact, error) {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return streams.KeptArtifact{}, err
	}
	return streams.FindArtifact(r.Context(), s.o.Bus, a, schemas.ArtifactID(r.PathValue("id")))
}

// Get serves the bytes of an artifact, or a range of them.
func (s *Artifacts) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	k, err := s.find(r, a)
	if err != nil {
		return err
	}
	ctx, release, err := s.o.Stream(w, r, a)
	if err != nil {
		return err
	}
	defer release()
	h := w.Header()
	h.Set("ETag", `"`+k.Artifact.SHA256+`"`)
	h.Set("Content-Type", k.Artifact.MIMEType)
	h.Set("Content-Disposition", disposition(k.Artifact))
	// What commands have written never acts as a page of this origin: its type is not guessed, and if a browser shows it after all, then in a
	// sandbox without scripts, without an origin, and without anything to load.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, max-age=31536000, immutable") // the same id is the same bytes
	http.ServeContent(w, r, "", k.Artifact.Created, &reader{ctx: ctx, bus: s.o.Bus, account: a, kept: k})
	return nil
}

// disposition returns the Content-Disposition of an artifact: inline for types that cannot contain scripts, attachment for all others.
func disposition(a schemas.Artifact) string {
	how := "attachment"
	if schemas.ShownInline(a.MIMEType) {
		how = "inline"
	}
	if v := mime.FormatMediaType(how, map[string]string{"filename": a.Name}); v != "" {
		return v
	}
	return how
}

// Delete removes an artifact.
func (s *Artifacts) Delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	k, err := s.find(r, a)
	if err != nil {
		return err
	}
	if err := streams.DeleteArtifact(r.Context(), s.o.Bus, a, k.Artifact); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// reader reads an artifact, chunk by chunk.
type reader struct {
	ctx     context.Context //nolint:containedctx // that of the request: io.Reader has none
	bus     *streams.Bus
	account schemas.AccountID
	kept    streams.KeptArtifact
	at      int64
	have    []byte // a chunk
	number  int64  // of it, while there is one
}

var _ io.ReadSeeker = (*reader)(nil)

// Read implements [io.Reader].
func (f *reader) Read(p []byte) (int, error) {
	if f.at >= f.kept.Artifact.Size {
		return 0, io.EOF
	}
	number, offset := f.at/streams.ArtifactChunk, f.at%streams.ArtifactChunk
	if f.have == nil || number != f.number {
		chunk, err := streams.ReadArtifactChunk(f.ctx, f.bus, f.account, f.kept.Chunks[number])
		if err != nil {
			return 0, err
		}
		f.have, f.number = chunk, number
	}
	if offset >= int64(len(f.have)) {
		return 0, io.ErrUnexpectedEOF
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
		offset += f.kept.Artifact.Size
	}
	if offset < 0 {
		return 0, errors.New("before the beginning")
	}
	f.at = offset
	return offset, nil
}
