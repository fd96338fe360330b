package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func testDir(t *testing.T) dataDir {
	t.Helper()
	d, err := openDataDir(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestIdentityIsMadeOnce(t *testing.T) {
	d := testDir(t)
	const many = 16
	got := make([]identity, many)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = d.identity(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range got {
		if id != got[0] || id.Account.Validate() != nil || len(id.Key) < 20 {
			t.Errorf("identities %+v and %+v", id, got[0])
		}
	}
	info, err := os.Stat(d.identityFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("identity.json: %v, %v", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(string(d), "*.tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestNoOtherProcessWritesToTheDataFolder: if others may write to the data folder, their write permissions are removed, with a line in the
// log. Their read permissions stay.
func TestNoOtherProcessWritesToTheDataFolder(t *testing.T) {
	for _, c := range []struct{ mode, want os.FileMode }{{0o700, 0o700}, {0o755, 0o755}, {0o777, 0o755}, {0o770, 0o750}} {
		d := testDir(t)
		if err := os.Chmod(string(d), c.mode); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		d.secure(slog.New(slog.NewTextHandler(&said, nil)))
		info, err := os.Stat(string(d))
		if err != nil || info.Mode().Perm() != c.want {
			t.Errorf("of %v: %v, %v; want %v", c.mode, info.Mode().Perm(), err, c.want)
		}
		if (said.Len() > 0) != (c.mode != c.want) {
			t.Errorf("of %v it says %q", c.mode, said.String())
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	d := testDir(t)
	if err := os.Chown(string(d), 4711, 4711); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	d.secure(slog.New(slog.NewTextHandler(&said, nil)))
	if !strings.Contains(said.String(), "4711") {
		t.Errorf("of a foreign folder it says %q", said.String())
	}
}

func TestADamagedCredentialIsNotReplaced(t *testing.T) {
	d := testDir(t)
	if err := os.WriteFile(d.identityFile(), []byte(`{"account":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.identity(); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(d.identityFile()); err != nil || string(b) != `{"account":` {
		t.Errorf("it was replaced: %s, %v", b, err)
	}
}

// TestALostIdentityIsNotReplaced: if the identity file of a data folder is missing, starting is an error. A new identity would be another
// account, to which all stored records would seem lost.
func TestALostIdentityIsNotReplaced(t *testing.T) {
	d := testDir(t)
	first, err := d.identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.identityFile()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if id, err := d.identity(); !errors.Is(err, schemas.ErrNotFound) || !strings.Contains(err.Error(), string(first.Account)) {
			t.Errorf("got %+v, %v; want not_found that names %s", id, err, first.Account)
		}
	}
	if _, err := os.Stat(d.identityFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another identity was made: %v", err)
	}
	if err := writeJSON(d.identityFile(), first); err != nil { // from a backup
		t.Fatal(err)
	}
	if id, err := d.identity(); err != nil || id != first {
		t.Errorf("restored: %+v, %v", id, err)
	}
}

// TestAnOlderFolderIsRemembered: a data folder that has an identity and no format file, because an older version made it or a process died
// before it wrote one, keeps the identity, and its account is remembered from then on.
func TestAnOlderFolderIsRemembered(t *testing.T) {
	d := testDir(t)
	if err := os.Remove(d.formatFile()); err != nil {
		t.Fatal(err)
	}
	old := identity{Account: "acct_old", Key: "sk_aaaaaaaaaaaaaaaaaaaaaaaaaa"}
	if err := writeJSON(d.identityFile(), old); err != nil {
		t.Fatal(err)
	}
	again, err := openDataDir(string(d))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := again.identity(); err != nil || id != old {
		t.Errorf("got %+v, %v", id, err)
	}
	if a, err := again.account(); err != nil || a != old.Account {
		t.Errorf("remembered %q, %v", a, err)
	}
}

// TestAFolderOfANewerVersionIsNotTouched: it is refused before anything is written to it.
func TestAFolderOfANewerVersionIsNotTouched(t *testing.T) {
	for text, code := range map[string]error{
		`{"format":2,"account":"acct_x","more":true}`: schemas.ErrUnsupported,
		`{"format":0}`: schemas.ErrInvalid,
		`{"format":`:   nil,
	} {
		d := testDir(t)
		if err := os.WriteFile(d.formatFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, opened := openDataDir(string(d))
		_, made := d.identity()
		for _, err := range []error{opened, made} {
			if err == nil || code != nil && !errors.Is(err, code) ||
				!strings.Contains(err.Error(), "format.json") && !strings.Contains(err.Error(), "format 2") {
				t.Errorf("%s: %v, want %v", text, err, code)
			}
		}
		left, err := os.ReadDir(string(d))
		b, _ := os.ReadFile(d.formatFile())
		if err != nil || len(left) != 1 || string(b) != text {
			t.Errorf("%s: it was written to: %v, %s, %v", text, left, b, err)
		}
	}
}

func TestOneClaimAtATime(t *testing.T) {
	d := testDir(t)
	first, err := d.claim()
	if err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(d.upFile(), endpoint{URL: "http://127.0.0.1:1", PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	_, err = d.claim()
	if want := fmt.Sprintf("process %d at http://127.0.0.1:1", os.Getpid()); !errors.Is(err, schemas.ErrConflict) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("the second claim: %v, want conflict that names %s", err, want)
	}
	if _, err := d.running(); err != nil {
		t.Errorf("the refused claim disturbed the first: %v", err)
	}
	first.release()
	second, err := d.claim() // what the first left behind is stale now
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if _, err := d.running(); !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "nothing is running") {
		t.Errorf("a stale up.json is still believed: %v", err)
	}
}

func TestADeadProcessIsNotRunning(t *testing.T) {
	d := testDir(t)
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(d.upFile(), endpoint{URL: "http://127.0.0.1:1", PID: cmd.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.running(); !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "has died") {
		t.Errorf("got %v", err)
	}
	for _, pid := range []int{0, -1} {
		if alive(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
}

func TestCredentialsGoIntoTheAddress(t *testing.T) {
	if got := credentials("nats://127.0.0.1:4222", "acct_1", "sk_1"); got != "nats://acct_1:sk_1@127.0.0.1:4222" {
		t.Error(got)
	}
	if got := credentials("", "a", "b"); got != "" {
		t.Error(got)
	}
}

func TestAddressesOfOtherHostsNeedAWord(t *testing.T) {
	for text, local := range map[string]bool{
		"127.0.0.1:0": true, "localhost:80": true, "[::1]:80": true, "127.9.9.9:1": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:80": false, ":80": false, "[::]:80": false, "192.168.1.1:80": false, "example.com:80": false,
	} {
		var a address
		if err := a.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := a.allow("listen", false); (err == nil) != local {
			t.Errorf("%s: %v", text, err)
		}
		if err := a.allow("listen", true); err != nil {
			t.Errorf("%s, allowed: %v", text, err)
		}
	}
	for _, text := range []string{"", "127.0.0.1", "a:b", "a:-1", "a:65536", "[::1"} {
		if err := new(address).UnmarshalText([]byte(text)); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%q is an address: %v", text, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]byteSize{"0": 0, "1024": 1024, "1KiB": 1024, "10GiB": 10 << 30, "1 MB": 1e6, "2TiB": 2 << 40} {
		var b byteSize
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%s = %d, %v; want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "1.5GiB", "1PiB", "99999999999GiB", "99999999999999999999"} {
		if err := new(byteSize).UnmarshalText([]byte(text)); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%q is a size: %v", text, err)
		}
	}
}
