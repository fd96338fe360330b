//go:build linux

package box_test

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/local/box"
	_ "github.com/sandjet/sandjet/providers/local/boxentry"
)

func TestOneRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for p := dir; p != "/" && p != os.TempDir(); p = p[:len(p)-len(lastPart(p))] {
		_ = os.Chmod(p, 0o711)
	}
	if err := os.Mkdir(dir+"/ws", 0o700); err != nil {
		t.Fatal(err)
	}
	const id = 300000
	if os.Geteuid() == 0 {
		if err := os.Chown(dir+"/ws", id, id); err != nil {
			t.Fatal(err)
		}
	}
	s, err := box.Launch(box.Config{Program: "/proc/self/exe", Workspaces: dir, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // checked elsewhere
	began := time.Now()
	b, err := s.Make(box.Options{HostID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Kill()
	if err := b.BeginSetup(box.Setup{Pids: 100, Memory: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if err := b.Ready(); err != nil {
		t.Fatal(err)
	}
	t.Log("ready", time.Since(began))
	if err := b.BeginClaim(box.Claim{Mounts: []box.Mount{{Name: "ws"}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Claimed(); err != nil {
		t.Fatal(err)
	}
	t.Log("claimed", time.Since(began), b.Facts())
	null, _ := os.OpenFile("/dev/null", os.O_RDWR, 0)
	r, w, _ := os.Pipe()
	run, err := b.Start(box.Exec{Dir: "/mnt/workspaces/ws", Env: []string{"PATH=/usr/bin:/bin"}, Script: script}, int(null.Fd()), int(w.Fd()), int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	out, _ := io.ReadAll(r)
	<-run.Ended()
	t.Log("done", time.Since(began))
	e, ok := run.Exit()
	t.Logf("%+v %v\n%s", e, ok, out)
	b.Kill()
	<-b.Gone()
}

const script = `id; pwd; ls -la / . /etc /dev /mnt; cat /proc/self/mounts; cat /proc/self/status | grep -E 'Cap|NoNew|Secc|Uid'; cat /proc/self/uid_map;
grep -h -E 'CapEff|CapBnd|NoNew|Secc' /proc/1/task/*/status
for i in $(seq 1 64); do kill -$i 1 2>/dev/null; done; ps aux; echo alive; ulimit -a; ls -la /proc/self/fd; cat /proc/1/environ; df -h; touch /x /etc/x; echo >/proc/sys/kernel/core_pattern`

func lastPart(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == '/' {
			return p[i:]
		}
	}
	return p
}
