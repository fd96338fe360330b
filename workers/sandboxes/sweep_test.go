package sandboxes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestCompareBoxesWithRecords(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	const grace, old = 15 * time.Minute, time.Hour
	type (
		rows  = []streams.BucketEntry[schemas.Instance]
		boxes = []providers.KeptBox
	)
	row := func(workspace schemas.WorkspaceID, ref string, age time.Duration) streams.BucketEntry[schemas.Instance] {
		return streams.BucketEntry[schemas.Instance]{Revision: 7, Stored: now.Add(-age), Value: schemas.Instance{
			Account: "acct_1", Sandbox: "sb_1", Workspace: workspace, Ref: schemas.Ref{ID: ref},
		}}
	}
	box := func(key, ref string, age time.Duration) providers.KeptBox {
		return providers.KeptBox{Key: key, Account: "acct_1", Ref: schemas.Ref{ID: ref}, Age: age, State: providers.BoxRunning}
	}
	ending := box("acct_1.sb_1.ws_1", "a", old)
	ending.State = providers.BoxEnding
	made := func(row streams.BucketEntry[schemas.Instance], age time.Duration) streams.BucketEntry[schemas.Instance] {
		row.Value.Made = now.Add(-age)
		return row
	}
	key := "acct_1.sb_1.ws_1"
	both := boxes{box(key, "a", old), box(key, "b", old)}
	second := boxes{box(key, "a", old), box(key, "b", old)}
	second[1].State = providers.BoxEnding
	for name, c := range map[string]struct {
		row   rows
		boxes boxes
		busy  string
		grace time.Duration // 0: the default of this test
		want  []schemas.SweepAction
		ended string
	}{
		"nothing":                        {},
		"a box and its record":           {row: rows{row("ws_1", "a", old)}, boxes: boxes{box("acct_1.sb_1.ws_1", "a", old)}},
		"a box without a record":         {boxes: boxes{box("acct_1.sb_1.ws_1", "a", old)}, want: []schemas.SweepAction{schemas.SweepAdopt}},
		"a box that is just being made":  {boxes: boxes{box("acct_1.sb_1.ws_1", "a", grace)}},
		"a box that is being removed":    {boxes: boxes{ending}},
		"a record without a box":         {row: rows{row("ws_1", "a", old)}, want: []schemas.SweepAction{schemas.SweepForget}},
		"a record that was just written": {row: rows{row("ws_1", "a", grace)}},
		"a record of a box that was another": {row: rows{row("ws_1", "a", old)},
			boxes: boxes{box("acct_1.sb_1.ws_1", "b", old)}, want: []schemas.SweepAction{schemas.SweepForget}},
		"two boxes of a key": {row: rows{made(row("ws_1", "a", 0), old)}, boxes: both,
			want: []schemas.SweepAction{schemas.SweepEnd}, ended: "b"},
		"two boxes of a key, the other recorded": {row: rows{made(row("ws_1", "b", 0), old)}, boxes: both,
			want: []schemas.SweepAction{schemas.SweepEnd}, ended: "a"},
		"two boxes of a key, one with a job":                  {row: rows{made(row("ws_1", "a", 0), old)}, boxes: both, busy: "b"},
		"two boxes of a key, one just made":                   {row: rows{made(row("ws_1", "a", 0), old)}, boxes: boxes{both[0], box(key, "b", grace)}},
		"two boxes of a key, the record just changed":         {row: rows{made(row("ws_1", "a", 0), grace)}, boxes: both},
		"two boxes of a key, the same and without grace":      {row: rows{made(row("ws_1", "a", 0), grace)}, boxes: both, grace: -1},
		"two boxes of a key, one being removed":               {row: rows{made(row("ws_1", "a", 0), old)}, boxes: second},
		"two boxes of a key, none recorded yet":               {row: rows{made(row("ws_1", "", 0), 0)}, boxes: both},
		"two boxes of a key, a third recorded and not listed": {row: rows{made(row("ws_1", "c", 0), old)}, boxes: both},
		"a key of another version":                            {boxes: boxes{box("acct_1/sb_1", "a", old)}, want: []schemas.SweepAction{schemas.SweepLeave}},
		"a key of another account":                            {boxes: boxes{box("acct_2.sb_1.ws_1", "a", old)}, want: []schemas.SweepAction{schemas.SweepLeave}},
		"a key that is no subject":                            {boxes: boxes{box("acct_1.*.>", "a", old)}, want: []schemas.SweepAction{schemas.SweepLeave}},
		"several": {
			row:   rows{row("ws_2", "b", old), row("ws_3", "c", old)},
			boxes: boxes{box("acct_1.sb_1.ws_1", "a", old), box("acct_1.sb_1.ws_3", "c", old)},
			want:  []schemas.SweepAction{schemas.SweepAdopt, schemas.SweepForget},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []schemas.SweepAction
			busy := map[schemas.Ref]bool{{ID: c.busy}: true}
			for _, f := range compare(c.row, c.boxes, busy, now, cmp.Or(c.grace, grace)) {
				got = append(got, f.Action)
				if f.Action == schemas.SweepEnd && f.Ref != c.ended {
					t.Errorf("it ends %s, want %s", f.Ref, c.ended)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// lists is a provider that lists its persistent sandboxes.
type lists struct {
	keeps

	mu       sync.Mutex
	of       map[string][]providers.KeptBox // by deployment
	made     map[string]time.Time           // creation time, by id
	away     bool
	partial  []schemas.AccountID // accounts whose sandboxes are not listed
	between  func()              // called after the listing, before any step
	released []schemas.Ref
}

func (l *lists) ListKept(_ context.Context, deployment string) ([]providers.KeptBox, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, schemas.OpErrorf(schemas.Unavailable, "list", "the engine is away")
	}
	if l.between != nil {
		l.between()
	}
	all := slices.Clone(l.of[deployment])
	for i := range all {
		all[i].Age = time.Since(l.made[all[i].Ref.ID])
	}
	if l.partial != nil {
		return all, &providers.PartialList{Accounts: l.partial}
	}
	return all, nil
}

func (l *lists) Release(_ context.Context, ref schemas.Ref) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return schemas.OpErrorf(schemas.Unavailable, "release", "the engine is away")
	}
	for of := range l.of {
		l.of[of] = slices.DeleteFunc(l.of[of], func(b providers.KeptBox) bool { return b.Ref == ref })
	}
	l.released = append(l.released, ref)
	return nil
}

func (l *lists) add(of, key, ref string, made time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[of] = append(l.of[of], providers.KeptBox{
		Key: key, Account: "acct_1", Ref: schemas.Ref{ID: ref, Epoch: "a"}, State: providers.BoxRunning,
	})
	l.made[ref] = made
}

func (l *lists) ends() []schemas.Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.released)
}

