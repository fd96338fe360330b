package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Accounts keeps the accounts and their collections. Its methods may be called from many goroutines. Bodies
// are what clients sent; a revision other than 0 is the only one that may be changed, and another is a
// conflict whose field is If-Match. Code not_found: there is none of that id, or it is another account's.
type Accounts interface {
	Collections
	Manifests
	Variables

	Accounts(ctx context.Context) ([]schemas.Document, error)
	Account(ctx context.Context, a schemas.AccountID) (schemas.Document, error)
	// AddAccount makes an account and its key, which is not kept.
	AddAccount(ctx context.Context, body []byte) (d schemas.Document, key string, err error)
	PatchAccount(ctx context.Context, a schemas.AccountID, patch []byte, revision uint64) (schemas.Document, error)
	// RotateAccount makes a new key; former ones work until overlap has passed.
	RotateAccount(ctx context.Context, a schemas.AccountID, overlap time.Duration) (string, error)
	// RemoveAccount removes an account with all its records, and counts them.
	RemoveAccount(ctx context.Context, a schemas.AccountID, revision uint64) (schemas.RemovedRecords, error)
}

// Collections keeps the collections of the accounts, as [Accounts] keeps the accounts themselves.
type Collections interface {
	Documents(ctx context.Context, a schemas.AccountID, c schemas.Collection) ([]schemas.Document, error)
	Document(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string) (schemas.Document, error)
	AddDocument(ctx context.Context, a schemas.AccountID, c schemas.Collection, body []byte) (schemas.Document, error)
	PatchDocument(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, patch []byte, revision uint64) (schemas.Document, error)
	RemoveDocument(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, revision uint64) error
	// Exposure says what a model is to be shown for an agent. Codes: not_found.
	Exposure(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.Exposure, error)
}

// AccountList is the answer about all accounts.
type AccountList struct {
	Accounts []json.RawMessage `json:"accounts"`
}

// NewAccount is the answer to who made an account. Nothing else shows the secret.
type NewAccount struct {
	Account json.RawMessage `json:"account"`
	Secret  string          `json:"secret"`
}

// NewSecret is the answer to who rotated an account's secret. Nothing else shows it.
type NewSecret struct {
	Secret string `json:"secret"`
}

// Deleted is the answer to who deleted a record.
type Deleted struct {
	Deleted bool `json:"deleted"`
}

// DeletedAccount is the answer to who deleted an account.
type DeletedAccount struct {
	Deleted    bool `json:"deleted"`
	Sandboxes  int  `json:"sandboxes"`
	Workspaces int  `json:"workspaces"`
	Agents     int  `json:"agents"`
	Variables  int  `json:"variables"`
	Webhooks   int  `json:"webhooks"`
}

const (
	self         = "me" // in place of an id: the account whose key it is
	fieldIfMatch = "If-Match"
)

// accounts are the records of accounts, unless this gateway has none.
func (g *Gateway) accounts() (Accounts, error) {
	if g.Accounts == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "", "this gateway keeps no accounts")
	}
	return g.Accounts, nil
}

// administers reports whether key is the administrator's.
func (g *Gateway) administers(key string) bool {
	sum := sha256.Sum256([]byte(key))
	return g.AdminKeyHash != "" && key != "" &&
		subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(g.AdminKeyHash)) == 1
}

// owned asks for a key first and finds the account that the path names: the key's own, or any for the
// administrator. An account that the key may not reach is not found, in the same words as one that does
// not exist.
func (g *Gateway) owned(h func(http.ResponseWriter, *http.Request, Accounts, schemas.AccountID) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		key := bearer(r.Header)
		asked := schemas.AccountID(strings.ToValidUTF8(r.PathValue("account"), "\uFFFD"))
		admin := g.administers(key)
		own := schemas.AccountID("")
		if !admin || asked == self {
			var err error
			if own, err = g.authenticate(r.Context(), key); err != nil {
				return err
			}
		}
		accounts, err := g.accounts()
		if err != nil {
			return err
		}
		if err := g.roomFor(r); err != nil {
			return err
		}
		if admin {
			holdOf(r.Context()).administers()
		} else if err := holdOf(r.Context()).enter(w, own); err != nil {
			return err
		}
		switch {
		case asked == self || asked == own:
			return h(w, r, accounts, own)
		case !admin:
			return schemas.Errorf(schemas.NotFound, "", "there is no account %q", schemas.Quotable(string(asked)))
		}
		if _, err := accounts.Account(r.Context(), asked); err != nil {
			return err
		}
		return h(w, r, accounts, asked)
	}
}

// roomFor says whether what a request wants recorded fits into the log. What removes something, or makes a key useless, always does.
func (g *Gateway) roomFor(r *http.Request) error {
	switch {
	case r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch,
		strings.HasSuffix(r.Pattern, "/rotate-secret"), strings.HasSuffix(r.Pattern, "/nats-credentials"):
		return nil
	}
	return g.Bus.Room(r.Context(), int(max(r.ContentLength, 0)))
}

// forAdmin refuses everybody but the administrator: 401 for who is nobody, else denied.
func (g *Gateway) forAdmin(r *http.Request) error {
	key := bearer(r.Header)
	if g.administers(key) {
		return nil
	}
	if _, err := g.authenticate(r.Context(), key); err != nil {
		return err
	}
	return schemas.Errorf(schemas.Denied, "", "admin key required: this key is an account's")
}

