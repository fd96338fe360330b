package accountkeys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// leaf is a provider in memory, of one key.
type leaf struct {
	key    string
	calls  *[]string // of all leaves
	boxes  []providers.KeptBox
	down   error
	silent bool // lists wait for as long as they may
	closed bool
}

func (l *leaf) note(format string, args ...any) {
	*l.calls = append(*l.calls, l.key+" "+fmt.Sprintf(format, args...))
}

func (l *leaf) Run(_ context.Context, cmd providers.Command) (providers.Result, error) {
	l.note("run in %q", cmd.Sandbox.ID)
	return providers.Result{Started: true, Sandbox: cmd.Sandbox}, l.down
}

func (l *leaf) Reserve(_ context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	l.note("reserve %s", key)
	ref := schemas.Ref{ID: l.key + "/" + key, Epoch: "1"} // ids may have a slash
	l.boxes = append(l.boxes, providers.KeptBox{Ref: ref, Key: key, Account: spec.Account})
	return ref, l.down
}

func (l *leaf) Release(_ context.Context, ref schemas.Ref) error {
	l.note("release %s", ref.ID)
	return l.down
}

func (l *leaf) Pause(_ context.Context, ref schemas.Ref) error {
	l.note("pause %s", ref.ID)
	return l.down
}

func (l *leaf) EndRun(_ context.Context, _ string, _ schemas.AccountID, id string) error {
	l.note("end %s", id)
	return l.down
}

func (l *leaf) ListKept(ctx context.Context, _ string) ([]providers.KeptBox, error) {
	if l.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return slices.Clone(l.boxes), l.down
}

func (l *leaf) Profile() providers.Profile { return providers.Profile{Name: l.key} }
func (l *leaf) Close() error               { l.closed = true; return nil }

// world is an operator's leaf and those of keys, with the keys of accounts.
type world struct {
	calls  []string
	keys   map[schemas.AccountID][]string
	leaves map[string]*leaf
	unread error // of a key
	Leaf
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	w := &world{keys: map[schemas.AccountID][]string{}, leaves: map[string]*leaf{}}
	operator := &leaf{key: "operator", calls: &w.calls}
	w.leaves["operator"] = operator
	o := Options{
		Operator: operator, Needs: "the variable KEY", Log: slog.New(slog.DiscardHandler),
		Key: func(_ context.Context, a schemas.AccountID) ([]string, bool, error) {
			return w.keys[a], w.keys[a] != nil, w.unread
		},
		Accounts: func() (all []schemas.AccountID) {
			for a := range w.keys {
				all = append(all, a)
			}
			return all
		},
		Open: func(key []string) (Leaf, error) {
			if key[0] == "bad" {
				return nil, schemas.Invalidf("key", "is none")
			}
			l := &leaf{key: key[0], calls: &w.calls}
			w.leaves[key[0]] = l
			return l, nil
		},
	}
	if change != nil {
		change(&o)
	}
	w.Leaf = New(o)
	return w
}

// did checks what the leaves were asked for since the last time.
func (w *world) did(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.calls, want) {
		t.Errorf("the leaves were asked for %q, want %q", w.calls, want)
	}
	w.calls = nil
}

func spec(a schemas.AccountID) providers.Spec { return providers.Spec{Account: a} }

// TestWhoseKey: an account's own key is used where it has one, and a kept sandbox stays with the key that it was made with.
//
//guarantee:bounds
func TestWhoseKey(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, nil), t.Context()
	first, err := w.Reserve(ctx, "k", spec("acct_1"))
	if err != nil {
		t.Fatal(err)
	}
	w.keys["acct_1"] = []string{"mine"}
	own, err := w.Reserve(ctx, "k", spec("acct_1"))
	if err != nil || own == first {
		t.Fatalf("%v and %v, %v", first, own, err)
	}
	w.did(t, "operator reserve k", "mine reserve k")

	pauser, ok := w.Leaf.(providers.Pauser)
	if !ok {
		t.Fatal("it cannot pause")
	}
	for _, ref := range []schemas.Ref{first, own} {
		r, err := w.Run(ctx, providers.Command{Sandbox: ref}) // as jobs are asked about: without a spec
		if err != nil || r.Sandbox != ref {
			t.Errorf("%v ran in %v, %v", ref, r.Sandbox, err)
		}
		if err := errors.Join(pauser.Pause(ctx, ref), w.Release(ctx, ref)); err != nil {
			t.Error(err)
		}
	}
	w.did(t, `operator run in "operator/k"`, "operator pause operator/k", "operator release operator/k",
		`mine run in "mine/k"`, "mine pause mine/k", "mine release mine/k")

	for _, a := range []schemas.AccountID{"acct_1", "acct_2"} {
		if r, err := w.Run(ctx, providers.Command{Spec: spec(a)}); err != nil || !r.Sandbox.IsZero() {
			t.Errorf("%+v, %v", r, err)
		}
		if err := w.EndRun(ctx, "k", a, "run-"+string(a)); err != nil {
			t.Error(err)
		}
	}
	w.did(t, `mine run in ""`, "mine end run-acct_1", "operator end run-acct_1", `operator run in ""`, "operator end run-acct_2")
}