func inSweep(t *testing.T, f func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string)) {
	t.Helper()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		of, err := streams.Deployment(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		p := &lists{of: map[string][]providers.KeptBox{}, made: map[string]time.Time{}}
		f(t, b, &Reconciler{
			Bus: b, Provider: p, Name: "fake", Records: records{}, Log: slog.New(slog.DiscardHandler),
			Lease: leases.New(b, leases.Record{Worker: "worker_1"}, nil, nil),
		}, p, of)
	})
}

func always() error { return nil }

func keysOf(t *testing.T, b *streams.Bus) []string {
	t.Helper()
	keys, err := lifecycle.OpenInstances(b).Keys(t.Context(), "fake.*.*.*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestABoxWithoutARecordIsAdopted(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		p.add(of, "acct_1.sb_1.ws_1", "orphan", time.Now())
		p.add("dep_other", "acct_1.sb_1.ws_2", "of another deployment", time.Now())
		sweep := func(dry bool) schemas.SweepReport {
			r, err := s.Sweep(t.Context(), dry, SweepGrace, always)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := sweep(false); len(r.Orphans) != 0 || len(keysOf(t, b)) != 0 {
			t.Fatalf("a box that may just be made was taken: %+v", r)
		}
		time.Sleep(SweepGrace + time.Minute)
		if r := sweep(true); len(r.Orphans) != 1 || r.Orphans[0].Done || r.Orphans[0].Action != schemas.SweepAdopt || len(keysOf(t, b)) != 0 {
			t.Fatalf("a dry sweep: %+v, %v", r, keysOf(t, b))
		}
		if r := sweep(false); len(r.Orphans) != 1 || !r.Orphans[0].Done {
			t.Fatalf("%+v", r)
		}
		if r := sweep(false); len(r.Orphans) != 0 || !slices.Equal(keysOf(t, b), []string{"fake.acct_1.sb_1.ws_1"}) {
			t.Fatalf("%+v, %v", r, keysOf(t, b))
		}
		got, err := lifecycle.FindInstance(t.Context(), b, "acct_1", "fake.sb_1.ws_1")
		if i := got.Value; err != nil || i.State != schemas.InstanceReady || i.Ref.ID != "orphan" || !i.Hooked.IsZero() ||
			!i.Deadline.After(b.Now()) {
			t.Errorf("%+v, %v", i, err)
		}
		if len(p.ends()) != 0 {
			t.Errorf("released %v", p.ends())
		}
	})
}

