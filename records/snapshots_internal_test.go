package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const zoe schemas.AccountID = "acct_zoe"

// local is a store without a log.
func local() *Store {
	return storeOf(&cache{
		providers: recordstest.Providers(), now: time.Now, index: newIndex(recordstest.Providers()), locked: map[string]error{},
		sizes: map[string]int{}, kept: map[schemas.AccountID]schemas.Amount{}, coming: map[schemas.AccountID]int64{},
	})
}

func (s *Store) has(r record) {
	s.takeIn(streams.BucketEntry[record]{Key: r.key(), Value: r, Revision: 1, Size: 100})
}

func zoes(key string) record {
	return record{Account: &schemas.Account{ID: zoe, KeyHash: HashKey(key)}}
}

// TestKeysAreFoundWhileARecordIsChecked: a check that takes long blocks no reader, also once a writer waits.
//
//guarantee:what-one-tenant-can-do-to-another
func TestKeysAreFoundWhileARecordIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := local()
		s.has(zoes("first"))
		s.has(record{Workspace: &schemas.Workspace{ID: "ws_1", Account: zoe, Name: "w"}})
		col := workspaceCollection()
		begun, proceed, checked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		col.fits = func(tn *tenant, _ record) error {
			close(begun)
			<-proceed
			if len(tn.workspaces.byID) != 1 {
				return errors.New("what is checked has changed meanwhile")
			}
			return nil
		}
		go func() {
			checked <- s.Documents.admit(zoe, col, record{Workspace: &schemas.Workspace{ID: "ws_2", Account: zoe, Name: "v"}}, "ws_2", true)
		}()
		<-begun
		s.has(zoes("second"))
		s.has(record{Workspace: &schemas.Workspace{ID: "ws_3", Account: zoe, Name: "u"}})
		if a, err := s.Authenticate(t.Context(), "second"); err != nil || a != zoe {
			t.Errorf("%s, %v", a, err)
		}
		close(proceed)
		if err := <-checked; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatWasHandedOutDoesNotChange: a reader of an account keeps seeing it as it was, whatever changes later. An account without readers
// is changed in place.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhatWasHandedOutDoesNotChange(t *testing.T) {
	t.Parallel()
	s := local()
	put := func(id, name string) {
		s.has(record{Sandbox: &schemas.Sandbox{ID: schemas.SandboxID("sb_" + id), Account: zoe, Name: name}})
		s.has(record{Workspace: &schemas.Workspace{ID: schemas.WorkspaceID("ws_" + id), Account: zoe, Name: name}})
		s.has(record{Agent: &schemas.Agent{ID: schemas.AgentID("agent_" + id), Account: zoe, Name: name}})
		s.has(record{Model: &schemas.Model{ID: schemas.ModelID("mdl_" + id), Account: zoe, Name: name}})
		s.has(record{Variable: &schemas.Variable{Account: zoe, Name: "V" + id, Value: name}})
		s.has(record{Endpoint: &schemas.Endpoint{ID: schemas.EndpointID("we_" + id), Account: zoe, URL: name}})
		s.has(record{Channel: &schemas.ChatChannel{ID: schemas.ChannelID("ch_" + id), Account: zoe, Name: name}})
		s.has(record{Skill: &schemas.Skill{ID: schemas.SkillID("sk_" + id), Account: zoe, SkillManifest: schemas.SkillManifest{Name: name}}})
	}
	shown := func(x *tenant) string {
		return fmt.Sprint(x.account, x.sandboxes, x.workspaces, x.agents, x.models, x.variables, x.endpoints, x.channels, x.skills)
	}
	put("1", "one")
	if first := s.index.tenants[zoe]; s.index.tenant(zoe) != first {
		t.Error("a tenant that was not handed out has a successor")
	}
	var tenants []*tenant
	var before []string
	for n := range 6 {
		x := s.tenantOf(zoe)
		if n == 5 {
			if x != nil {
				t.Error("a tenant without records is left")
			}
			break
		}
		tenants, before = append(tenants, x), append(before, shown(x))
		put(fmt.Sprint(n), []string{"one", "two", "one"}[n%3])
		if n == 4 {
			for key := range maps.Clone(s.sizes) {
				s.takeIn(streams.BucketEntry[record]{Key: key, Deleted: true, Revision: 2})
			}
		}
	}
	for n, x := range tenants {
		if got := shown(x); got != before[n] {
			t.Errorf("handed out as\n%s\nand now\n%s", before[n], got)
		}
	}
}

