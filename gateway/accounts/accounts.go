package accounts

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// AccountList is the response with all accounts.
type AccountList struct {
	Accounts []json.RawMessage `json:"accounts"`
}

// NewAccount is the response to the creation of an account. No other response contains the secret.
type NewAccount struct {
	Account json.RawMessage `json:"account"`
	Secret  string          `json:"secret"`
}

// NewSecret is the response to the rotation of an account's secret. No other response contains it.
type NewSecret struct {
	Secret string `json:"secret"`
}

// Deleted is the response to the deletion of a record.
type Deleted struct {
	Deleted bool `json:"deleted"`
}

// DeletedAccount is the response to the deletion of an account, with the number of its deleted records of each kind.
type DeletedAccount struct {
	Deleted    bool `json:"deleted"`
	Sandboxes  int  `json:"sandboxes"`
	Workspaces int  `json:"workspaces"`
	Models     int  `json:"models"`
	Agents     int  `json:"agents"`
	Variables  int  `json:"variables"`
	Webhooks   int  `json:"webhooks"`
	Channels   int  `json:"channels"`
	Skills     int  `json:"skills"`
}

const mostOverlap = 7 * 24 * time.Hour // of an account's former key with the new one

// rotateRequest is the body of a request for a new secret.
type rotateRequest struct {
	Overlap *schemas.Duration `json:"overlap,omitzero"`
}

// getAccounts lists all accounts.
func (s *Server) getAccounts(w http.ResponseWriter, r *http.Request) error {
	if err := s.AdministratorOnly(r); err != nil {
		return err
	}
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	store, err := s.store()
	if err != nil {
		return err
	}
	list, err := store.Accounts.List(r.Context())
	if err != nil {
		return err
	}
	out := AccountList{Accounts: make([]json.RawMessage, len(list))}
	for i, d := range list {
		out.Accounts[i] = d.JSON
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// postAccount makes an account, for the administrator, or for any caller if sign-up is open.
func (s *Server) postAccount(w http.ResponseWriter, r *http.Request) error {
	admin := s.administers(web.Bearer(r.Header))
	if !admin && !s.OpenSignup {
		if err := s.AdministratorOnly(r); err != nil {
			return err
		}
	}
	store, err := s.store()
	if err != nil {
		return err
	}
	if admin {
		web.HoldOf(r.Context()).Administers()
	}
	body, err := readConfig(w, r, true)
	if err != nil {
		return err
	}
	if !admin {
		if s.MaxAccounts > 0 && store.Accounts.Count() >= s.MaxAccounts {
			return schemas.Errorf(schemas.Exhausted, "there are %d accounts, at which strangers make no more: ask the operator for one, or for a "+
				"higher --max-accounts", s.MaxAccounts)
		}
		if wait := s.signups.take(r.RemoteAddr, time.Now()); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
			return schemas.Errorf(schemas.Exhausted, "%d accounts were made from here in the last hour, the most there may be: come back in %s",
				signupsPerHour, wait.Round(time.Second))
		}
	}
	if err := s.roomFor(r); err != nil {
		return err
	}
	d, key, err := store.Accounts.Add(r.Context(), body)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/accounts/"+d.ID)
	web.WriteJSON(w, http.StatusCreated, NewAccount{Account: d.JSON, Secret: key})
	return nil
}

// getAccount returns an account.
func (s *Server) getAccount(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	d, err := store.Accounts.Get(r.Context(), a)
	if err != nil {
		return err
	}
	writeDocument(w, http.StatusOK, d)
	return nil
}

// getUsage returns how much an account stores on the log, and its quotas.
func (s *Server) getUsage(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	u, err := s.Log.Usage(r.Context(), a)
	if err != nil {
		return err
	}
	u.Records, u.RecordsLimit = store.Accounts.RecordUsage(a)
	web.WriteJSON(w, http.StatusOK, u)
	return nil
}

// patchAccount changes an account's name and description.
func (s *Server) patchAccount(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	revision, err := web.Revision(r.Header)
	if err != nil {
		return err
	}
	body, err := readConfig(w, r, false)
	if err != nil {
		return err
	}
	d, err := store.Accounts.Patch(r.Context(), a, body, revision)
	if err != nil {
		return web.Precondition(err)
	}
	writeDocument(w, http.StatusOK, d)
	return nil
}

// deleteAccount deletes an account and all its records.
func (s *Server) deleteAccount(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	revision, err := web.Revision(r.Header)
	if err != nil {
		return err
	}
	if err := s.notOwn(a); err != nil {
		return err
	}
	n, err := store.Accounts.Remove(r.Context(), a, revision)
	if err != nil {
		return web.Precondition(err)
	}
	web.WriteJSON(w, http.StatusOK, DeletedAccount{
		true, n.Sandboxes, n.Workspaces, n.Models, n.Agents, n.Variables, n.Webhooks, n.Channels, n.Skills,
	})
	return nil
}

// postRotateSecret gives an account a new secret and returns it; no other response contains it.
func (s *Server) postRotateSecret(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	var in rotateRequest
	if err := web.DecodeBody(w, r, true, &in); err != nil {
		return err
	}
	overlap := time.Duration(0)
	if in.Overlap != nil {
		overlap = time.Duration(*in.Overlap)
	}
	if overlap < 0 || overlap > mostOverlap {
		return schemas.Invalidf("overlap", "%s is out of range: at most %s", overlap, mostOverlap)
	}
	if err := s.notOwn(a); err != nil {
		return err
	}
	key, err := store.Accounts.RotateKey(r.Context(), a, overlap)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, NewSecret{Secret: key})
	return nil
}

// notOwn rejects changes to the account that each start creates from the settings, with its key: the next start would undo them. Code:
// conflict.
func (s *Server) notOwn(a schemas.AccountID) error {
	if a == s.OwnAccount && a != "" {
		return schemas.Errorf(schemas.Conflict,
			"%s is the account of this deployment's settings: change its key there (--account and --key), and make other accounts for other users",
			a)
	}
	return nil
}

// readConfig reads a record's JSON. If optional is true, an absent body is an empty object.
func readConfig(w http.ResponseWriter, r *http.Request, optional bool) ([]byte, error) {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, err
	}
	body, err := web.ReadJSONUpTo(w, r, schemas.MaxConfig, "a record is small: keep files in the workspace")
	if err == nil && optional && len(body) == 0 {
		return []byte("{}"), nil
	}
	return body, err
}

// writeDocument responds with a record, and its revision as the ETag.
func writeDocument(w http.ResponseWriter, code int, d schemas.Document) {
	web.SetRevision(w.Header(), d.Revision)
	web.WriteJSON(w, code, json.RawMessage(d.JSON))
}