//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestARecordWithoutABoxIsForgotten(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		for _, w := range []schemas.WorkspaceID{"ws_1", "ws_2", "ws_3"} {
			i := schemas.Instance{Account: "acct_1", Sandbox: "sb_1", Workspace: w, Provider: "fake", State: schemas.InstanceReady,
				Ref: schemas.Ref{ID: string(w), Epoch: "a"}}
			if _, err := lifecycle.OpenInstances(b).Create(t.Context(), i.Key(), i, 0); err != nil {
				t.Fatal(err)
			}
		}
		p.add(of, "acct_1.sb_1.ws_1", "ws_1", time.Now())
		time.Sleep(SweepGrace + time.Minute)
		p.between = func() { // the box of ws_3 is created again just now
			bucket := lifecycle.OpenInstances(b)
			have, err := bucket.Get(t.Context(), "fake.acct_1.sb_1.ws_3")
			if err == nil {
				have.Value.Ref.ID = "new"
				_, err = bucket.Update(t.Context(), have.Key, have.Value, have.Revision)
			}
			if err != nil {
				t.Error(err)
			}
		}
		if r, err := s.Sweep(t.Context(), false, SweepGrace, always); err != nil || len(r.Orphans) != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		if want := []string{"fake.acct_1.sb_1.ws_1", "fake.acct_1.sb_1.ws_3"}; !slices.Equal(keysOf(t, b), want) {
			t.Errorf("%v, want %v", keysOf(t, b), want)
		}
	})
}

// TestAPartialListIsNoProof: if the sandboxes of some accounts are not listed, no record of these is removed and no sandbox adopted. Other
// accounts are handled.
func TestAPartialListIsNoProof(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		for _, a := range []schemas.AccountID{"acct_1", "acct_2"} {
			i := schemas.Instance{Provider: "fake", Account: a, Sandbox: "sb_1", Workspace: "ws_1", Ref: schemas.Ref{ID: "gone"}, State: schemas.InstanceReady}
			if _, err := lifecycle.OpenInstances(b).Create(t.Context(), i.Key(), i, 0); err != nil {
				t.Fatal(err)
			}
		}
		p.add(of, "acct_1.sb_1.ws_2", "orphan", time.Now())
		p.partial = []schemas.AccountID{"acct_1"}
		time.Sleep(SweepGrace + time.Minute)
		r, err := s.Sweep(t.Context(), false, SweepGrace, always)
		if err != nil || len(r.Orphans) != 1 || r.Orphans[0].Action != schemas.SweepForget || r.Orphans[0].Key != "acct_2.sb_1.ws_1" {
			t.Errorf("%+v, %v", r, err)
		}
		if got := keysOf(t, b); !slices.Equal(got, []string{"fake.acct_1.sb_1.ws_1"}) {
			t.Errorf("recorded are %v", got)
		}
	})
}

