//go:build linux

package isolationtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
)

// workspace is where the probe's files lie outside of the box.
func (h *host) workspace() string { return filepath.Join(h.workspaces, h.mount.Namespace) }

// plantedAttacks are files that got into a workspace with rights that no box could give them.
func plantedAttacks(t *testing.T, h *host) {
	if os.Getuid() == 0 {
		plantedByRoot(t, h)
	}
	t.Run("a workspace that is a link", func(t *testing.T) {
		mount := mountOf("acct_probe", "linked")
		if err := os.Symlink(filepath.Dir(h.env["OUTSIDE"]), filepath.Join(h.workspaces, mount.Namespace)); err != nil {
			t.Fatal(err)
		}
		cmd := h.command("cat outside; ls; echo x >new")
		cmd.Mounts, cmd.Spec.Mounts = []providers.Mount{mount}, []providers.Mount{mount}
		res, err := h.provider.Run(t.Context(), cmd)
		if err == nil || res.Started {
			t.Errorf("it ran: %q, %v", res.Stdout, err)
		}
		if strings.Contains(string(res.Stdout), secret) {
			t.Error("it left its workspace")
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(h.env["OUTSIDE"]), "new")); err == nil {
			t.Error("it wrote outside")
		}
	})
	t.Run("a workspace that is exchanged for a link meanwhile", func(t *testing.T) { exchanged(t, h) })
}

