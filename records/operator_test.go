package records_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNoRecordGoesBeyondTheOperatorsWord: neither by POST, nor PATCH, nor a manifest, nor because it was there before.
//
//guarantee:what-one-tenant-can-do-to-another
func TestNoRecordGoesBeyondTheOperatorsWord(t *testing.T) {
	t.Parallel()
	providers := recordstest.Providers()
	providers[0].Networks = []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted}
	s := openWith(t, bus(t), providers)
	const account = schemas.AccountID("acct_op")
	if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: account, Key: "sk_0123456789abcdef", Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	old, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"old","config":{"network":{"mode":"allow-all"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	s.Operator = records.Operator{Networks: []schemas.NetworkMode{schemas.DenyAll}, MaxMemory: 1 << 30}

	denied := func(err error, field, flag string) {
		t.Helper()
		if e := schemas.Public(err); err == nil || e.Code != schemas.Denied || !strings.HasSuffix(e.Field, field) ||
			!strings.Contains(e.Message, flag) {
			t.Errorf("%v: it should be denied for %s and name %s", err, field, flag)
		}
	}
	_, err = s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"new","config":{"network":{"mode":"allow-all"}}}`))
	denied(err, "config.network.mode", "--networks")
	_, err = s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"big","config":{"memoryLimit":1048576}}`))
	denied(err, "config.memoryLimit", "--max-memory")
	s.Operator.MaxJobs = 64
	_, err = s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"busy","config":{"jobLimit":65}}`))
	denied(err, "config.jobLimit", "--max-jobs")
	if _, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"busy","config":{"jobLimit":64}}`)); err != nil {
		t.Error(err)
	}
	small, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"small","config":{"memoryLimit":1024}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Documents.Patch(t.Context(), account, schemas.Sandboxes, small.ID, []byte(`{"config":{"network":{"mode":"allow-all"}}}`), 0)
	denied(err, "config.network.mode", "--networks")
	_, err = s.Manifests.Apply(t.Context(), account, schemas.ManifestRequest{Manifest: schemas.Manifest{
		Version: 1, Project: "p", Resources: []schemas.Resource{{Kind: "sandbox", Name: "wide",
			Config: []byte(`{"network":{"mode":"allow-all"}}`)}},
	}})
	denied(err, "config.network.mode", "--networks")

	s.Operator.Networks = append(s.Operator.Networks, schemas.Restricted)
	s.Operator.PrivateNetworks = []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16")}
	for i, c := range []struct{ cidrs, refused string }{
		{`"93.184.216.0/24","10.20.1.0/24"`, ""},
		{`"93.184.216.0/24","10.21.0.0/16"`, "allowCidrs[1]"},
		{`"10.0.0.0/8"`, "allowCidrs[0]"},
		{`"0.0.0.0/0"`, ""}, // of which the relay keeps off what is not public
		{`"127.0.0.0/8"`, "allowCidrs[0]"},
		{`"169.254.169.254/32"`, "allowCidrs[0]"},
	} {
		_, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes, fmt.Appendf(nil,
			`{"name":"cidrs %d","config":{"network":{"mode":"restricted","allowCidrs":[%s]}}}`, i, c.cidrs))
		if c.refused != "" {
			denied(err, "config.network."+c.refused, "--private-networks")
		} else if err != nil {
			t.Errorf("%s: %v", c.cidrs, err)
		}
	}
	s.Operator.Networks = s.Operator.Networks[:1]

	call := schemas.Request{Tool: schemas.ToolBash, Input: []byte(`{"command":"true"}`), Sandbox: old.ID,
		Deadline: time.Now().Add(time.Minute)}
	_, err = s.Resolve(t.Context(), account, call)
	denied(err, "config.network.mode", "--networks")
	call.Sandbox = small.ID
	if _, err := s.Resolve(t.Context(), account, call); err != nil {
		t.Errorf("a sandbox within the bounds: %v", err)
	}
	// What is not of this host is not the operator's business here.
	if _, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes,
		[]byte(`{"name":"far","config":{"provider":"e2b","network":{"mode":"allow-all"}}}`)); err != nil {
		t.Errorf("a sandbox of another provider: %v", err)
	}
}

// living is workers that do less than their build declares.
type living struct{ schemas.Profile }

func (l living) Keeps(_ context.Context, provider string, ask func(schemas.Profile) error) error {
	if provider != l.Name {
		return nil
	}
	return ask(l.Profile)
}

// TestACallNeedsWhatSomeWorkerKeeps: a record is made of what the build declares; a call is refused for what no worker
// keeps at present, and for a provider that the build has no more.
func TestACallNeedsWhatSomeWorkerKeeps(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	const account = "acct_a"
	if _, err := s.Accounts.Ensure(t.Context(), records.Bootstrap{Account: account, Key: "sk_0123456789abcdef", Provider: "local"}); err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for name, config := range map[string]string{"wide": `{"network":{"mode":"allow-all"}}`, "narrow": `{}`, "far": `{"provider":"vercel"}`} {
		d, err := s.Documents.Add(t.Context(), account, schemas.Sandboxes, []byte(`{"name":"`+name+`","config":`+config+`}`))
		if err != nil {
			t.Fatal(err)
		}
		made[name] = d.ID
	}
	narrow := recordstest.Providers()[0]
	narrow.Networks = []schemas.NetworkMode{schemas.DenyAll}
	s.Living = living{narrow}
	later, err := records.Open(t.Context(), b, ring(t), recordstest.Providers()[:1]) // of a build with fewer providers
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		store *records.Store
		name  string
		says  string
	}{
		{s, "narrow", ""}, {s, "far", ""},
		{s, "wide", "does not keep the mode allow-all where it runs: use deny-all"},
		{later, "wide", ""},
		{later, "far", `of the provider "vercel", which this build does not have: it has local`},
	} {
		_, err := c.store.Resolve(t.Context(), account, schemas.Request{
			Tool: schemas.ToolBash, Input: []byte(`{"command":"true"}`), Sandbox: made[c.name], Deadline: time.Now().Add(time.Minute),
		})
		if c.says == "" && err != nil || c.says != "" && (schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("a call in %s: %v, want %q", c.name, err, c.says)
		}
	}
}
