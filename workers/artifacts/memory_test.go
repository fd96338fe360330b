package artifacts_test

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/artifacts"
)

// TestLooksAreBoundedInBytes: a listing of long names ends at its bytes; all listings of one account end at the account's, and another
// account has a separate bound. What was beyond is said to be, and what is released comes back.
//
//guarantee:bounds
func TestLooksAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c := d.collector("call_1")
	folder := "outputs/" + path.Join(strings.Repeat("a", 250), strings.Repeat("b", 250), strings.Repeat("c", 250), strings.Repeat("d", 250))
	d.write(folder+"/first", "x")
	held, held2 := d.memory.Of("acct_1"), d.memory.Of("acct_2")
	many := manyEntries{d.fsys, folder, 2 * artifacts.LookBytes / 1000}
	var found int
	for n := range 2 * artifacts.LooksBytesOfAccount / artifacts.LookBytes {
		l, err := c.Places.Look(t.Context(), many, held)
		if err != nil || len(l.Beyond) != 1 || l.Beyond[0] != schemas.OutputsFolder {
			t.Fatalf("look %d: %v beyond, %v", n, l.Beyond, err)
		}
		if n == 0 {
			found = len(l.Found)
		}
		if bytes, _ := d.memory.Held("acct_1"); bytes > artifacts.LooksBytesOfAccount || n == 0 && bytes > artifacts.LookBytes {
			t.Fatalf("look %d: %d bytes are held", n, bytes)
		}
	}
	if found < artifacts.LookBytes/2000 {
		t.Errorf("the first look has %d entries", found)
	}
	if l, err := c.Places.Look(t.Context(), many, held2); err != nil || len(l.Found) != found {
		t.Errorf("another account finds %d, not %d: %v", len(l.Found), found, err)
	}
	held.Release()
	held.Release()
	if bytes, _ := d.memory.Held("acct_1"); bytes != 0 {
		t.Errorf("%d bytes are held after the release", bytes)
	}
	if l, err := c.Places.Look(t.Context(), many, d.remembered("acct_1")); err != nil || len(l.Found) != found {
		t.Errorf("after the release it finds %d, not %d: %v", len(l.Found), found, err)
	}
	if l, err := c.Places.Look(t.Context(), many, held); err != nil || len(l.Found) != 0 {
		t.Errorf("a look that has outlived its call finds %d: %v", len(l.Found), err)
	}
	held2.Release()
}

// manyEntries is a workspace with a folder of many files of one content.
type manyEntries struct {
	workspacefs.FS

	folder string
	n      int
}

func (m manyEntries) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) error {
	if name != m.folder {
		return m.FS.ReadDir(ctx, name, follow, each)
	}
	for n := range m.n {
		if err := each(workspacefs.Entry{Name: fmt.Sprint(n), Source: entries{}}); err != nil {
			return err
		}
	}
	return nil
}

// entries describes all of them as the file first.
type entries struct{ info workspacefs.Info }

func (e entries) Describe(string) (workspacefs.Info, error) { return e.info, nil }

// TestDigestsAreBoundedForEachAccount: an account with many files forgets its own, and no other's.
//
//guarantee:bounds
func TestDigestsAreBoundedForEachAccount(t *testing.T) {
	t.Parallel()
	var m artifacts.Memory
	quiet := m.Of("quiet")
	quiet.Put("ws/a", workspacefs.Info{Size: 1}, "sum")
	for n := range 10 * artifacts.SumsOfAccount {
		m.Of("loud").Put(fmt.Sprintf("ws/%d", n), workspacefs.Info{Size: int64(n)}, strings.Repeat("0", 64))
		if _, digests := m.Held("loud"); digests > artifacts.SumsOfAccount {
			t.Fatalf("%d digests after %d files", digests, n)
		}
	}
	for n := range 1000 {
		m.Of("long").Put(fmt.Sprintf("ws/%s/%d", strings.Repeat("x", 4000), n), workspacefs.Info{}, strings.Repeat("0", 64))
	}
	if _, digests := m.Held("long"); digests > artifacts.SumsBytesOfAccount/4000 {
		t.Errorf("%d digests of files with long names", digests)
	}
	if got := quiet.Get("ws/a", workspacefs.Info{Size: 1}); got != "sum" {
		t.Errorf("the other account's digest is %q", got)
	}
	for n := range 10 * artifacts.SumsAccounts {
		a := schemas.AccountID(fmt.Sprint("a", n))
		m.Of(a).Put("ws/a", workspacefs.Info{}, "sum")
		quiet.Get("ws/a", workspacefs.Info{Size: 1}) // it is used all the time
	}
	if got := quiet.Get("ws/a", workspacefs.Info{Size: 1}); got != "sum" {
		t.Errorf("among many accounts the digest is %q", got)
	}
	if got := m.Of("a0").Get("ws/a", workspacefs.Info{}); got != "" {
		t.Errorf("the account that was not used longest has %q", got)
	}
}
