package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/schemas"
)

// Variables reads and changes the variables of an account.
type Variables struct {
	transport

	path string
}

// Variables returns access to the variables of an account. It sends no request.
func (c *Client) Variables(a schemas.AccountID) Variables {
	return Variables{c.transport(), accountPath(a) + "/variables"}
}

// List returns the variables of an account by name, without their values.
func (c Variables) List(ctx context.Context) ([]schemas.VariableDocument, error) {
	var out struct {
		Variables []schemas.VariableDocument `json:"variables"`
	}
	err := c.ask(ctx, http.MethodGet, c.path, nil, &out)
	return out.Variables, err
}

// Set adds a variable, or changes its value. Codes: invalid, exhausted.
func (c Variables) Set(ctx context.Context, name, value string) (schemas.VariableDocument, error) {
	in := struct {
		Value string `json:"value"`
	}{value}
	var out schemas.VariableDocument
	err := c.ask(ctx, http.MethodPut, c.path+"/"+url.PathEscape(name), in, &out)
	return out, err
}

// Remove removes a variable. Code: not_found, also if an earlier try of this call removed it.
func (c Variables) Remove(ctx context.Context, name string) error {
	return c.ask(ctx, http.MethodDelete, c.path+"/"+url.PathEscape(name), nil, nil)
}
