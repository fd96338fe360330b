package records_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const quota = 64 << 10

// bounded is a store with two accounts and a small quota.
func bounded(t *testing.T, b *streams.Bus) (s *records.Store, a, other schemas.AccountID) {
	t.Helper()
	s = open(t, b)
	s.Quota.Bytes = quota
	a = testwait.Must(s.Accounts.Ensure(t.Context(), records.Bootstrap{Key: key, Provider: "local"}))(t).ID
	other = testwait.Must(s.Accounts.Ensure(t.Context(), records.Bootstrap{Key: key + "_other", Provider: "local"}))(t).ID
	return s, a, other
}

// full wants the refusal of what has no room.
func full(t *testing.T, err error, field string) {
	t.Helper()
	p := schemas.Public(err)
	if !errors.Is(err, schemas.ErrExhausted) || p.Field != field || !strings.Contains(p.Message, "--account-records") {
		t.Errorf("%v; want exhausted in the field %q, with what to do", err, field)
	}
}

func box(name string, size int) []byte {
	return fmt.Appendf(nil, `{"name":%q,"config":{"envVars":{"X":%q}}}`, name, strings.Repeat("x", size))
}

//guarantee:bounds
//guarantee:what-one-tenant-can-do-to-another
func TestAnAccountsRecordsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s, a, other := bounded(t, b)
	var ids []string
	var err error
	for n := 0; err == nil && n < 100; n++ {
		var d schemas.Document
		if d, err = s.Documents.Add(t.Context(), a, schemas.Sandboxes, box(fmt.Sprint("b", n), 4<<10)); err == nil {
			ids = append(ids, d.ID)
		}
	}
	full(t, err, "config")
	kept, limit := s.RecordUsage(a)
	if limit != quota || kept.Bytes > quota || kept.Bytes < quota-8<<10 || kept.Messages != int64(len(ids)+3) {
		t.Fatalf("%+v of %d are kept in %d sandboxes", kept, limit, len(ids))
	}
	large := strings.Repeat("v", 8<<10)
	_, err = s.Variables.Set(t.Context(), a, "V", large)
	full(t, err, "value")
	_, err = s.Documents.Patch(t.Context(), a, schemas.Sandboxes, ids[0], box("b0", 16<<10), 0)
	full(t, err, "config")
	if _, err := s.Variables.Set(t.Context(), other, "V", large); err != nil {
		t.Errorf("another account: %v", err)
	}

	// What lists and manifests answer is bounded by that.
	total := 0
	for _, d := range testwait.Must(s.Documents.List(t.Context(), a, schemas.Sandboxes))(t) {
		total += len(d.JSON)
	}
	if total > 2*quota {
		t.Errorf("a list has %d bytes", total)
	}

	// An account that has more already may make it less, and what is noted by itself still is.
	s.Quota.Bytes = quota / 2
	if _, err := s.Documents.Patch(t.Context(), a, schemas.Sandboxes, ids[0], []byte(`{"description":"d"}`), 0); err == nil {
		t.Error("a record grew")
	}
	if _, err := s.Documents.Patch(t.Context(), a, schemas.Sandboxes, ids[0], []byte(`{"name":"b9999"}`), 0); err == nil {
		t.Error("a record grew by its name")
	}
	testwait.Must(s.Documents.Patch(t.Context(), a, schemas.Sandboxes, ids[0], []byte(`{"name":"x0"}`), 0))(t)
	testwait.Must(s.Documents.Patch(t.Context(), a, schemas.Sandboxes, ids[0], box("x0", 1<<10), 0))(t)
	testwait.Must(s.Accounts.RotateKey(t.Context(), a, time.Hour))(t)
	for _, id := range ids {
		testwait.OK(t, s.Documents.Remove(t.Context(), a, schemas.Sandboxes, id, 0))
	}
	testwait.Must(s.Variables.Set(t.Context(), a, "V", large))(t)

	s.Quota.Exempt = a
	testwait.Must(s.Variables.Set(t.Context(), a, "W", strings.Repeat("w", 60<<10)))(t)
	now, limit := s.RecordUsage(a)
	again, _ := open(t, b).RecordUsage(a)
	if now != again || limit != 0 {
		t.Errorf("%+v are kept, of %d; by another process %+v", now, limit, again)
	}
}

