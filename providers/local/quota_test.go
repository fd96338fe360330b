//go:build linux

package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const mib = 1 << 20

// in is a command of an account in one of its workspaces.
func in(account schemas.AccountID, workspace, script string) providers.Command {
	mounts := []providers.Mount{{Namespace: schemas.Namespace(account, schemas.WorkspaceID(workspace))}}
	return providers.Command{Script: script, Mounts: mounts, Timeout: time.Minute, Spec: providers.Spec{Account: account, Mounts: mounts}}
}

// write writes n bytes to a file as the file tools do.
func write(t *testing.T, p *local.Provider, account schemas.AccountID, workspace, name string, n int) error {
	t.Helper()
	root, err := p.OpenWorkspace(t.Context(), account, providers.Mount{Namespace: schemas.Namespace(account, schemas.WorkspaceID(workspace))})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return root.Write(t.Context(), name, bytes.Repeat([]byte("x"), n), workspacefs.Replace, nil)
}

// wantFull wants an error that says which limit is reached.
func wantFull(t *testing.T, err error, code schemas.Code, word string) {
	t.Helper()
	if schemas.CodeOf(err) != code || !strings.Contains(schemas.Public(err).Message, word) {
		t.Errorf("error %v, want %s with %q", err, code, word)
	}
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to that: " + what)
		}
	}
}

// TestAFullWorkspaceL3: what runs above a limit is ended with the reason, nothing can be written then, and deleting
// makes room. Another account does not notice.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAFullWorkspaceL3(t *testing.T) {
	const a, b = schemas.AccountID("acct_a"), schemas.AccountID("acct_b")
	for _, tc := range []struct{ name, script, word string }{
		{"bytes", "printf begun; i=0; while :; do dd if=/dev/zero of=f$i bs=64K count=16 status=none || exit 3; i=$((i+1)); done",
			"--workspace-quota"},
		{"files", "printf begun; i=0; while :; do : >f$i; i=$((i+1)); done", "--workspace-files"},
		{"background", "printf begun; (setsid sh -c 'i=0; while :; do : >f$i; i=$((i+1)); done' &); sleep 600", "--workspace-files"},
		{"deep", "printf begun; d=; for j in {1..51}; do d=$d/d; done; for i in 1 2 3 4 5; do mkdir -p .$d; cd .$d; done; mkdir {1..300}; " +
			"sleep 600", "nested"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := open(t, "L3", func(o *local.Options) { o.WorkspaceQuota, o.WorkspaceFiles = 8*mib, 2000 })
			eventually(t, "the empty workspace is measured", func() bool { return write(t, p, a, "ws", "first", 10) == nil && p.Measured(a, "ws") })
			res, err := p.Run(t.Context(), in(a, "ws", tc.script))
			wantFull(t, err, schemas.Exhausted, tc.word)
			if !res.Started || string(res.Stdout) != "begun" {
				t.Errorf("the run that was ended: started %v, stdout %q, stderr %q", res.Started, res.Stdout, res.Stderr)
			}
			wantFull(t, write(t, p, a, "ws", "more", 10), schemas.Exhausted, tc.word)
			if err := write(t, p, a, "ws", "first", 0); err != nil {
				t.Errorf("what is made shorter: %v", err)
			}
			// The limit comes a moment after the command, which may be long on a busy machine.
			res, err = p.Run(t.Context(), in(a, "ws", "echo read; cat /etc/hostname; while echo more >>new; do sleep 0.1; done; echo refused"))
			if err != nil || string(res.Stdout) != "read\nsandbox\nrefused\n" || !strings.Contains(string(res.Stderr), tc.word) {
				t.Errorf("a run in a full workspace: %q, stderr %q, %v", res.Stdout, res.Stderr, err)
			}
			if res, err := p.Run(t.Context(), in(b, "ws", "echo more >new; cat new")); err != nil ||
				string(res.Stdout) != "more\n" || len(res.Stderr) != 0 {
				t.Errorf("another account: %q, stderr %q, %v", res.Stdout, res.Stderr, err)
			}
			if res, err := p.Run(t.Context(), in(a, "ws", "rm -rf -- *")); err != nil || res.ExitCode != 0 {
				t.Fatalf("deleting: %q, %v", res.Stderr, err)
			}
			eventually(t, "there is room again", func() bool { return write(t, p, a, "ws", "more", 10) == nil })
			if res, err := p.Run(t.Context(), in(a, "ws", "echo more >new; cat new")); err != nil ||
				string(res.Stdout) != "more\n" || len(res.Stderr) != 0 {
				t.Errorf("a run when there is room again: %q, stderr %q, %v", res.Stdout, res.Stderr, err)
			}
			refused, ended := p.Refusals()
			if refused["workspace"] < 2 || ended["workspace"] == 0 {
				t.Errorf("counted %v, %v", refused, ended)
			}
		})
	}
}