// TestKeyIsTakenAway: a kept sandbox of a key that is gone is gone for calls, and its release is no error that is tried for ever.
func TestKeyIsTakenAway(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, nil), t.Context()
	w.keys["acct_1"] = []string{"mine"}
	own, err := w.Reserve(ctx, "k", spec("acct_1"))
	if err != nil {
		t.Fatal(err)
	}
	delete(w.keys, "acct_1")
	w.did(t, "mine reserve k")
	if r, err := w.Run(ctx, providers.Command{Sandbox: own, Spec: spec("acct_1")}); !errors.Is(err, schemas.ErrNotFound) || r.Started {
		t.Errorf("%v, %+v", err, r)
	}
	if err := errors.Join(w.Leaf.(providers.Pauser).Pause(ctx, own), w.Release(ctx, own)); err != nil {
		t.Error(err)
	}
	w.did(t)
	w.keys["acct_1"] = []string{"rotated", "of two parts"}
	if _, err := w.Run(ctx, providers.Command{Sandbox: own}); err != nil {
		t.Error(err)
	}
	w.did(t, `rotated run in "mine/k"`) // another key of the same team
}

// TestKeysThatCannotBeUsed: what is wrong with an account's key is said to it, and the operator's is not used in its place.
func TestKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, nil), t.Context()
	w.keys["acct_1"] = []string{"bad"}
	_, err := w.Run(ctx, providers.Command{Spec: spec("acct_1")})
	if schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "the variable KEY") {
		t.Errorf("a key that is none: %v", err)
	}
	w.unread = schemas.Errorf(schemas.Unavailable, "the log is away")
	if _, err := w.Reserve(ctx, "k", spec("acct_1")); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("a key that cannot be read: %v", err)
	}
	w.did(t)
	w.unread, w.keys["acct_1"] = nil, []string{"refused"}
	if _, err := w.Reserve(ctx, "k", spec("acct_1")); err != nil {
		t.Fatal(err)
	}
	w.leaves["refused"].down = schemas.Errorf(schemas.Denied, "refuses the credentials of this worker")
	_, runs := w.Run(ctx, providers.Command{Spec: spec("acct_1")})
	_, reserves := w.Reserve(ctx, "k", spec("acct_1"))
	for _, err := range []error{runs, reserves} {
		if schemas.CodeOf(err) != schemas.Denied || !strings.Contains(schemas.Public(err).Message, "account's own key") {
			t.Errorf("a key that is refused: %v", err)
		}
	}
	w.calls = nil

	w = newWorld(t, func(o *Options) { o.Require = true })
	if _, err := w.Run(ctx, providers.Command{Spec: spec("acct_1")}); schemas.CodeOf(err) != schemas.Unsupported ||
		!strings.Contains(err.Error(), "sandjet variables set") {
		t.Errorf("no key where one is required: %v", err)
	}
	w.did(t)
}

