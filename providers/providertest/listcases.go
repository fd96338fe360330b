package providertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

type listCase struct {
	name string
	run  func(t *testing.T, s subject, r providers.Reserver, l providers.Lister)
}

func listCases() []listCase {
	return []listCase{
		{"a kept box is listed as it was reserved", listed},
		{"what was released is not listed", listedReleased},
		{"boxes of another deployment, or of none, are not listed", listedOthers},
		{"what is listed can be released", releaseListed},
		{"boxes of nobody in particular are not listed", listWithoutDeployment},
	}
}

// of reserves a box of a deployment and releases it at the end of the test.
func (s subject) of(t *testing.T, r providers.Reserver, deployment, key string) schemas.Ref {
	t.Helper()
	spec := s.spec()
	spec.Deployment = deployment
	ref, err := r.Reserve(t.Context(), key, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Release(context.WithoutCancel(t.Context()), ref); err != nil { // the test's own has ended
			t.Error(err)
		}
	})
	return ref
}

// deployment returns a new deployment for a test.
func deployment() string { return schemas.NewID("dep_") }

func listKept(t *testing.T, l providers.Lister, of string) []providers.KeptBox {
	t.Helper()
	all, err := l.ListKept(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func listed(t *testing.T, s subject, r providers.Reserver, l providers.Lister) {
	const clocks = time.Minute // how far those of a host and of what makes its boxes may be apart here
	begun, of := time.Now(), deployment()
	ref := s.of(t, r, of, t.Name())
	s.another().of(t, r, of, t.Name()+"/two")
	all := listKept(t, l, of)
	if len(all) != 2 {
		t.Fatalf("%d boxes are listed, want 2: %+v", len(all), all)
	}
	i := slices.IndexFunc(all, func(b providers.KeptBox) bool { return b.Key == t.Name() })
	if i < 0 {
		t.Fatalf("the box is not listed under its key: %+v", all)
	}
	got := all[i]
	want(t, "Ref", got.Ref, ref)
	want(t, "Account", got.Account, account)
	want(t, "State", got.State, providers.BoxRunning)
	if got.Age < -clocks || got.Age > time.Since(begun)+clocks {
		t.Errorf("it is %s old, want at most %s", got.Age, time.Since(begun))
	}
}

func listedReleased(t *testing.T, s subject, r providers.Reserver, l providers.Lister) {
	of := deployment()
	ref := s.of(t, r, of, t.Name())
	if err := r.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if all := listKept(t, l, of); len(all) != 0 {
		t.Errorf("a released box is listed: %+v", all)
	}
}

func listedOthers(t *testing.T, s subject, r providers.Reserver, l providers.Lister) {
	mine, other := deployment(), deployment()
	s.of(t, r, other, t.Name()+"/other")
	s.another().of(t, r, "", t.Name()+"/none")
	if all := listKept(t, l, mine); len(all) != 0 {
		t.Errorf("boxes of others are listed: %+v", all)
	}
	want(t, "boxes of the other deployment", len(listKept(t, l, other)), 1)
}

func releaseListed(t *testing.T, s subject, r providers.Reserver, l providers.Lister) {
	of := deployment()
	s.of(t, r, of, t.Name())
	for _, b := range listKept(t, l, of) {
		if err := r.Release(t.Context(), b.Ref); err != nil {
			t.Fatal(err)
		}
	}
	if all := listKept(t, l, of); len(all) != 0 {
		t.Errorf("what was listed and released is there: %+v", all)
	}
}

func listWithoutDeployment(t *testing.T, _ subject, _ providers.Reserver, l providers.Lister) {
	_, err := l.ListKept(t.Context(), "")
	wantCode(t, err, schemas.Invalid)
}