// TestFilesWithoutANameCountL3: what a box has deleted and holds open is held by the limits too, also beside what has names, and in all
// boxes of an account together.
//
//guarantee:what-one-tenant-can-do-to-another
func TestFilesWithoutANameCountL3(t *testing.T) {
	const a, b = schemas.AccountID("acct_a"), schemas.AccountID("acct_b")
	const holds = "exec 3>f; rm f; dd if=/dev/zero bs=1M count=%d status=none >&3; until [ -e go ]; do sleep 0.05; done"
	p := open(t, "L3", func(o *local.Options) { o.WorkspaceQuota, o.AccountQuota = 8*mib, 12*mib })
	quiet := make(chan error, 1)
	go func() {
		res, err := p.Run(t.Context(), in(b, "ws", fmt.Sprintf(holds, 7)))
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d, stderr %q", res.ExitCode, res.Stderr)
		}
		quiet <- err
	}()
	_, err := p.Run(t.Context(), in(a, "ws", fmt.Sprintf(holds, 10)))
	wantFull(t, err, schemas.Exhausted, "--workspace-quota")
	if err := write(t, p, a, "ws", "named", 7*mib); err != nil {
		t.Fatal(err)
	}
	_, err = p.Run(t.Context(), in(a, "ws", fmt.Sprintf(holds, 7)))
	wantFull(t, err, schemas.Exhausted, "--account-workspace-quota")
	if err := write(t, p, b, "ws", "go", 1); err != nil {
		t.Fatal(err)
	}
	if err := <-quiet; err != nil {
		t.Errorf("another account, within its limits: %v", err)
	}
}

// TestFileToolsKeepQuotasL3: what file tools write counts at once, for the workspace and for the sum of the account.
//
//guarantee:what-one-tenant-can-do-to-another
func TestFileToolsKeepQuotasL3(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.WorkspaceQuota, o.AccountQuota = 8*mib, 12*mib })
	fill := func(account schemas.AccountID, workspace string) (n int, err error) {
		for n = range 20 {
			if err = write(t, p, account, workspace, fmt.Sprint("f", n), mib); err != nil {
				return n, err
			}
		}
		return 20, nil
	}
	n, err := fill("acct_a", "one")
	if wantFull(t, err, schemas.Exhausted, "--workspace-quota"); n < 7 || n > 9 {
		t.Errorf("%d MiB were written to a workspace of 8 MiB", n)
	}
	n, err = fill("acct_a", "two")
	if wantFull(t, err, schemas.Exhausted, "--account-workspace-quota"); n < 3 || n > 5 {
		t.Errorf("%d MiB more were written by an account that has 8 of 12 MiB", n)
	}
	wantFull(t, write(t, p, "acct_a", "three", "f", mib), schemas.Exhausted, "--account-workspace-quota")
	if err := write(t, p, "acct_b", "one", "f", mib); err != nil {
		t.Errorf("another account: %v", err)
	}
	if res, err := p.Run(t.Context(), in("acct_a", "two", "rm -f f*; echo $?")); err != nil || string(res.Stdout) != "0\n" {
		t.Fatalf("deleting: %q, %v", res.Stdout, err)
	}
	eventually(t, "there is room for the account again", func() bool { return write(t, p, "acct_a", "three", "f", mib) == nil })
}

