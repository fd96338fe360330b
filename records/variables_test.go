package records_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func TestVariablesReachTheSandboxesThatNameThem(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	d, err := s.Documents.Add(t.Context(), manifested, schemas.Sandboxes,
		[]byte(`{"name": "b", "config": {"envVars": {"TOKEN": "env:API", "STAGE": "test"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	id := schemas.SandboxID(d.ID)
	if !strings.Contains(string(d.JSON), `"TOKEN":"env:API"`) || !strings.Contains(string(d.JSON), `"STAGE":"********"`) {
		t.Errorf("it shows %s", d.JSON)
	}
	_, err = s.Sandbox(t.Context(), manifested, id)
	if !errors.Is(err, schemas.ErrInvalid) || errors.Is(err, schemas.ErrNotFound) ||
		!strings.Contains(err.Error(), "sandjet variables set API") {
		t.Errorf("a missing variable: %v", err)
	}
	elsewhere := open(t, b) // and does not follow
	for _, value := range []string{"s3cret", "env:API", "another"} {
		if _, err := s.Variables.Set(t.Context(), manifested, "API", value); err != nil {
			t.Fatal(err)
		}
		box, err := s.Sandbox(t.Context(), manifested, id)
		if err != nil || box.EnvVars["TOKEN"] != value || box.EnvVars["STAGE"] != "test" {
			t.Errorf("%v, %v", box.EnvVars, err)
		}
	}
	if box, err := elsewhere.Sandbox(t.Context(), manifested, id); err != nil || box.EnvVars["TOKEN"] != "another" {
		t.Errorf("elsewhere: %v, %v", box.EnvVars, err)
	}
	// Nothing shows it, and the log keeps it sealed.
	list, err := s.Variables.List(t.Context(), manifested)
	text, jerr := json.Marshal(list)
	if err != nil || jerr != nil || len(list) != 1 || list[0].Name != "API" || strings.Contains(string(text), "another") {
		t.Errorf("%s, %v", text, err)
	}
	raw, err := streams.OpenBucket[json.RawMessage](b, streams.Records).Get(t.Context(), "variable.acct_a.API")
	if err != nil || strings.Contains(string(raw.Value), "another") || !strings.Contains(string(raw.Value), "sealed") {
		t.Errorf("the log has %s, %v", raw.Value, err)
	}
	if err := s.Variables.Remove(t.Context(), manifested, "API"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandbox(t.Context(), manifested, id); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("after it was removed: %v", err)
	}
}

func TestACallWhoseVariableIsMissingIsNotAdmitted(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	made, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Key: records.NewKey(), Provider: "local", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	account := made.ID
	if _, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes,
		[]byte(`{"name": "b", "config": {"envVars": {"TOKEN": "env:API", "STAGE": "test"}}}`)); err != nil {
		t.Fatal(err)
	}
	request := schemas.Request{Tool: schemas.ToolBash, Input: []byte(`{"command":"true"}`), Sandbox: "b"}
	c, err := s.Resolve(t.Context(), account, request)
	if !errors.Is(err, schemas.ErrInvalid) || !strings.Contains(err.Error(), "sandjet variables set API") || c.ID != "" {
		t.Errorf("without it: %+v, %v", c, err)
	}
	elsewhere := open(t, b) // and does not follow
	if _, err := s.Variables.Set(t.Context(), account, "API", "s3cret"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := elsewhere.Resolve(t.Context(), account, request); err != nil {
			t.Errorf("one that was just set by another process: %v", err)
		}
	}
}

func TestWhatCannotBeAVariable(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	const hidden = "hunter2hunter2"
	for name, v := range map[string][2]string{
		"a digit first": {"1A", hidden}, "a dot": {"A.B", hidden}, "no name": {"", hidden},
		"a long name": {strings.Repeat("A", schemas.MaxName+1), hidden},
		"no value":    {"A", ""}, "a NUL": {"A", hidden + "\x00"}, "a long value": {"A", hidden + strings.Repeat("x", schemas.MaxVariable)},
	} {
		_, err := s.Variables.Set(t.Context(), manifested, v[0], v[1])
		if !errors.Is(err, schemas.ErrInvalid) || strings.Contains(err.Error(), hidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Variables.Remove(t.Context(), manifested, "A"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("none to remove: %v", err)
	}
	// Another account's is none.
	if _, err := s.Variables.Set(t.Context(), "acct_b", "A", hidden); err != nil {
		t.Fatal(err)
	}
	d, err := s.Documents.Add(t.Context(), manifested, schemas.Sandboxes, []byte(`{"name": "b", "config": {"envVars": {"T": "env:A"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandbox(t.Context(), manifested, schemas.SandboxID(d.ID)); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("another account's variable: %v", err)
	}
}