// TestRecordsThatAreWrittenAtTheSameTimeShareTheQuota: none of them is in the copy yet when the next is checked.
//
//guarantee:what-one-tenant-can-do-to-another
func TestRecordsThatAreWrittenAtTheSameTimeShareTheQuota(t *testing.T) {
	t.Parallel()
	s, a, _ := bounded(t, bus(t))
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			if _, err := s.Variables.Set(t.Context(), a, fmt.Sprint("V", n), strings.Repeat("v", 8<<10)); err != nil {
				full(t, err, "value")
			}
		})
	}
	all.Wait()
	if kept, _ := s.RecordUsage(a); kept.Bytes > quota || kept.Bytes < quota/2 {
		t.Errorf("%+v are kept, the quota is %d", kept, quota)
	}
}

// TestProcessesCountAlike: what one writes and deletes counts for the other, also of a record that it cannot open.
//
//guarantee:what-one-tenant-can-do-to-another
func TestProcessesCountAlike(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s, a, _ := bounded(t, b)
	other := testwait.Must(records.Open(t.Context(), b, nil, recordstest.Providers()))(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- other.Run(ctx) }()
	t.Cleanup(func() { stop(); testwait.OK(t, <-done) })
	alike := func(when string) {
		t.Helper()
		testwait.Eventually(t, "both to count alike "+when, func() bool {
			x, _ := s.RecordUsage(a)
			y, _ := other.RecordUsage(a)
			return x == y
		})
	}
	id := added(t, s, a, schemas.Sandboxes, string(box("b", 4<<10)))
	testwait.Must(s.Variables.Set(t.Context(), a, "V", "v"))(t)
	alike("once there is more")
	testwait.OK(t, s.Documents.Remove(t.Context(), a, schemas.Sandboxes, id, 0))
	alike("once there is less")
	testwait.Must(s.Accounts.Remove(t.Context(), a, 0))(t)
	alike("once there is nothing")
	if kept, _ := s.RecordUsage(a); kept.Bytes != 0 {
		t.Errorf("%+v are left of a removed account", kept)
	}
}

// TestAManifestBeyondTheQuotaChangesNothing: it is refused before the first record is written, and where it makes an account smaller that
// has too much it is applied.
//
//guarantee:bounds
func TestAManifestBeyondTheQuotaChangesNothing(t *testing.T) {
	t.Parallel()
	s, a, _ := bounded(t, bus(t))
	resources := func(n, size int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(`{"kind":"sandbox","name":"m%d","config":{"envVars":{"X":%q}}}`, i, strings.Repeat("x", size)))
		}
		return all
	}
	before, _ := s.RecordUsage(a)
	for _, dry := range []bool{true, false} {
		_, err := s.Manifests.Apply(t.Context(), a, schemas.ManifestRequest{Manifest: manifest(t, resources(20, 4<<10)...), DryRun: dry})
		full(t, err, "resources")
	}
	if after, _ := s.RecordUsage(a); after != before {
		t.Fatalf("%+v are kept, %+v before", after, before)
	}
	apply := func(prune bool, resources ...string) {
		t.Helper()
		testwait.Must(s.Manifests.Apply(t.Context(), a, schemas.ManifestRequest{Manifest: manifest(t, resources...), Prune: prune}))(t)
	}
	apply(false, resources(10, 4<<10)...)
	shown := testwait.Must(json.Marshal(testwait.Must(s.Manifests.Get(t.Context(), a, "p"))(t)))(t)
	if len(shown) > 2*quota {
		t.Errorf("what stands of a project is %d bytes", len(shown))
	}
	s.Quota.Bytes = 1024
	apply(false, resources(10, 4<<10)...)
	apply(false, resources(10, 1<<10)...)
	apply(true, resources(5, 1<<10)...)
	_, err := s.Manifests.Apply(t.Context(), a, schemas.ManifestRequest{Manifest: manifest(t, resources(6, 1<<10)...)})
	full(t, err, "resources")
}

// TestARecordTakesWhatWasWritten: signs that HTML would escape, of which scripts are full, count once.
func TestARecordTakesWhatWasWritten(t *testing.T) {
	t.Parallel()
	s, a, _ := bounded(t, bus(t))
	before, _ := s.RecordUsage(a)
	const size = 12 << 10
	body := fmt.Appendf(nil, `{"name":"b","config":{"envVars":{"X":%q}}}`, strings.Repeat("<&>", size/3))
	testwait.Must(s.Documents.Add(t.Context(), a, schemas.Sandboxes, body))(t)
	if after, _ := s.RecordUsage(a); after.Bytes-before.Bytes > 2*size {
		t.Errorf("%d bytes were written, and %d more are kept", size, after.Bytes-before.Bytes)
	}
}