// TestQuotasOutliveTheWorker: a workspace that is full is full for the next worker too.
//
//guarantee:what-one-tenant-can-do-to-another
func TestQuotasOutliveTheWorker(t *testing.T) {
	dir := t.TempDir()
	at := func(o *local.Options) {
		o.StateDir, o.Workspaces, o.WorkspaceQuota, o.Pool = dir+"/state", dir+"/workspaces", mib, -1
	}
	p := open(t, "L3", at)
	if err := write(t, p, "acct_a", "ws", "f", mib); err != nil {
		t.Fatal(err)
	}
	p = open(t, "L3", at)
	n := 0
	eventually(t, "the next worker knows", func() bool {
		n++
		return errors.Is(write(t, p, "acct_a", "ws", fmt.Sprint("g", n), 1), schemas.ErrExhausted)
	})
	if res, err := p.Run(t.Context(), in("acct_a", "ws", "rm f")); err != nil || res.ExitCode != 0 {
		t.Fatalf("deleting: %q, %v", res.Stderr, err)
	}
}

// TestJobsKeepQuotasL3: a job that fills its workspace is lost with the reason; one in a full workspace can delete.
//
//guarantee:what-one-tenant-can-do-to-another
func TestJobsKeepQuotasL3(t *testing.T) {
	p := open(t, "L3", func(o *local.Options) { o.WorkspaceFiles = 500 })
	_, ends := startJob(t, p, kept(t, p, "key", nil), "i=0; while :; do : >f$i; i=$((i+1)); done")
	end := told(t, ends)
	if !end.Lost || !strings.Contains(end.Reason, "--workspace-files") {
		t.Errorf("a job that fills its workspace: %+v", end)
	}
	_, ends = startJob(t, p, kept(t, p, "key", nil), "rm -f f*")
	if end := told(t, ends); end.ExitCode != 0 || !strings.Contains(string(end.Tail), "--workspace-files") {
		t.Errorf("a job in a full workspace: %+v", end)
	}
}

// TestGauge: the rule by which what writes is ended.
//
//guarantee:what-one-tenant-can-do-to-another
func TestGauge(t *testing.T) {
	const limit = 1000
	type step struct {
		bytes     int64
		full, end bool
	}
	for name, steps := range map[string][]step{
		"within":       {{0, false, false}, {999, false, false}},
		"in the grace": {{0, false, false}, {1000, true, false}, {1050, true, false}},
		"beyond":       {{0, false, false}, {1051, true, true}, {1051, true, false}, {1101, true, false}, {1102, true, true}},
		"found full":   {{5000, true, false}, {5050, true, false}, {5051, true, true}},
		"deleting": {{5000, true, false}, {3000, true, false}, {3050, true, false}, {3051, true, true}, {10, false, false},
			{1050, true, false}, {1051, true, true}},
		"again and over": {{0, false, false}, {2000, true, true}, {2050, true, false}, {900, false, false}, {1051, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			g := local.NewGauge(safefs.Taken{Bytes: limit})
			for i, s := range steps {
				end, full := g.Observe(safefs.Measured{Taken: safefs.Taken{Bytes: s.bytes, Files: 1 << 40}})
				if end != s.end || full != s.full {
					t.Errorf("step %d at %d: end %v, full %v, want %v, %v", i, s.bytes, end, full, s.end, s.full)
				}
			}
		})
	}
}

// TestWhoDeletesRightAfterAFillIsLeftAloneL3: a command goes beyond the limit and ends before its usage is measured. That is not held
// against the next command, which deletes.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWhoDeletesRightAfterAFillIsLeftAloneL3(t *testing.T) {
	t.Parallel()
	const a = schemas.AccountID("acct_a")
	p := open(t, "L3", func(o *local.Options) { o.WorkspaceQuota, o.Pool = 8*mib, -1 })
	eventually(t, "the empty workspace is measured", func() bool { return write(t, p, a, "ws", "first", 10) == nil && p.Measured(a, "ws") })
	for i := range 3 {
		if _, err := p.Run(t.Context(), in(a, "ws", "dd if=/dev/zero of=big bs=1M count=40 status=none")); err != nil &&
			schemas.CodeOf(err) != schemas.Exhausted {
			t.Fatal(err)
		}
		res, err := p.Run(t.Context(), in(a, "ws", "sleep 1.5; rm -f big; echo gone"))
		if err != nil || string(res.Stdout) != "gone\n" {
			t.Fatalf("try %d: deleting: %q, %v", i, res.Stdout, err)
		}
		eventually(t, "there is room again", func() bool { return write(t, p, a, "ws", "new", 10) == nil })
	}
}
