package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/schemas"
)

// Variables lists the variables of an account by name. Their values are never shown.
func (c *Client) Variables(ctx context.Context, a schemas.AccountID) ([]schemas.VariableDocument, error) {
	var out struct {
		Variables []schemas.VariableDocument `json:"variables"`
	}
	err := c.ask(ctx, http.MethodGet, variablePath(a, ""), nil, &out)
	return out.Variables, err
}

// SetVariable gives an account a variable, or a variable another value. Codes: invalid, exhausted.
func (c *Client) SetVariable(ctx context.Context, a schemas.AccountID, name, value string) (schemas.VariableDocument, error) {
	in := struct {
		Value string `json:"value"`
	}{value}
	var out schemas.VariableDocument
	err := c.ask(ctx, http.MethodPut, variablePath(a, name), in, &out)
	return out, err
}

// RemoveVariable takes a variable away. Codes: not_found, also when an earlier try of this very call removed it.
func (c *Client) RemoveVariable(ctx context.Context, a schemas.AccountID, name string) error {
	return c.ask(ctx, http.MethodDelete, variablePath(a, name), nil, nil)
}

// variablePath is the path of a variable, with an empty name of all.
func variablePath(a schemas.AccountID, name string) string {
	path := accountPath(a) + "/variables"
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}
