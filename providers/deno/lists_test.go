package deno_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/deno/denotest"
	"github.com/sandjet/sandjet/providers/internal/cloudtest"
)

// TestListsEnd: a list without an end is an error, and not a part of it.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	cloudtest.ListsEnd(t, func(w http.ResponseWriter, _ int64) {
		_, err := fmt.Fprint(w, `[{"id":"sbx_ord_1","status":"stopped"}`)
		for long := `,{"id":"sbx_ord_2","status":"stopped","labels":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`; err == nil; {
			_, err = fmt.Fprint(w, long)
		}
	}, func(url string) providers.Lister { return on(t, url, nil) })
}

// TestStoppedSandboxesInLists: a list has what has stopped for as long as the service keeps it, and that may be more than any other answer.
func TestStoppedSandboxesInLists(t *testing.T) {
	t.Parallel()
	p, s := start(t, denotest.Options{}, nil)
	kept := spec()
	kept.Deployment = "dep-1"
	ref, err := p.Reserve(t.Context(), "key", kept)
	testwait.OK(t, err)
	s.Ended(40 << 20)
	boxes, err := p.ListKept(t.Context(), "dep-1")
	if err != nil || len(boxes) != 1 || boxes[0].Ref != ref {
		t.Errorf("it lists %+v, %v", boxes, err)
	}
	s.Ended(0)
	testwait.OK(t, p.Release(t.Context(), ref))
}
