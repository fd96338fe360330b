package folderid

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

//guarantee:a-persistent-instance-is-one-box
func TestWorkspacesHaveOneIdentity(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		all.Go(func() {
			id, err := Of(dir)
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	all.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("many processes at once: %q", ids)
		}
	}
	if other, err := Of(t.TempDir()); err != nil || other == ids[0] {
		t.Errorf("another folder: %q, %v", other, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, File), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := Of(dir); err == nil {
		t.Errorf("a damaged identity is taken as %q", id)
	}
}

func FuzzStoreID(f *testing.F) {
	f.Add([]byte("store_0123456789abcdef0123456789abcdef\n"))
	f.Add([]byte(""))
	path := filepath.Join(f.TempDir(), File)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := read(path); err == nil && len(id) != 38 {
			t.Errorf("%q from %q", id, data)
		}
	})
}
