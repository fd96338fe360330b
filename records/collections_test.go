package records_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestManyRecordsAreThereFromTheStart: a store that is opened later has all of them, and finds each.
func TestManyRecordsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	const accounts, each = 20, 500
	b := bus(t)
	raw := streams.OpenBucket[map[string]any](b, streams.Records)
	jobs := make(chan [2]int)
	done := make(chan error)
	const writers = 16
	for range writers {
		go func() {
			var failed error
			for at := range jobs {
				a, id := fmt.Sprintf("acct_%d", at[0]), fmt.Sprintf("sb_%04d", at[1])
				_, err := raw.Create(t.Context(), "sandbox."+a+"."+id, map[string]any{"sandbox": map[string]any{
					"id": id, "account": a, "name": "n" + id, "provider": "local", "permission_mode": "bypass",
				}}, 0)
				if err != nil {
					failed = err
				}
			}
			done <- failed
		}()
	}
	for a := range accounts {
		for n := range each {
			jobs <- [2]int{a, n}
		}
	}
	close(jobs)
	for range writers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, b)
	for a := range accounts {
		list, err := s.Documents.List(t.Context(), schemas.AccountID(fmt.Sprintf("acct_%d", a)), schemas.Sandboxes)
		if err != nil || len(list) != each || list[each-1].ID != fmt.Sprintf("sb_%04d", each-1) || list[0].Revision == 0 {
			t.Fatalf("account %d has %d, %v", a, len(list), err)
		}
	}
}

// TestAWorkspaceKeepsItsSandboxesToWhatItNeeds: neither side may be changed so that files on S3 are out of
// reach.
func TestAWorkspaceKeepsItsSandboxesToWhatItNeeds(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	const a = "acct_a"
	if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: a, Key: key, Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	add := func(c schemas.Collection, body string) string {
		t.Helper()
		d, err := s.Documents.Add(t.Context(), a, c, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return d.ID
	}
	mounts := add(schemas.Sandboxes, `{"name":"mounts","config":{"provider":"kubernetes","options":{"mountAwsS3Buckets":true}}}`)
	local := add(schemas.Sandboxes, `{"name":"local"}`)
	docs := add(schemas.Workspaces, `{"name":"docs","config":{"storage":{"provider":"s3"}},"sandbox":"`+mounts+`"}`)
	for _, c := range []struct {
		collection schemas.Collection
		id, patch  string
		want       schemas.Code
	}{
		{schemas.Workspaces, docs, `{"sandbox":"` + local + `"}`, schemas.Invalid},
		{schemas.Sandboxes, mounts, `{"config":{"options":null}}`, schemas.Conflict},
		{schemas.Sandboxes, mounts, `{"config":{"provider":"e2b","network":{"mode":"allow-all"},"options":null}}`, schemas.Conflict},
		{schemas.Sandboxes, mounts, `{"config":{"timeout":60}}`, ""},
		{schemas.Workspaces, docs, `{"config":null,"sandbox":"` + local + `"}`, ""},
		{schemas.Sandboxes, mounts, `{"config":{"options":null}}`, ""},
	} {
		_, err := s.Documents.Patch(t.Context(), a, c.collection, c.id, []byte(c.patch), 0)
		if err == nil && c.want != "" || err != nil && schemas.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.patch, err, c.want)
		}
	}
}

func TestAnAccountHasOnlySoManySandboxes(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	for n := range schemas.MaxSandboxes + 1 {
		_, err := s.Documents.Add(t.Context(), "acct_a", schemas.Sandboxes, fmt.Appendf(nil, `{"name":"n%d"}`, n))
		if full := n == schemas.MaxSandboxes; full != (err != nil) || full && schemas.CodeOf(err) != schemas.Exhausted {
			t.Fatalf("number %d: %v", n, err)
		}
	}
}

// TestANameInPlaceOfAnIDIsAnsweredWithTheID: of the account's own records only.
func TestANameInPlaceOfAnIDIsAnsweredWithTheID(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	for account, k := range map[schemas.AccountID]string{"acct_a": key, "acct_b": key + "b"} {
		if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: account, Key: k, Provider: "local"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []schemas.Collection{schemas.Sandboxes, schemas.Workspaces, schemas.Agents} {
		d, err := s.Documents.Add(t.Context(), "acct_a", c, []byte(`{"name":"mine"}`))
		if err != nil {
			t.Fatal(err)
		}
		for account, hint := range map[schemas.AccountID]bool{"acct_a": true, "acct_b": false} {
			_, got := s.Documents.Get(t.Context(), account, c, "mine")
			_, patched := s.Documents.Patch(t.Context(), account, c, "mine", []byte(`{"description":"x"}`), 0)
			removed := s.Documents.Remove(t.Context(), account, c, "mine", 0)
			for verb, err := range map[string]error{"get": got, "patch": patched, "remove": removed} {
				if !errors.Is(err, schemas.ErrNotFound) || strings.Contains(err.Error(), "use its id "+d.ID) != hint {
					t.Errorf("%s %s of %s: %v; want not_found, with the id: %t", verb, c, account, err, hint)
				}
			}
		}
	}
}
