//go:build linux

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// smallDisk mounts a file system of a size.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		longtest.Missing(t, "only root mounts a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		longtest.Missing(t, "a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestLittleRoom: before the disk is full, the runs that fill it are ended and nothing is written any more. Other runs continue, all can
// read and delete, and once there is room all is as before.
//
//guarantee:pauses-cuts-and-full-disks
//guarantee:what-one-tenant-can-do-to-another
func TestLittleRoom(t *testing.T) {
	const a, b = schemas.AccountID("acct_a"), schemas.AccountID("acct_b")
	for _, tc := range []struct{ name, size, script string }{
		{"bytes", "size=256m", "i=0; while :; do dd if=/dev/zero of=f$i bs=1M count=1 status=none || exit 3; i=$((i+1)); sleep 0.01; done"},
		{"inodes", "size=256m,nr_inodes=200k", "i=0; while :; do : >f$i; i=$((i+1)); done"},
		{"files without a name", "size=256m",
			"for i in {3..250}; do eval \"exec $i>f; rm f; dd if=/dev/zero bs=1M count=1 status=none >&$i\" || exit 3; sleep 0.01; done; sleep 600"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := smallDisk(t, tc.size)
			p := open(t, "L3", func(o *local.Options) {
				o.StateDir, o.Workspaces, o.MinFree, o.Pool = filepath.Join(dir, "state"), filepath.Join(dir, "workspaces"),
					local.Reserve{Bytes: 128 * mib}, -1
			})
			if err := write(t, p, b, "ws", "theirs", 10); err != nil {
				t.Fatal(err)
			}
			quiet := make(chan error, 1)
			started := make(chan struct{}, 1)
			go func() {
				cmd := in(b, "ws", "echo up; until [ -e go ]; do sleep 0.05; done; echo more >new; cat new")
				cmd.Output = func(providers.Chunk) {
					select {
					case started <- struct{}{}:
					default:
					}
				}
				res, err := p.Run(t.Context(), cmd)
				if err == nil && string(res.Stdout) != "up\nmore\n" {
					err = schemas.OpErrorf(schemas.Internal, "test", "stdout %q, stderr %q", res.Stdout, res.Stderr)
				}
				quiet <- err
			}()
			<-started
			_, err := p.Run(t.Context(), in(a, "ws", tc.script))
			word := "--min-free"
			if tc.name == "inodes" {
				word = "inodes"
			}
			wantFull(t, err, schemas.Unavailable, word)
			if tc.name != "files without a name" { // those are gone with the run
				wantFull(t, write(t, p, b, "ws", "fresh", 10), schemas.Unavailable, word)
				if !p.Room().Short() {
					t.Errorf("there is enough room: %+v", p.Room())
				}
				if res, err := p.Run(t.Context(), in(b, "ws", "cat theirs; rm theirs; echo no >other")); err != nil ||
					string(res.Stdout) != "xxxxxxxxxx" || len(res.Stderr) == 0 {
					t.Errorf("reading and deleting: %q, stderr %q, %v", res.Stdout, res.Stderr, err)
				}
				if res, err := p.Run(t.Context(), in(a, "ws", "find . -name 'f*' -delete")); err != nil || res.ExitCode != 0 {
					t.Fatalf("deleting: %q, %v", res.Stderr, err)
				}
			}
			eventually(t, "there is room again", func() bool { return write(t, p, a, "ws", "new", 10) == nil })
			_, ended := p.Refusals()
			if ended["disk"] == 0 {
				t.Errorf("ended: %v", ended)
			}
			if tc.name == "inodes" { // they come too fast: all that write are ended
				if err := <-quiet; schemas.CodeOf(err) != schemas.Unavailable {
					t.Errorf("another account: %v", err)
				}
				return
			}
			if err := write(t, p, b, "ws", "go", 1); err != nil {
				t.Fatal(err)
			}
			if err := <-quiet; err != nil {
				t.Errorf("another account, which does not fill the disk: %v", err)
			}
		})
	}
}

// TestOutputsOfJobsGiveWay has jobs of one account that print twice as much as the disk holds, while one of another prints little:
// theirs gives way, all of it is counted, and there is always room for others.
//
//guarantee:pauses-cuts-and-full-disks
//guarantee:what-one-tenant-can-do-to-another
func TestOutputsOfJobsGiveWay(t *testing.T) {
	const a, b = schemas.AccountID("acct_a"), schemas.AccountID("acct_b")
	const flood, size = 12, 40 << 20
	dir := smallDisk(t, "size=256m")
	options := func(o *local.Options) {
		o.StateDir, o.Workspaces, o.MinFree, o.Pool = filepath.Join(dir, "state"), filepath.Join(dir, "workspaces"),
			local.Reserve{Bytes: 64 * mib}, -1
	}
	p := open(t, "L3", options)
	of := func(account schemas.AccountID, key string) providers.Command {
		return kept(t, p, key, func(s *providers.Spec) { *s = in(account, "ws", "").Spec })
	}
	theirs := of(b, "quiet")
	little, littleEnds := startJob(t, p, theirs, "echo first; until [ -e go ]; do sleep 0.05; done; echo last")
	printed(t, p, little, "first")
	hog := of(a, "flood")
	var ends []<-chan providers.JobEnd
	for range flood {
		_, e := startJob(t, p, hog, fmt.Sprintf("head -c %d /dev/zero; echo", size))
		ends = append(ends, e)
	}
	for _, e := range ends {
		if e := told(t, e); e.ExitCode != 0 || e.LogBytes != size+1 {
			t.Errorf("a job of the flood ended with exit code %d after %d bytes: %s", e.ExitCode, e.LogBytes, e.Reason)
		}
	}
	eventually(t, "there is room", func() bool { return !p.Room().Short() })
	if room := p.Room(); room.Free < 64*mib {
		t.Errorf("there is no room: %+v", room)
	}
	theirs.Script = "touch go"
	if res, err := p.Run(t.Context(), theirs); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if e := told(t, littleEnds); e.ExitCode != 0 || string(e.Tail) != "first\nlast\n" || e.LogTruncated {
		t.Errorf("the other account's job ended with %+v, and kept %q", e, e.Tail)
	}
	p = open(t, "L3", options)
	if st, err := p.JobStatus(t.Context(), little); err != nil || string(st.End.Tail) != "first\nlast\n" {
		t.Errorf("for the next provider: %+v, %v", st, err)
	}
}
