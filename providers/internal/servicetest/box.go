package servicetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// UserID is the id of the plain user in a sandbox.
const UserID = "1000"

// searchPath is the PATH of every process.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Options describes a sandbox.
type Options struct {
	Dir      string            // an existing directory for the files that belong to the sandbox
	User     string            // the plain user, whose home is /home/<User>
	Env      map[string]string // of every process
	Binds    []string          // pairs of a path on this host and its path in the sandbox
	ReadOnly []string          // the same, but not writable in the sandbox
	Network  bool              // shares this host's network; otherwise it has none
	Sudo     bool              // the plain user can become root by sudo, which supports only the option -n
	Ended    func()            // called when no process of it is left, before Box.Over is closed; may be nil
}

// Box is a sandbox of a fake service. Its methods are safe for concurrent use.
type Box struct {
	o     Options
	first *exec.Cmd
	pid   int           // of process 1
	over  chan struct{} // closed when no process of it is left
}

// Need skips the test where sandboxes cannot be made; if CI is set the test fails instead.
func Need(tb testing.TB) {
	tb.Helper()
	if reason := Missing(); reason != "" {
		longtest.Missing(tb, "%s", reason)
	}
}

// Missing returns why no sandboxes can be made here; empty if they can.
func Missing() string {
	if os.Geteuid() != 0 {
		return "sandboxes need root here, for namespaces that processes can enter"
	}
	for _, tool := range []string{"bwrap", "nsenter", "setpriv", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "sandboxes need " + tool + " here: install bubblewrap, bash and util-linux"
		}
	}
	return ""
}

// CloseOnExec marks all open descriptors close-on-exec, so that sandboxes do not inherit what this process's parent left open.
func CloseOnExec() {
	for fd := 3; fd < 1024; fd++ {
		syscall.CloseOnExec(fd)
	}
}

// Boot starts a sandbox and returns when its first process is running. The caller ends it.
func Boot(o Options) (*Box, error) {
	b := &Box{o: o, over: make(chan struct{})}
	args, err := b.arguments()
	if err != nil {
		return nil, err
	}
	script := `[ -d "$1" ] || mkdir "$1"; chown ` + UserID + ":" + UserID + ` "$1" && echo made && exec sleep infinity`
	b.first = exec.Command("bwrap", append(args, "--", "bash", "-c", script, "boot", "/home/"+o.User)...) //nolint:noctx // it ends with End
	b.first.Stderr = os.Stderr
	info, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer info.Close() //nolint:errcheck // it was only read
	b.first.ExtraFiles = []*os.File{w}
	out, err := b.first.StdoutPipe()
	if err == nil {
		err = b.first.Start()
	}
	_ = w.Close()
	if err != nil {
		return nil, err
	}
	var said struct {
		Pid int `json:"child-pid"` //nolint:tagliatelle // bubblewrap's
	}
	err = json.NewDecoder(info).Decode(&said)
	line, _ := bufio.NewReader(out).ReadString('\n') // an empty line means that it has ended
	b.pid = said.Pid
	go func() { // ends with the sandbox, as Over reports
		defer close(b.over)
		_ = b.first.Wait() // however it ended
		if o.Ended != nil {
			o.Ended()
		}
	}()
	if line == "made\n" && o.Sudo {
		err = exec.Command("nsenter", "-t", strconv.Itoa(b.pid), "-m", "--", //nolint:noctx // it is short
			"mount", "-o", "remount,bind,suid,ro", "/usr/local/bin/setuid").Run()
	}
	if line != "made\n" || err != nil {
		b.End()
		<-b.over
		return nil, fmt.Errorf("it did not boot: %q, %w", line, err)
	}
	return b, nil
}

// arguments returns bubblewrap's arguments.
func (b *Box) arguments() ([]string, error) {
	users := "root:x:0:0::/root:/bin/bash\n" + b.o.User + ":x:" + UserID + ":" + UserID + "::/home/" + b.o.User + ":/bin/bash\n"
	passwd := filepath.Join(b.o.Dir, "passwd")
	if err := os.WriteFile(passwd, []byte(users), 0o644); err != nil { //nolint:gosec // they read it
		return nil, err
	}
	args := []string{
		"--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session", "--cap-add", "ALL",
		"--info-fd", "3", "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/home",
		"--tmpfs", "/root", "--tmpfs", "/run",
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt"} {
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
		} else {
			args = append(args, "--ro-bind-try", dir, dir)
		}
	}
	args = append(args, "--ro-bind", passwd, "/etc/passwd")
	var parents []string
	all := append(slices.Clone(b.o.Binds), b.o.ReadOnly...)
	for i := 0; i < len(all); i += 2 {
		for dir := filepath.Dir(all[i+1]); dir != "/"; dir = filepath.Dir(dir) { // otherwise only root could enter them
			parents = append([]string{"--perms", "0755", "--dir", dir}, parents...)
		}
		how := "--bind"
		if i >= len(b.o.Binds) {
			how = "--ro-bind"
		}
		args = append(append(args, parents...), how, all[i], all[i+1])
	}
	if !b.o.Network {
		args = append(args, "--unshare-net")
	}
	if !b.o.Sudo {
		return args, nil
	}
	sudo, err := b.sudo()
	return append(args, sudo...), err
}

