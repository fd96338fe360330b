package e2b

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// envdVersion is the version reported to clients: they use its features, and refuse those of later versions by themselves. Since 0.5.7
// they upload files as raw bodies, since 0.6.2 with metadata, which is not stored here.
const envdVersion = "0.5.7"

// sandbox is the response to a create or connect.
type sandbox struct {
	SandboxID       string  `json:"sandboxID"`
	TemplateID      string  `json:"templateID"`
	ClientID        string  `json:"clientID"`
	EnvdVersion     string  `json:"envdVersion"`
	EnvdAccessToken string  `json:"envdAccessToken,omitzero"`
	TrafficToken    string  `json:"trafficAccessToken,omitzero"` // equal to EnvdAccessToken; in E2B's cloud it gives access to ports
	Domain          *string `json:"domain"`                      // null: the client's own
}

// listed is a sandbox in lists and details.
type listed struct {
	sandbox

	StartedAt  time.Time         `json:"startedAt"`
	EndAt      time.Time         `json:"endAt"`
	State      string            `json:"state"`
	CPUCount   int               `json:"cpuCount"`
	MemoryMB   int64             `json:"memoryMB"`
	DiskSizeMB int64             `json:"diskSizeMB"`
	Metadata   map[string]string `json:"metadata"`
}

// controlPlane serves E2B's API for sandboxes.
type controlPlane struct{ *base }

// create makes a sandbox. If one was made with the same Idempotency-Key, it returns that one.
func (f *controlPlane) create(w http.ResponseWriter, r *http.Request, a schemas.AccountID, key string) error {
	body, err := web.ReadBody(w, r, schemas.MaxRequest, "send fewer variables")
	if err != nil {
		return err
	}
	lease, life, err := decodeCreate(body, f.Network)
	if err != nil {
		return err
	}
	id, err := newSandboxID(r.Header.Get("Idempotency-Key"), a)
	if err != nil {
		return err
	}
	lease.Expires = f.Now().Add(life).UTC().Truncate(time.Millisecond)
	done, err := f.TakeWait(w, a)
	if err != nil {
		return err
	}
	defer done()
	s, err := f.Sessions.Make(r.Context(), a, id, lease)
	if err != nil {
		return err
	}
	shown, err := f.shown(s, a, key)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusCreated, shown.sandbox)
	return nil
}

const maxIdempotencyKey = 255

// newSandboxID returns a random sandbox id, or the one that is derived from an Idempotency-Key and the account.
func newSandboxID(key string, a schemas.AccountID) (string, error) {
	if len(key) > maxIdempotencyKey {
		return "", schemas.Invalidf("Idempotency-Key", "has more than %d bytes", maxIdempotencyKey)
	}
	var b [10]byte
	if key == "" {
		_, _ = rand.Read(b[:]) // never fails
	} else {
		sum := sha256.Sum256([]byte("sandbox\x00" + string(a) + "\x00" + key))
		copy(b[:], sum[:])
	}
	return "i" + hex.EncodeToString(b[:]), nil
}

func (f *controlPlane) shown(s schemas.SandboxSession, a schemas.AccountID, key string) (listed, error) {
	l := listed{
		sandbox:   sandbox{SandboxID: s.ID, TemplateID: s.Lease.Template, ClientID: "sandjet", EnvdVersion: envdVersion},
		StartedAt: s.Created, EndAt: s.Lease.Expires, State: "running", CPUCount: 1, MemoryMB: f.Memory, Metadata: s.Lease.Metadata,
	}
	if l.Metadata == nil {
		l.Metadata = map[string]string{}
	}
	var err error
	if key != "" {
		l.EnvdAccessToken, err = f.token(a, s.ID, key)
		l.TrafficToken = l.EnvdAccessToken
	}
	return l, err
}

// the returns the sandbox that a path names. Code: not_found.
func (f *controlPlane) the(r *http.Request, a schemas.AccountID) (schemas.SandboxSession, error) {
	id := strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")
	list, err := f.Sessions.Leased(r.Context(), a)
	if err != nil {
		return schemas.SandboxSession{}, err
	}
	for _, s := range list {
		if s.ID == id {
			return s, nil
		}
	}
	return schemas.SandboxSession{}, schemas.Errorf(schemas.NotFound, "sandbox %q not found", schemas.Quotable(id))
}