func plantedByRoot(t *testing.T, h *host) {
	plant := func(t *testing.T, name, from string, mode os.FileMode) string {
		t.Helper()
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(h.workspace(), name)
		if err := errors.Join(os.WriteFile(file, data, 0o755), os.Chown(file, 0, 0), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	probe, err := probeProgram()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a program that sets its user to root", func(t *testing.T) {
		plant(t, "setuid", probe, 0o755|os.ModeSetuid|os.ModeSetgid)
		got := h.ok(t,
			h.command("./setuid syscall setuid; ./setuid status; ./setuid open /proc/self/status r >/dev/null; cp ./setuid own; id -u"))
		if strings.HasPrefix(got, "ok") || !strings.Contains(got, "CapEff= ") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a program with file capabilities", func(t *testing.T) {
		file := plant(t, "capable", probe, 0o755)
		// struct vfs_cap_data, revision 2, effective: all of the first 32 for permitted.
		data := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		if err := unix.Setxattr(file, "security.capability", data, 0); err != nil {
			t.Skipf("this file system keeps no capabilities: %v", err)
		}
		res := h.run(t, h.command("./capable status"))
		if got := string(res.Stdout); got != "" && !strings.Contains(got, "CapPrm= CapEff= ") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a device", func(t *testing.T) {
		file := filepath.Join(h.workspace(), "device")
		if err := errors.Join(unix.Mknod(file, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Chmod(file, 0o666)); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(file)
		if got := h.ok(t, h.command("./probe open device r; ./probe open device w")); got != "EACCES\nEACCES" {
			t.Errorf("got %q", got)
		}
	})
}

// exchanged swaps a workspace's directory and a link to the outside as fast as it can while boxes are
// made for it. Each run either fails or sees its own files.
func exchanged(t *testing.T, h *host) {
	mount := mountOf("acct_probe", "exchanged")
	dir := filepath.Join(h.workspaces, mount.Namespace)
	first := h.command("echo own >file")
	first.Mounts, first.Spec.Mounts = []providers.Mount{mount}, []providers.Mount{mount}
	h.ok(t, first)
	link := dir + ".link"
	if err := os.Symlink(filepath.Dir(h.env["OUTSIDE"]), link); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	defer func() { close(stop); swapping.Wait(); _ = os.Remove(link); _ = os.Remove(dir) }()
	ran := 0
	for range 60 {
		script := "cat outside file; ls; true"
		if level() != "L3" { // landlock does not keep a process from asking whether a name exists
			script = "cat outside file; ls | grep -v '^file$'; true"
		}
		cmd := h.command(script)
		cmd.Mounts, cmd.Spec.Mounts = []providers.Mount{mount}, []providers.Mount{mount}
		res, err := h.provider.Run(t.Context(), cmd)
		switch out := string(res.Stdout); {
		case strings.Contains(out, secret), err == nil && level() == "L3" && out != "own\nfile\n", err == nil && out != "" &&
			!strings.HasPrefix(out, "own\n"):
			t.Fatalf("it left its workspace: %q, %v", out, err)
		case err == nil && out != "":
			ran++
		}
	}
	t.Logf("%d of 60 runs found their own files, the others were refused", ran)
}

// fileToolAttacks go against the files that the worker opens itself, beside the box.
func fileToolAttacks(t *testing.T, h *host) {
	root, err := h.provider.OpenWorkspace(t.Context(), "acct_probe", h.mount)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h.ok(t, h.command(`mkdir tools && cd tools && ln -s "$OUTSIDE" absolute && ln -s "../../../../../../../../../..$OUTSIDE" climbing &&
ln -s "$(dirname "$OUTSIDE")" dirlink && ln -s / all && ln -s .. up && ln -s ../.. up2 &&
ln -s "/proc/self/root$OUTSIDE" magic && ln -s /proc/$WORKER/environ environ &&
ln -s /proc/self/fd fds && ln -s loop loop && ln -s dangling/x dangling && mkfifo fifo && mkdir dir &&
ln -s "$WORKSPACES/$OTHER/file" other && ln -s ../"$OTHER"/file other2 && ln -s /dev/zero zero`))
	outside := h.env["OUTSIDE"]
	for _, name := range []string{
		"absolute", "climbing", "dirlink/outside", "all" + outside, "up/../../outside", "up2/../outside", "magic",
		"environ", "fds/0", "loop", "dangling",
		"fifo", "dir", "other", "other2", "zero", "../../outside", "/../../outside", "dir/../../../outside",
		"./.././../outside", outside, "//" + outside,
		"absolute/", "dirlink/outside/", "absolute/.", "\x00" + outside, "..\\..\\outside", "all/./" + outside, "up/up/up",
		"dir/" + strings.Repeat("../", 40) + outside,
	} {
		if name == "up/up/up" {
			continue // stays inside: a directory, not a file
		}
		t.Run("read "+strconv.Quote(name), func(t *testing.T) {
			// What a write below made inside of the root may be read.
			if got, _, err := workspacefs.ReadFile(t.Context(), root, "tools/"+name, 1<<20); err == nil && string(got) != "overwritten" {
				t.Errorf("it was read: %.60q", got)
			}
		})
		t.Run("write "+strconv.Quote(name), func(t *testing.T) {
			_ = root.Write(t.Context(), "tools/"+name, []byte("overwritten"), workspacefs.InPlace, nil)
			_ = root.Write(t.Context(), "tools/"+name, []byte("overwritten"), workspacefs.Replace, nil)
			if got, err := os.ReadFile(outside); err != nil || string(got) != secret {
				t.Fatalf("the file outside is now %q, %v", got, err)
			}
		})
	}
	t.Run("walking does not leave", func(t *testing.T) {
		err := workspacefs.Walk(t.Context(), root, "tools", workspacefs.Bounds{Entries: 10_000, Bytes: 1 << 20},
			func(path string, _ workspacefs.Entry) error {
				for _, link := range []string{"dirlink/", "all/", "up/", "up2/", "fds/", "loop/"} {
					if strings.HasPrefix(path, link) {
						return fmt.Errorf("walked through a link to %s", path)
					}
				}
				return nil
			})
		if err != nil {
			t.Error(err)
		}
	})
	t.Run("a directory exchanged for a link meanwhile", func(t *testing.T) { exchangedBelow(t, h, root) })
}

// exchangedBelow lets a box swap a directory and a link while the worker reads and writes below it.
func exchangedBelow(t *testing.T, h *host, root workspacefs.FS) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready := make(chan struct{})
	var once sync.Once
	cmd := h.command(`mkdir -p race/real && echo own >race/real/outside && ln -s "$(dirname "$OUTSIDE")" race/link && mkdir race/d && echo own >race/d/outside && echo ready
while :; do mv race/d race/t; mv race/link race/d; mv race/d race/link; mv race/t race/d; done`)
	cmd.Timeout = 5 * time.Minute
	cmd.Output = func(providers.Chunk) { once.Do(func() { close(ready) }) }
	ended := make(chan struct{})
	go func() { _, _ = h.provider.Run(ctx, cmd); close(ended) }()
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the run ended at once")
	}
	for range 3000 {
		if got, _, err := workspacefs.ReadFile(t.Context(), root, "race/d/outside", 100); err == nil && strings.Contains(string(got), secret) {
			t.Fatal("it was read")
		}
		_ = root.Write(t.Context(), "race/d/outside", []byte("own"), workspacefs.InPlace, nil)
	}
	cancel()
	<-ended
	if got, err := os.ReadFile(h.env["OUTSIDE"]); err != nil || string(got) != secret {
		t.Errorf("the file outside is now %q, %v", got, err)
	}
}
