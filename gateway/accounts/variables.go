package accounts

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Variables stores the variables of accounts, which sandboxes refer to as env:NAME. It must be safe for concurrent use. No method returns
// a value.
type Variables interface {
	List(ctx context.Context, a schemas.AccountID) ([]schemas.VariableDocument, error)
	// Set adds or replaces one. Codes: invalid, exhausted.
	Set(ctx context.Context, a schemas.AccountID, name, value string) (schemas.VariableDocument, error)
	// Remove removes one. Code: not_found.
	Remove(ctx context.Context, a schemas.AccountID, name string) error
}

// VariableList is the response with an account's variables.
type VariableList struct {
	Variables []schemas.VariableDocument `json:"variables"`
}

// VariableValue is the body that sets a variable.
type VariableValue struct {
	Value string `json:"value"`
}

// getVariables lists the variables, without their values.
func getVariables(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	list, err := store.Variables.List(r.Context(), a)
	if err != nil {
		return err
	}
	if list == nil {
		list = []schemas.VariableDocument{}
	}
	web.WriteJSON(w, http.StatusOK, VariableList{list})
	return nil
}

// putVariable sets a variable.
func putVariable(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	body, err := readConfig(w, r, false)
	if err != nil {
		return err
	}
	var in VariableValue
	if err := schemas.DecodeStrict(body, schemas.MaxConfig, &in); err != nil {
		return err
	}
	v, err := store.Variables.Set(r.Context(), a, pathName(r), in.Value)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, v)
	return nil
}

// deleteVariable removes a variable.
func deleteVariable(w http.ResponseWriter, r *http.Request, store *Store, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if err := store.Variables.Remove(r.Context(), a, pathName(r)); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, Deleted{true})
	return nil
}

func pathName(r *http.Request) string { return strings.ToValidUTF8(r.PathValue("name"), "\uFFFD") }