// detail serves the details of a sandbox.
func (f *controlPlane) detail(w http.ResponseWriter, r *http.Request, a schemas.AccountID, key string) error {
	s, err := f.the(r, a)
	if err != nil {
		return err
	}
	l, err := f.shown(s, a, key)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, l)
	return nil
}

// kill ends a sandbox and everything in it.
func (f *controlPlane) kill(w http.ResponseWriter, r *http.Request, a schemas.AccountID, _ string) error {
	s, err := f.the(r, a)
	if err != nil {
		return err
	}
	done, err := f.TakeWait(w, a)
	if err != nil {
		return err
	}
	defer done()
	if err := f.Sessions.Remove(r.Context(), a, s.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// lifetime returns the life of a sandbox from now on that a request asks for. Code: invalid.
func lifetime(w http.ResponseWriter, r *http.Request) (time.Duration, error) {
	body, err := web.ReadBody(w, r, schemas.MaxRequest, "send a timeout alone")
	if err != nil {
		return 0, err
	}
	return decodeLifetime(body)
}

// timeout sets the time at which a sandbox ends.
func (f *controlPlane) timeout(w http.ResponseWriter, r *http.Request, a schemas.AccountID, _ string) error {
	life, err := lifetime(w, r)
	if err != nil {
		return err
	}
	s, err := f.the(r, a)
	if err != nil {
		return err
	}
	to := f.Now().Add(life).UTC().Truncate(time.Millisecond)
	_, err = f.Sessions.Change(r.Context(), a, s.ID, func(l *schemas.SandboxLease) error {
		l.Expires = to
		return nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// connect returns a sandbox, and extends its life to at least the requested time from now.
func (f *controlPlane) connect(w http.ResponseWriter, r *http.Request, a schemas.AccountID, key string) error {
	life, err := lifetime(w, r)
	if err != nil {
		return err
	}
	s, err := f.the(r, a)
	if err != nil {
		return err
	}
	least := f.Now().Add(life).UTC().Truncate(time.Millisecond)
	s, err = f.Sessions.Change(r.Context(), a, s.ID, func(l *schemas.SandboxLease) error {
		if l.Expires.Before(least) {
			l.Expires = least
		}
		return nil
	})
	if err != nil {
		return err
	}
	l, err := f.shown(s, a, key)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, l.sandbox)
	return nil
}

// list serves a page of the account's sandboxes, sorted by their creation.
func (f *controlPlane) list(w http.ResponseWriter, r *http.Request, a schemas.AccountID, _ string) error {
	q, err := decodeList(r.URL.RawQuery)
	if err != nil {
		return err
	}
	all, err := f.Sessions.Leased(r.Context(), a)
	if err != nil {
		return err
	}
	page, next := q.page(all)
	out := make([]listed, len(page))
	for i, s := range page {
		if out[i], err = f.shown(s, a, ""); err != nil {
			return err
		}
	}
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// page returns the matching sandboxes of one page, and the token of the next; empty if there is none.
func (q listQuery) page(all []schemas.SandboxSession) (page []schemas.SandboxSession, next string) {
	for _, s := range all {
		fits := q.running && (q.template == "" || s.Lease.Template == q.template) && !s.Created.Before(q.after)
		for k, v := range q.metadata {
			fits = fits && s.Lease.Metadata[k] == v
		}
		if fits {
			page = append(page, s)
		}
	}
	order := func(a, b schemas.SandboxSession) int {
		if c := cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)); !q.ascending {
			return c
		}
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(page, order)
	if q.token != nil { // what has ended since is no hole
		page = slices.DeleteFunc(page, func(s schemas.SandboxSession) bool { return order(*q.token, s) >= 0 })
	}
	if len(page) > q.limit {
		page = page[:q.limit]
		last := page[q.limit-1]
		next = last.Created.Format(time.RFC3339Nano) + "_" + last.ID
	}
	return page, next
}