// TestNothingStaysOfRemovedAccounts: make-and-delete leaves nothing in memory.
func TestNothingStaysOfRemovedAccounts(t *testing.T) {
	t.Parallel()
	s := local()
	for n := range 100 {
		a := schemas.AccountID(fmt.Sprint("acct_", n))
		all := []record{{Account: &schemas.Account{ID: a, KeyHash: HashKey(string(a))}},
			{Sandbox: &schemas.Sandbox{ID: "sb_1", Account: a, Name: "s"}}, {Variable: &schemas.Variable{Account: a, Name: "V"}},
			{Sessions: &schemas.SandboxSessions{Account: a}}}
		for _, r := range all {
			s.has(r)
		}
		if n%2 == 0 { // one of them could not be opened
			s.lock(streams.BucketEntry[record]{Key: all[1].key(), Revision: 2, Size: 50}, errors.New("no key"))
		}
		release, _, _ := s.take(a, 10)
		release()
		for _, r := range slices.Backward(all) {
			s.takeIn(streams.BucketEntry[record]{Key: r.key(), Deleted: true, Revision: 3})
		}
	}
	if n := len(s.index.tenants) + len(s.index.keys) + len(s.sizes) + len(s.kept) + len(s.coming) + len(s.locked); n != 0 {
		t.Errorf("%d entries are left: %v", n, s.sizes)
	}
}

// TestManifestsOfAnAccountTakeTurns: one is applied at a time, those of other accounts do not wait, and nothing is left of them.
//
//guarantee:what-one-tenant-can-do-to-another
func TestManifestsOfAnAccountTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := local()
		enter := func(ctx context.Context, a schemas.AccountID) func() {
			leave, err := s.Manifests.applying.enter(ctx, a)
			if err != nil {
				t.Error(err)
			}
			return leave
		}
		first := enter(t.Context(), zoe)
		enter(t.Context(), "acct_other")()
		done := make(chan error, 1)
		go func() {
			_, err := s.Manifests.Apply(t.Context(), zoe, schemas.ManifestRequest{Manifest: schemas.Manifest{Version: 1, Project: "p"}, DryRun: true})
			done <- err
		}()
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Manifests.Apply(gone, zoe, schemas.ManifestRequest{DryRun: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("one whose client has gone: %v", err)
		}
		select {
		case err := <-done:
			t.Errorf("a second one is applied beside the first: %v", err)
		default:
		}
		first()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(s.Manifests.applying.of) != 0 {
			t.Errorf("%d accounts are left", len(s.Manifests.applying.of))
		}
	})
}

// TestAPlanChecksWhatItConcerns: a small manifest of an account with many records looks at few of them.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAPlanChecksWhatItConcerns(t *testing.T) {
	t.Parallel()
	const many = 300
	have := Present{Account: zoe, Providers: recordstest.Providers()}
	for n := range many {
		have.Sandboxes = append(have.Sandboxes, schemas.Sandbox{ID: schemas.SandboxID(fmt.Sprintf("sb_%d", n)), Account: zoe,
			Name: fmt.Sprint("s", n), Provider: "local"})
		have.Workspaces = append(have.Workspaces, schemas.Workspace{ID: schemas.WorkspaceID(fmt.Sprintf("ws_%d", n)), Account: zoe,
			Name: fmt.Sprint("w", n), Sandbox: schemas.SandboxID(fmt.Sprintf("sb_%d", n))})
		have.Agents = append(have.Agents, schemas.Agent{ID: schemas.AgentID(fmt.Sprintf("agent_%d", n)), Account: zoe, Name: fmt.Sprint("a", n),
			AgentConfig: schemas.AgentConfig{Sandbox: schemas.SandboxID(fmt.Sprintf("sb_%d", n))}})
	}
	m, err := schemas.DecodeManifest([]byte(`{"version":1,"project":"p","resources":[{"kind":"sandbox","name":"s7","config":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlanner(have, m, false, time.Unix(1, 0))
	if _, err := p.plan(); err != nil {
		t.Fatal(err)
	}
	const concerned = 1 + 2*2 // the sandbox itself; its workspace and its agent, before and after what is deleted
	if p.checks != concerned {
		t.Errorf("%d records were checked, want %d", p.checks, concerned)
	}
}
