// Package webtest has checks for what clients of the gateway receive.
package webtest

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// Invalid fails the test unless err has the code invalid and a message that can be shown to clients: short and valid UTF-8.
func Invalid(t *testing.T, err error) {
	t.Helper()
	const longest = 1024
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok || e.Code != schemas.Invalid || e.Message == "" {
		t.Fatalf("%v: want an invalid error with a message", err)
	}
	if !utf8.ValidString(e.Message) || !utf8.ValidString(e.Field) || len(e.Error()) > longest {
		t.Fatalf("cannot be shown: %q", e.Error())
	}
}