// sudo creates a set-user-id program and a sudo script that uses it, and returns bubblewrap's arguments to show them.
func (b *Box) sudo() ([]string, error) {
	path, err := exec.LookPath("setpriv")
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	root, script := filepath.Join(b.o.Dir, "setuid"), filepath.Join(b.o.Dir, "sudo")
	if err := os.WriteFile(root, program, 0o755); err != nil { //nolint:gosec // they run it, as below
		return nil, err
	}
	if err := os.Chmod(root, 0o755|os.ModeSetuid); err != nil {
		return nil, err
	}
	text := "#!/bin/bash\n[ \"$1\" != -n ] || shift\nexec /usr/local/bin/setuid --reuid 0 --regid 0 --clear-groups -- \"$@\"\n"
	return []string{"--tmpfs", "/usr/local", "--perms", "0755", "--dir", "/usr/local/bin",
		"--ro-bind", root, "/usr/local/bin/setuid", "--ro-bind", script, "/usr/local/bin/sudo",
	}, os.WriteFile(script, []byte(text), 0o755) //nolint:gosec // as above
}

// Over returns a channel that is closed when no process of the box is left.
func (b *Box) Over() <-chan struct{} { return b.over }

// End kills all processes of the box. It does not wait.
func (b *Box) End() {
	if b.pid > 0 {
		_ = syscall.Kill(b.pid, syscall.SIGKILL) // it may have ended
	}
	_ = b.first.Process.Kill() // as above
	b.signalEntrances(syscall.SIGKILL)
}

// signalEntrances sends a signal to the nsenter processes outside that wait for commands in the box.
func (b *Box) signalEntrances(sig syscall.Signal) {
	begins := fmt.Sprintf("nsenter\x00-t\x00%d\x00", b.pid)
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, l := range lines {
		if line, err := os.ReadFile(l); err == nil && strings.HasPrefix(string(line), begins) {
			if pid, err := strconv.Atoi(strings.Split(l, "/")[2]); err == nil {
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
}

// Signal sends a signal to all processes of the box. SIGSTOP goes to the nsenter processes outside first: they would otherwise see their
// children stop, stop themselves and continue only on a signal, even after the box has ended.
func (b *Box) Signal(sig syscall.Signal) {
	if sig == syscall.SIGSTOP {
		b.signalEntrances(sig)
	}
	if sig == syscall.SIGCONT {
		defer b.signalEntrances(sig)
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", b.pid))
	if err != nil {
		return
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid") // the pattern is right
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil && ns == own {
			if pid, err := strconv.Atoi(strings.Split(l, "/")[2]); err == nil {
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
}

// Has reports whether an absolute path exists in the box.
func (b *Box) Has(path string) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", b.pid, path))
	return err == nil
}

// Command returns a process in the box for a user, in a directory and with variables added to the box's own. The caller starts it and
// waits for it.
func (b *Box) Command(user, dir string, env map[string]string, args ...string) *exec.Cmd {
	all := []string{"-t", strconv.Itoa(b.pid), "-m", "-p", "-n", "-i", "-u", "-r", "--wd=/", "--"}
	home := "/root"
	if user != "root" {
		home = "/home/" + user
		all = append(all, "setpriv", "--reuid", UserID, "--regid", UserID, "--clear-groups")
	}
	if dir == "" {
		dir = home
	}
	all = append(all, "env", "-i", "-C", dir, searchPath, "HOME="+home, "USER="+user, "LOGNAME="+user)
	for _, set := range []map[string]string{b.o.Env, env} {
		for k, v := range set {
			all = append(all, k+"="+v)
		}
	}
	return exec.Command("nsenter", append(all, args...)...) //nolint:noctx // what ends it is its sandbox
}