// TestLists: all keys are listed, each account's boxes by its own key; where one does not answer, it is said whose boxes are not known.
//
//guarantee:bounds
func TestLists(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, nil), t.Context()
	w.keys["acct_1"], w.keys["acct_2"], w.keys["acct_3"] = []string{"shared"}, []string{"shared"}, []string{"own"}
	var want []schemas.Ref
	for _, a := range []schemas.AccountID{"acct_0", "acct_1", "acct_2", "acct_3"} {
		ref, err := w.Reserve(ctx, "k-"+string(a), spec(a))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, ref)
	}
	listed := func() (refs []schemas.Ref, err error) {
		boxes, err := w.ListKept(ctx, "deployment")
		for _, b := range boxes {
			refs = append(refs, b.Ref)
		}
		slices.SortFunc(refs, func(a, b schemas.Ref) int { return strings.Compare(a.ID, b.ID) })
		return refs, err
	}
	slices.SortFunc(want, func(a, b schemas.Ref) int { return strings.Compare(a.ID, b.ID) })
	if got, err := listed(); err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %v, %v, want %v", got, err, want)
	}
	w.leaves["own"].down = errors.New("the service is away")
	got, err := listed()
	partial, ok := errors.AsType[*providers.PartialList](err)
	if !ok || !slices.Equal(partial.Accounts, []schemas.AccountID{"acct_3"}) || schemas.CodeOf(err) != schemas.Unavailable || len(got) < 3 {
		t.Errorf("listed %v, %v", got, err)
	}
	w.leaves["operator"].down = errors.New("the service is away")
	_, err = listed()
	if _, part := errors.AsType[*providers.PartialList](err); part || err == nil {
		t.Errorf("without the operator's list: %v", err)
	}
}

// TestListsWhileAServiceIsUnavailable: of a thousand keys few are asked while the service gives no answer, or answers some of them alone; the
// list says whose boxes it lacks, and the next one begins with those that were not asked.
//
//guarantee:bounds
func TestListsWhileAServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	const many = 1000
	for name, l := range map[string]struct {
		leaf func(n int) *leaf // of the n-th account
		most int               // that may be asked
	}{
		"no answer": {func(int) *leaf { return &leaf{silent: true} }, enoughLost + listsAtOnce},
		"no connection": {func(int) *leaf {
			return &leaf{down: schemas.Errorf(schemas.Unavailable,
				"no connection")}
		}, enoughLost + listsAtOnce},
		"every fourth answers": {func(n int) *leaf { return &leaf{silent: n%4 != 0} }, 5 * listsAtOnce * int(listBudget/listWithin)},
		"refused":              {func(int) *leaf { return &leaf{down: schemas.Errorf(schemas.Denied, "refused")} }, many},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				asked := map[string]bool{}
				w := newWorld(t, func(o *Options) {
					o.Open = func(key []string) (Leaf, error) {
						mu.Lock()
						defer mu.Unlock()
						asked[key[0]] = true
						n, err := strconv.Atoi(key[0])
						return l.leaf(n), err
					}
				})
				for n := range many {
					w.keys[schemas.AccountID(fmt.Sprintf("acct_%04d", n))] = []string{fmt.Sprintf("%04d", n)}
				}
				before := 0
				for range 3 {
					_, err := w.ListKept(t.Context(), "deployment")
					partial, ok := errors.AsType[*providers.PartialList](err)
					if !ok || len(partial.Accounts)+l.most < many {
						t.Fatalf("%v", err)
					}
					for key := range asked {
						n, _ := strconv.Atoi(key)
						if !slices.Contains(partial.Accounts, schemas.AccountID("acct_"+key)) && l.leaf(n).down != nil {
							t.Errorf("the account of key %s is not among those whose boxes are unknown", key)
						}
					}
					if now := len(asked) - before; now == 0 && before < many || now > l.most {
						t.Errorf("%d keys more were asked, want 1 to %d", now, l.most)
					}
					before = len(asked)
				}
			})
		})
	}
}

// TestOpenProviders: those that nothing uses are closed when there are too many, one that is in use never, and all at the end.
//
//guarantee:bounds
func TestOpenProviders(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, nil), t.Context()
	w.keys["acct_used"] = []string{"used"}
	used, release, err := w.Leaf.(pausing).own(ctx, "acct_used")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * MaxOpen {
		a := schemas.AccountID(fmt.Sprint("acct_", n))
		w.keys[a] = []string{fmt.Sprint("key", n)}
		if _, err := w.Run(ctx, providers.Command{Spec: spec(a)}); err != nil {
			t.Fatal(err)
		}
	}
	open := 0
	for _, l := range w.leaves {
		if !l.closed {
			open++
		}
	}
	if open > MaxOpen+1 || used.(*leaf).closed { // and the operator's
		t.Errorf("%d are open; the one in use is closed: %v", open, used.(*leaf).closed)
	}
	release()
	if err := w.Close(); err != nil || !used.(*leaf).closed || w.leaves["operator"].closed {
		t.Errorf("after the end: %v", err)
	}
	if _, err := w.Run(ctx, providers.Command{Spec: spec("acct_used")}); schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("after the end: %v", err)
	}
}