// TestASecondBoxOfAKeyIsEnded: a second sandbox of a key is ended, and never the recorded one, even if the record changes in between.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestASecondBoxOfAKeyIsEnded(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		bucket := lifecycle.OpenInstances(b)
		for _, w := range []schemas.WorkspaceID{"ws_1", "ws_2"} {
			i := schemas.Instance{Account: "acct_1", Sandbox: "sb_1", Workspace: w, Provider: "fake", State: schemas.InstanceReady,
				Ref: schemas.Ref{ID: "recorded " + string(w), Epoch: "a"}, Made: b.Now()}
			if _, err := bucket.Create(t.Context(), i.Key(), i, 0); err != nil {
				t.Fatal(err)
			}
			for _, ref := range []string{"recorded ", "second "} {
				p.add(of, "acct_1.sb_1."+string(w), ref+string(w), time.Now())
			}
		}
		if r, err := s.Sweep(t.Context(), false, 0, always); err != nil || len(r.Orphans) != 0 {
			t.Errorf("too early: %+v, %v", r, err)
		}
		time.Sleep(SweepGrace + time.Minute)
		if r, err := s.Sweep(t.Context(), true, SweepGrace, always); err != nil || len(r.Orphans) != 2 || len(p.ends()) != 0 {
			t.Errorf("dry: %+v, %v, released %v", r, err, p.ends())
		}
		held := func() error { // by the time of the step, the record of ws_2 names the other one
			have, err := bucket.Get(t.Context(), "fake.acct_1.sb_1.ws_2")
			if err == nil {
				have.Value.Ref.ID = "second ws_2"
				_, err = bucket.Update(t.Context(), have.Key, have.Value, have.Revision)
			}
			return err
		}
		r, err := s.Sweep(t.Context(), false, SweepGrace, held)
		if err != nil || len(r.Orphans) != 2 || !r.Orphans[0].Done || r.Orphans[1].Done {
			t.Errorf("%+v, %v", r, err)
		}
		if want := []schemas.Ref{{ID: "second ws_1", Epoch: "a"}}; !slices.Equal(p.ends(), want) {
			t.Errorf("released %v, want %v", p.ends(), want)
		}
		if want := []string{"fake.acct_1.sb_1.ws_1", "fake.acct_1.sb_1.ws_2"}; !slices.Equal(keysOf(t, b), want) {
			t.Errorf("%v, want %v", keysOf(t, b), want)
		}
	})
}

// If the list or the records cannot be read, nothing counts as gone. A worker that has lost the duty does nothing more.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestASweepThatCannotSeeOrMayNotDoesNothing(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		i := schemas.Instance{Account: "acct_1", Sandbox: "sb_1", Workspace: "ws_1", Provider: "fake", State: schemas.InstanceReady,
			Ref: schemas.Ref{ID: "a", Epoch: "a"}}
		if _, err := lifecycle.OpenInstances(b).Create(t.Context(), i.Key(), i, 0); err != nil {
			t.Fatal(err)
		}
		p.add(of, "acct_1.sb_1.ws_2", "orphan", time.Now())
		time.Sleep(SweepGrace + time.Minute)
		p.away = true
		if _, err := s.Sweep(t.Context(), false, SweepGrace, always); schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("%v, want unavailable", err)
		}
		p.away = false
		lost := errors.New("lost")
		if _, err := s.Sweep(t.Context(), false, SweepGrace, func() error { return lost }); !errors.Is(err, lost) {
			t.Errorf("%v, want %v", err, lost)
		}
		if want := []string{"fake.acct_1.sb_1.ws_1"}; !slices.Equal(keysOf(t, b), want) {
			t.Errorf("%v, want %v", keysOf(t, b), want)
		}
	})
}

// One of the workers sweeps for all, periodically and on request.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestWorkersSweepByThemselvesAndWhenAsked(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for range 3 {
			running.Go(func() { s.Run(ctx) })
		}
		p.add(of, "acct_1.sb_1.ws_1", "one", time.Now().Add(-time.Hour))
		time.Sleep(time.Second)
		ask := func(q string) (r schemas.SweepReport) {
			data, err := b.Ask(ctx, streams.SweepSubject("fake"), []byte(q))
			if err == nil {
				err = json.Unmarshal(data, &r)
			}
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := ask(`{"dry_run":true,"grace":"15m"}`); len(r.Orphans) != 1 || r.Orphans[0].Done || r.Error != nil || len(keysOf(t, b)) != 0 {
			t.Errorf("%+v", r)
		}
		if r := ask(`{"dry":true}`); r.Error == nil || r.Error.Code != schemas.Invalid || len(keysOf(t, b)) != 0 {
			t.Errorf("%+v", r)
		}
		if r := ask(`{"grace":"15m"}`); len(r.Orphans) != 1 || !r.Orphans[0].Done || len(keysOf(t, b)) != 1 {
			t.Errorf("%+v", r)
		}
		p.add(of, "acct_1.sb_1.ws_2", "two", time.Now().Add(-time.Hour))
		time.Sleep(DefaultSweepEvery + time.Minute)
		if len(keysOf(t, b)) != 2 {
			t.Errorf("%v: nobody swept by itself", keysOf(t, b))
		}
	})
}
