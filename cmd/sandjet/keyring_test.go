package main

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

func TestTheKeyOfADataFolderIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := dataDir(t.TempDir())
	if _, err := (secretsFlags{}).known(t.Context(), dir); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("before it is made: %v", err)
	}
	const processes = 8
	ids := make([]string, processes)
	var wg sync.WaitGroup
	for n := range ids {
		wg.Go(func() {
			r, err := secretsFlags{}.ring(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			ids[n] = r.Current()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("processes have different keys: %v", ids)
		}
	}
}

func TestAFileOfKeysIsForItsOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(seal.Generate().Line()), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o440: true, 0o660: false, 0o644: false, 0o601: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := secretsFlags{}.readRing(t.Context(), path)
		if _, _, asked := (natsAccessFlags{NATSCalloutKeys: path}).callout(); errors.Is(asked, schemas.ErrDenied) == ok {
			t.Errorf("mode %o of the keys for an outside server: %v", mode, asked)
		}
		if ok && err != nil || !ok && !errors.Is(err, schemas.ErrDenied) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if _, err := (secretsFlags{}).readRing(t.Context(), t.TempDir()); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("a folder: %v", err)
	}
}
