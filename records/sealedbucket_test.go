package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	planted = "pl4nted-s3cret"
	patient = 90 * time.Second // of everything that must happen at all
)

// openLog opens a log whose files are in dir.
func openLog(t *testing.T, dir string) *streams.Bus {
	t.Helper()
	return natstest.Start(t, natstest.Dir(dir), natstest.Shards(1)).Bus
}

func ringOf(t *testing.T, keys ...seal.Key) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func openStore(t *testing.T, b *streams.Bus, ring *seal.Ring) *Store {
	t.Helper()
	s, err := Open(t.Context(), b, ring, recordstest.Providers())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withSecrets are a sandbox and an endpoint that have some.
func withSecrets() (schemas.Sandbox, schemas.Endpoint) {
	return schemas.Sandbox{ID: "sb_1", Account: "acct_a", Name: "box", Provider: "local", EnvVars: map[string]string{"TOKEN": planted}},
		schemas.Endpoint{
			ID: "wh_1", Account: "acct_a", URL: "https://example.com/", Created: time.Unix(1, 0).UTC(),
			Secrets: []schemas.EndpointSecret{{Key: planted}, {Key: planted + "-2", Expires: time.Unix(9, 0).UTC()}},
		}
}

// keep writes both through a store and returns their keys.
func keep(t *testing.T, s *Store) (sandbox, endpoint string) {
	t.Helper()
	box, hook := withSecrets()
	for _, r := range []record{{Sandbox: &box}, {Endpoint: &hook}} {
		rev, err := s.bucket.Create(t.Context(), r.key(), r, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.apply(streams.BucketEntry[record]{Key: r.key(), Value: r, Revision: rev})
	}
	return sandboxKey(box.Account, box.ID), endpointKey(hook.Account, hook.ID)
}

// keepPlain writes both as they were before there were seals.
func keepPlain(t *testing.T, b *streams.Bus) {
	t.Helper()
	box, hook := withSecrets()
	plain := streams.OpenBucket[record](b, streams.Records)
	for _, r := range []record{{Sandbox: &box}, {Endpoint: &hook}} {
		if _, err := plain.Create(t.Context(), r.key(), r, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// raw returns the value of a key as the bucket has it.
func raw(t *testing.T, b *streams.Bus, key string) string {
	t.Helper()
	p, err := streams.OpenBucket[json.RawMessage](b, streams.Records).Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(p.Value)
}

// reads checks that a store has both with their secrets.
func reads(t *testing.T, s *Store) {
	t.Helper()
	box, hook := withSecrets()
	if got, err := s.Sandbox(t.Context(), box.Account, box.ID); err != nil || !maps.Equal(got.EnvVars, box.EnvVars) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.Endpoints.Get(t.Context(), hook.Account, hook.ID); err != nil || !reflect.DeepEqual(got.Secrets, hook.Secrets) {
		t.Errorf("%+v, %v", got, err)
	}
}

// filesWith lists the files below dir that hold text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

//guarantee:secrets-are-not-readable-on-the-log
func TestSecretsAreNotInTheLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := openLog(t, dir)
	ring := ringOf(t, seal.Generate())
	s := openStore(t, b, ring)
	sandbox, endpoint := keep(t, s)
	if err := s.Endpoints.Disable(t.Context(), "acct_a", "wh_1", "for the test"); err != nil { // a change seals again
		t.Fatal(err)
	}
	reads(t, s)
	reads(t, openStore(t, b, ring)) // as another process does
	for _, key := range []string{sandbox, endpoint} {
		value := raw(t, b, key)
		if strings.Contains(value, planted) || !strings.Contains(value, `"key":"`+ring.Current()+`"`) {
			t.Errorf("%s is kept as %s", key, value)
		}
	}
	if found := filesWith(t, dir, planted); len(found) > 0 {
		t.Errorf("the secret is in %s", found)
	}
	if found := filesWith(t, dir, `"wh_1"`); len(found) == 0 {
		t.Error("the search finds nothing that is there: it proves nothing")
	}
}

func TestPlainRecordsAreReadAndSealedByTheNextWrite(t *testing.T) {
	t.Parallel()
	b := openLog(t, t.TempDir())
	keepPlain(t, b)
	_, hook := withSecrets()
	endpoint := endpointKey(hook.Account, hook.ID)
	if !strings.Contains(raw(t, b, endpoint), planted) {
		t.Fatal("the record is not plain")
	}
	s := openStore(t, b, ringOf(t, seal.Generate()))
	reads(t, s)
	if err := s.Endpoints.Disable(t.Context(), hook.Account, hook.ID, "for the test"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(raw(t, b, endpoint), planted) {
		t.Error("it is plain still")
	}
	reads(t, s)
}

// A process without the key knows that there is something, says what is missing, and leaves it alone.
//
//guarantee:secrets-are-not-readable-on-the-log
func TestARecordWithoutItsKeyIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, ring := range map[string]*seal.Ring{"no keys": nil, "other keys": ringOf(t, seal.Generate())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openLog(t, t.TempDir())
			key := seal.Generate()
			sandbox, endpoint := keep(t, openStore(t, b, ringOf(t, key)))
			before := raw(t, b, sandbox) + raw(t, b, endpoint)
			s := openStore(t, b, ring)
			if _, err := s.Accounts.Ensure(t.Context(), Bootstrap{Account: "acct_a", Key: "sk_0123456789abcdef", Provider: "local"}); err != nil {
				t.Fatalf("other records: %v", err)
			}
			request := schemas.Request{Tool: schemas.ToolBash, Input: json.RawMessage(`{"command":"true"}`)}
			if _, err := s.Resolve(t.Context(), "acct_a", request); err != nil {
				t.Errorf("a call of another sandbox: %v", err)
			}
			request.Sandbox = "box"
			for what, err := range map[string]error{
				"the sandbox":   second(s.Sandbox(t.Context(), "acct_a", "sb_1")),
				"a call of it":  second(s.Resolve(t.Context(), "acct_a", request)),
				"the endpoint":  second(s.Endpoints.Get(t.Context(), "acct_a", "wh_1")),
				"all endpoints": second(s.Endpoints.List(t.Context(), "acct_a")),
				"a change":      s.Endpoints.Disable(t.Context(), "acct_a", "wh_1", "x"),
			} {
				public := schemas.Public(err)
				if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(public.Message, key.ID) ||
					!strings.Contains(public.Message, "--secrets-key-file") || strings.Contains(err.Error(), planted) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := s.Endpoints.List(t.Context(), "acct_b"); err != nil {
				t.Errorf("another account is in trouble as well: %v", err)
			}
			if after := raw(t, b, sandbox) + raw(t, b, endpoint); after != before {
				t.Errorf("it was written over:\n%s\n%s", before, after)
			}
			if err := s.Endpoints.Remove(t.Context(), "acct_a", "wh_1"); err != nil {
				t.Errorf("what cannot be opened any more cannot be deleted either: %v", err)
			}
			if list, err := s.Endpoints.List(t.Context(), "acct_a"); err != nil || len(list) != 0 {
				t.Errorf("after the deletion: %v, %v", list, err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func TestTheLogOfAProcessNamesTheMissingKey(t *testing.T) {
	t.Parallel()
	b := openLog(t, t.TempDir())
	key := seal.Generate()
	writer := openStore(t, b, ringOf(t, key))
	said := new(lockedText)
	s := openStore(t, b, nil)
	s.Log = slog.New(slog.NewTextHandler(said, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	sandbox, _ := keep(t, writer)
	for end := time.Now().Add(patient); strings.Count(said.String(), key.ID) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it says only:\n%s", said)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := said.String(); !strings.Contains(text, sandbox) || strings.Contains(text, planted) {
		t.Errorf("it says:\n%s", text)
	}
}

// lockedText is a buffer that a logger may write to beside its reader.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A value that is sealed for one record does not open in another, even for a process that can write to the log.
//
//guarantee:secrets-are-not-readable-on-the-log
func TestASealIsNotMovedToAnotherRecord(t *testing.T) {
	t.Parallel()
	b := openLog(t, t.TempDir())
	ring := ringOf(t, seal.Generate())
	s := openStore(t, b, ring)
	sandbox, _ := keep(t, s)
	p, err := s.bucket.bucket.Get(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	moved := *p.Value.Sandbox
	moved.Account = "acct_b"
	p.Value.Sandbox = &moved
	if _, err := s.bucket.bucket.Create(t.Context(), p.Value.key(), p.Value, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := openStore(t, b, ring).Sandbox(t.Context(), "acct_b", "sb_1"); !errors.Is(err, schemas.ErrInternal) || got.EnvVars != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestASecretWithoutKeysIsRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, openLog(t, t.TempDir()), nil)
	_, hook := withSecrets()
	if err := s.Endpoints.Add(t.Context(), hook); !errors.Is(err, schemas.ErrUnsupported) ||
		!strings.Contains(schemas.Public(err).Message, "--secrets-key-file") {
		t.Error(err)
	}
}

func TestEveryRecordComesBackFromTheVault(t *testing.T) {
	t.Parallel()
	v := sealedBucket{ring: ringOf(t, seal.Generate())}
	text := rapid.StringMatching(`[a-zA-Z0-9 =é]{8,30}`)
	proptest.Check(t, func(t *rapid.T) {
		box, hook := withSecrets()
		box.EnvVars = rapid.MapOf(text, text).Draw(t, "env")
		box.Name = rapid.String().Draw(t, "name")
		box.Persistent = rapid.Bool().Draw(t, "persistent")
		hook.Secrets = nil
		for _, k := range rapid.SliceOf(text).Draw(t, "secrets") {
			hook.Secrets = append(hook.Secrets, schemas.EndpointSecret{Key: k})
		}
		for _, r := range []record{{Sandbox: &box}, {Endpoint: &hook}, {Workspace: &schemas.Workspace{ID: "ws_1", Account: "acct_a"}}} {
			before := clone(t, r)
			s, err := v.seal(r.key(), r)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r, before) {
				t.Fatal("sealing changed the record of the caller")
			}
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			for k, value := range box.EnvVars {
				if r.Sandbox != nil && bytes.Contains(b, []byte(`"`+k+`":"`+value)) {
					t.Fatalf("%s is in %s", k, b)
				}
			}
			var back stored
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			got, err := v.open(r.key(), back)
			if err != nil || !reflect.DeepEqual(clone(t, got), before) {
				t.Fatalf("%v:\n%+v\n%+v", err, got, before)
			}
		}
	})
}

// clone is r by way of JSON, where nil and empty are alike.
func clone(t *rapid.T, r record) (c record) {
	b, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

//guarantee:secrets-are-not-readable-on-the-log
func TestRotateSealsEverythingAndForgetsWhatWas(t *testing.T) {
	t.Parallel()
	b := openLog(t, t.TempDir())
	older, newer, lost := seal.Generate(), seal.Generate(), seal.Generate()
	keepPlain(t, b)
	for n, k := range []seal.Key{older, lost, newer} {
		box, _ := withSecrets()
		box.ID = schemas.SandboxID(fmt.Sprint("sb_x", n))
		r := record{Sandbox: &box}
		if _, err := openStore(t, b, ringOf(t, k)).bucket.Create(t.Context(), r.key(), r, 0); err != nil {
			t.Fatal(err)
		}
	}
	workspace := record{Workspace: &schemas.Workspace{ID: "ws_1", Account: "acct_a"}}
	s := openStore(t, b, ringOf(t, newer, older))
	if _, err := s.bucket.Create(t.Context(), workspace.key(), workspace, 0); err != nil {
		t.Fatal(err)
	}
	count, err := CountSeals(t.Context(), b)
	want := Seals{Keys: map[string]int{older.ID: 1, newer.ID: 1, lost.ID: 1}, Plain: 2, NoSecrets: 1}
	if err != nil || !reflect.DeepEqual(count, want) {
		t.Errorf("before: %+v, %v", count, err)
	}
	told := 0
	for round, sealed := range []int{3, 0} { // again changes nothing
		r, err := Rotate(t.Context(), b, ringOf(t, newer, older), func(Rotation) { told++ })
		if err != nil || r != (Rotation{Records: 6, Seen: 6, Sealed: sealed, Locked: 1}) {
			t.Errorf("round %d: %+v, %v", round, r, err)
		}
	}
	if told != 12 {
		t.Errorf("progress was told %d times", told)
	}
	count, err = CountSeals(t.Context(), b)
	want = Seals{Keys: map[string]int{newer.ID: 4, lost.ID: 1}, NoSecrets: 1}
	if err != nil || !reflect.DeepEqual(count, want) {
		t.Errorf("after: %+v, %v", count, err)
	}
	reads(t, openStore(t, b, ringOf(t, newer)))
}

// A rotation beside changes neither loses them nor is lost.
//
//guarantee:secrets-are-not-readable-on-the-log
func TestRotateBesideChanges(t *testing.T) {
	t.Parallel()
	b := openLog(t, t.TempDir())
	older, newer := seal.Generate(), seal.Generate()
	s := openStore(t, b, ringOf(t, older, newer)) // a process that was not restarted yet
	keep(t, s)
	var wg sync.WaitGroup
	const changes = 30
	wg.Go(func() {
		for n := range changes {
			if _, err := s.Endpoints.Update(t.Context(), "acct_a", "wh_1", func(e *schemas.Endpoint) error {
				e.Concurrency = n + 1
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 5 {
			if _, err := Rotate(t.Context(), b, ringOf(t, newer, older), func(Rotation) {}); err != nil && !errors.Is(err, schemas.ErrConflict) {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	last := openStore(t, b, ringOf(t, newer, older))
	reads(t, last)
	if e, err := last.Endpoints.Get(t.Context(), "acct_a", "wh_1"); err != nil || e.Concurrency != changes {
		t.Errorf("%+v, %v", e, err)
	}
}