// getAccounts lists all accounts.
func (g *Gateway) getAccounts(w http.ResponseWriter, r *http.Request) error {
	if err := g.forAdmin(r); err != nil {
		return err
	}
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	accounts, err := g.accounts()
	if err != nil {
		return err
	}
	list, err := accounts.Accounts(r.Context())
	if err != nil {
		return err
	}
	out := AccountList{Accounts: make([]json.RawMessage, len(list))}
	for i, d := range list {
		out.Accounts[i] = d.JSON
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// postAccount makes an account: for the administrator, or for anybody where that is open.
func (g *Gateway) postAccount(w http.ResponseWriter, r *http.Request) error {
	admin := g.administers(bearer(r.Header))
	if !admin && !g.OpenSignup {
		if err := g.forAdmin(r); err != nil {
			return err
		}
	}
	accounts, err := g.accounts()
	if err != nil {
		return err
	}
	if admin {
		holdOf(r.Context()).administers()
	}
	body, err := readConfig(w, r, true)
	if err != nil {
		return err
	}
	if !admin {
		if wait := g.signups.take(r.RemoteAddr, time.Now()); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
			return schemas.Errorf(schemas.Exhausted, "", "%d accounts were made from here in the last hour, the most there may be: come back in %s",
				signupsPerHour, wait.Round(time.Second))
		}
	}
	if err := g.roomFor(r); err != nil {
		return err
	}
	d, key, err := accounts.AddAccount(r.Context(), body)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/accounts/"+d.ID)
	writeJSON(w, http.StatusCreated, NewAccount{Account: d.JSON, Secret: key})
	return nil
}

// getAccount shows an account.
func (g *Gateway) getAccount(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	d, err := accounts.Account(r.Context(), a)
	if err != nil {
		return err
	}
	writeDocument(w, http.StatusOK, d)
	return nil
}

// getUsage shows what an account keeps on the log, and its quotas.
func (g *Gateway) getUsage(w http.ResponseWriter, r *http.Request, _ Accounts, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	u, err := g.Bus.Usage(r.Context(), a)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, u)
	return nil
}

// patchAccount changes an account's name and description.
func (g *Gateway) patchAccount(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	revision, err := ifMatch(r.Header)
	if err != nil {
		return err
	}
	body, err := readConfig(w, r, false)
	if err != nil {
		return err
	}
	d, err := accounts.PatchAccount(r.Context(), a, body, revision)
	if err != nil {
		return precondition(err)
	}
	writeDocument(w, http.StatusOK, d)
	return nil
}

// deleteAccount removes an account with all its records.
func (g *Gateway) deleteAccount(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	revision, err := ifMatch(r.Header)
	if err != nil {
		return err
	}
	if err := g.notOwn(a); err != nil {
		return err
	}
	n, err := accounts.RemoveAccount(r.Context(), a, revision)
	if err != nil {
		return precondition(err)
	}
	writeJSON(w, http.StatusOK, DeletedAccount{true, n.Sandboxes, n.Workspaces, n.Agents, n.Variables, n.Webhooks})
	return nil
}

// postRotateSecret gives an account a new secret, which only this answer shows.
func (g *Gateway) postRotateSecret(w http.ResponseWriter, r *http.Request, accounts Accounts, a schemas.AccountID) error {
	var in rotateRequest
	if err := decodeBody(w, r, true, &in); err != nil {
		return err
	}
	overlap := time.Duration(0)
	if in.Overlap != nil {
		overlap = time.Duration(*in.Overlap)
	}
	if overlap < 0 || overlap > mostOverlap {
		return schemas.Invalidf("overlap", "%s is out of range: at most %s", overlap, mostOverlap)
	}
	if err := g.notOwn(a); err != nil {
		return err
	}
	key, err := accounts.RotateAccount(r.Context(), a, overlap)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, NewSecret{Secret: key})
	return nil
}

// notOwn protects the account that every start makes anew, with the key of the settings: what is done to
// either here would be undone then.
func (g *Gateway) notOwn(a schemas.AccountID) error {
	if a == g.OwnAccount && a != "" {
		return schemas.Errorf(schemas.Conflict, "",
			"%s is the account of this deployment's settings: change its key there (--account and --key), and make other accounts for other users", a)
	}
	return nil
}

// readConfig reads a record's JSON. An absent body is an empty object where that is optional.
func readConfig(w http.ResponseWriter, r *http.Request, optional bool) ([]byte, error) {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return nil, err
	}
	body, err := readJSONUpTo(w, r, schemas.MaxConfig, "a record is small: keep files in the workspace")
	if err == nil && optional && len(body) == 0 {
		return []byte("{}"), nil
	}
	return body, err
}

// writeDocument answers with a record and its revision.
func writeDocument(w http.ResponseWriter, code int, d schemas.Document) {
	w.Header().Set("ETag", etag(d.Revision))
	writeJSON(w, code, json.RawMessage(d.JSON))
}

func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// ifMatch is the revision that If-Match asks for, 0 for any.
func ifMatch(h http.Header) (uint64, error) {
	v := strings.TrimSpace(h.Get(fieldIfMatch))
	if v == "" || v == "*" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.Trim(v, `"`), 10, 64)
	if err != nil || n == 0 || etag(n) != v || len(h.Values(fieldIfMatch)) > 1 {
		return 0, schemas.Invalidf(fieldIfMatch, `must be the ETag of one answer, such as "17"`)
	}
	return n, nil
}

// precondition gives the conflict about a revision its status.
func precondition(err error) error {
	if public := schemas.Public(err); public.Code == schemas.Conflict && public.Field == fieldIfMatch {
		return withStatus(http.StatusPreconditionFailed, err)
	}
	return err
}
