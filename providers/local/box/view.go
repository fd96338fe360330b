//go:build linux

package box

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/internal/netns"
)

// Paths of the box's view.
const (
	workspacesDir = "/mnt/workspaces"
	workspaceLink = "/workspace"       // leads to the first mount: the file tools show paths below it
	waitingDir    = "/mnt/.workspaces" // all workspaces, until the claim
	homeDir       = "/home/sandbox"
	scriptsDir    = "/home/.sandjet"
	commandsDir   = "/etc/sandjet/bin" // at the end of the PATH
	// TrustFile has the certificates that programs trust in a box whose claim has one.
	TrustFile = "/etc/sandjet/certificates.pem"
)

// closed is what a mount of the host's files gets.
const closed = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// buildView builds the root file system of the box and makes it the process's root. The working directory is the directory of the
// workspaces; it is opened before other mounts can cover it.
func buildView(s Setup, bootID string) *StepError {
	waiting, err := unix.OpenTree(unix.AT_FDCWD, ".", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return stepError("hold the workspaces", err)
	}
	defer unix.Close(waiting) //nolint:errcheck // it is mounted or not by then
	v := view{base: base()}
	ownLimits(s)
	v.do("make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
	v.do("mount the root", func() error {
		return unix.Mount("tmpfs", v.base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=16m,nr_inodes=16k,mode=755")
	})
	for _, dir := range []string{"usr", "etc", "proc", "dev", "tmp", "home", "run", "mnt", workspacesDir, waitingDir} {
		v.dir(dir)
	}
	v.system()
	v.etc(s)
	v.do("write the boot id", func() error { return os.WriteFile(v.in("run/boot_id"), []byte(bootID+"\n"), 0o444) }) //nolint:gosec // for everybody in the box to read
	v.do("mount proc", func() error {
		return unix.Mount("proc", v.in("proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	})
	v.devices()
	v.tmpfs("tmp", 0, tmpOptions(cmp.Or(s.Tmp, DefaultTmp)))
	v.tmpfs("home", 0, "size=64m,nr_inodes=64k,mode=755")
	v.dir(homeDir)
	v.dir(scriptsDir)
	v.do("mount the workspaces", func() error {
		return unix.MoveMount(waiting, "", unix.AT_FDCWD, v.in(waitingDir), unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
	v.do("enter the root", func() error {
		if err := unix.Chdir(v.base); err != nil {
			return err
		}
		if err := unix.PivotRoot(".", "."); err != nil {
			return err
		}
		if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
			return err
		}
		return unix.Chdir("/")
	})
	v.do("name the host", func() error { return unix.Sethostname([]byte("sandbox")) })
	if !s.HostNet {
		v.do("start the loopback", loopback)
	}
	return v.failed
}

// ownLimits sets limits of this user namespace and this network namespace, where the kernel and the host's /proc allow it. [Facts].Watches
// reports whether the inotify limits were set.
func ownLimits(s Setup) {
	for _, l := range []struct{ file, value string }{
		{instancesFile, mostInstances},
		{"/proc/sys/user/max_inotify_watches", "65536"},
	} {
		_ = os.WriteFile(l.file, []byte(l.value), 0)
	}
	if s.Memory <= 0 || s.HostNet {
		return
	}
	// No cgroup counts what sockets hold, so each may hold less.
	for _, file := range []string{"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"} {
		_ = os.WriteFile(file, []byte("4096 65536 131072"), 0)
	}
}

const (
	instancesFile = "/proc/sys/user/max_inotify_instances"
	// mostInstances is how many inotify instances a box has. The kernel counts them for the tenant, or where the
	// worker is no root for the worker's user, who has 128 on most hosts.
	mostInstances = "32"
)

// watchesKept reports whether the box has its own limit on inotify instances.
func watchesKept() bool {
	value, err := os.ReadFile(instancesFile)
	return err == nil && strings.TrimSpace(string(value)) == mostInstances
}

// base returns an existing directory to mount the new root on. Any will do: its content is only covered, in a mount namespace that no
// other process has.
func base() string {
	for _, dir := range []string{"/tmp", "/mnt", "/run", "/var"} {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return "/"
}

// view builds a root at base. It records the first step that fails and skips all later ones.
type view struct {
	base   string
	failed *StepError
}

func (v *view) in(path string) string { return filepath.Join(v.base, path) }

func (v *view) do(step string, f func() error) {
	if v.failed != nil {
		return
	}
	if err := f(); err != nil {
		v.failed = stepError(step, err)
	}
}

func (v *view) dir(path string) {
	v.do("make directory "+path, func() error { return os.MkdirAll(v.in(path), 0o755) }) //nolint:gosec // the box's own
}

func (v *view) file(path, content string) {
	v.do("write "+path, func() error { return os.WriteFile(v.in(path), []byte(content), 0o644) }) //nolint:gosec // the box's own
}

func (v *view) link(target, path string) {
	v.do("link "+path, func() error { return os.Symlink(target, v.in(path)) })
}

// tmpOptions returns the mount options of a /tmp of at most size bytes, and at most one file per 2 KiB.
func tmpOptions(size int64) string {
	const perFile = 2 << 10 // bytes
	return fmt.Sprintf("size=%d,nr_inodes=%d,mode=1777", size, max(size/perFile, 1))
}

// tmpfs mounts a tmpfs at path. The options also bound the number of files: an empty file takes kernel memory that the size limit does not
// count.
func (v *view) tmpfs(path string, flags uintptr, options string) {
	v.do("mount "+path, func() error {
		return unix.Mount("tmpfs", v.in(path), "tmpfs", flags|unix.MS_NOSUID|unix.MS_NODEV, options)
	})
}

// bind mounts a path of the host, with all mounts below it, read-only at the same path.
func (v *view) bind(path string) {
	v.do("show "+path, func() error {
		tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("hold: %w", err)
		}
		defer unix.Close(tree) //nolint:errcheck // it is mounted or not by then
		attr := unix.MountAttr{Attr_set: closed | unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("restrict: %w", err)
		}
		return unix.MoveMount(tree, "", unix.AT_FDCWD, v.in(path), unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
}

// show makes a path of the host visible in the box, if it exists. A symbolic link is created again, not followed.
func (v *view) show(path string) {
	if v.failed != nil {
		return
	}
	info, err := os.Lstat(path)
	if err != nil {
		return // the host has none, or keeps it to itself
	}
	if parent := filepath.Dir(path); parent != "/" && parent != "/etc" {
		v.dir(parent)
	}
	switch mode := info.Mode(); {
	case mode&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		if err == nil {
			v.link(target, path)
		}
	case mode.IsDir():
		v.dir(path)
		v.bind(path)
	case mode.IsRegular() && info.Size() <= 4096:
		if content, err := os.ReadFile(path); err == nil { // a copy is cheaper than a mount
			v.file(path, string(content))
		}
	case mode.IsRegular():
		v.file(path, "")
		v.bind(path)
	}
}

// system makes the programs of the host visible.
func (v *view) system() {
	v.bind("/usr")
	for _, path := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		v.show(path)
	}
}

// etcShown lists the files of the host's /etc that a box sees, if they exist: those that the linker, programs and their libraries need.
// None of them may be secret, not even from other users of the host.
func etcShown() []string {
	return strings.Fields(`
		ld.so.cache ld.so.conf ld.so.conf.d ssl/certs ssl/openssl.cnf ca-certificates ca-certificates.conf
		pki/tls/certs pki/tls/cert.pem pki/tls/openssl.cnf pki/ca-trust crypto-policies alternatives localtime timezone mime.types protocols
		services ethertypes rpc terminfo os-release debian_version alpine-release redhat-release lsb-release
		locale.alias locale.conf magic magic.mime inputrc fonts perl python3 python3.9 python3.10 python3.11
		python3.12 python3.13 python3.14 java-11-openjdk java-17-openjdk java-21-openjdk java-25-openjdk
		ImageMagick-6 ImageMagick-7 php ghostscript texmf R gai.conf host.conf`)
}

// etc builds /etc from the files of etcShown and from the box's own.
func (v *view) etc(s Setup) {
	for _, name := range etcShown() {
		v.show("/etc/" + name)
	}
	v.file("/etc/passwd", "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:"+homeDir+
		":/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n")
	v.file("/etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n")
	v.file("/etc/nsswitch.conf",
		"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n")
	v.file("/etc/hostname", "sandbox\n")
	hosts, resolv := "127.0.0.1 localhost sandbox\n::1 localhost\n", ""
	switch {
	case s.Relay:
		resolv = "nameserver " + netns.Resolver + "\n"
	case s.HostNet:
		// The box has the host's network, so it has its names too.
		if content, err := os.ReadFile("/etc/hosts"); err == nil {
			hosts = string(content) + "127.0.0.1 sandbox\n"
		}
		if content, err := os.ReadFile("/etc/resolv.conf"); err == nil {
			resolv = string(content)
		}
	}
	v.file("/etc/hosts", hosts)
	v.file("/etc/resolv.conf", resolv)
	v.link("/proc/self/mounts", "/etc/mtab")
	// A commit needs an author: this one has the least say, a repository's own and GIT_AUTHOR_NAME win.
	v.file("/etc/gitconfig", "[user]\n\tname = Sandbox\n\temail = sandbox@localhost\n")
	v.commands()
}

// trust writes [TrustFile] with a certificate and those that the host trusts.
func (v *view) trust(certificate string) {
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
		"/etc/ssl/ca-bundle.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"} {
		if host, err := os.ReadFile(path); err == nil && len(host) > 0 {
			certificate = strings.TrimRight(string(host), "\n") + "\n" + certificate
			break
		}
	}
	v.file(TrustFile, certificate)
}

// commands adds names of programs that many scripts assume: python, for python3. They come last in PATH, so that the host's own programs
// win.
func (v *view) commands() {
	v.dir(commandsDir)
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if info, err := os.Stat(filepath.Join(dir, "python3")); err == nil && info.Mode().IsRegular() {
			v.link(filepath.Join(dir, "python3"), filepath.Join(commandsDir, "python"))
			return
		}
	}
}

// devices builds /dev: six devices of the host, whose device numbers are checked, and a devpts of the box's own.
func (v *view) devices() {
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		path := "/dev/" + d.name
		v.file(path, "")
		v.do("show "+path, func() error {
			if err := unix.Mount(path, v.in(path), "", unix.MS_BIND, ""); err != nil {
				return err
			}
			var st unix.Stat_t
			if err := unix.Lstat(v.in(path), &st); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != d.major || unix.Minor(st.Rdev) != d.minor {
				return errors.New("it is another device on this host")
			}
			return nil
		})
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1",
		"stderr": "fd/2", "ptmx": "pts/ptmx"} {
		v.link(target, "/dev/"+link)
	}
	v.dir("/dev/pts")
	v.dir("/dev/shm")
	v.do("mount terminals", func() error {
		return unix.Mount("devpts", v.in("/dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
	})
	v.tmpfs("/dev/shm", 0, "size=64m,nr_inodes=16k,mode=1777")
}

// loopback brings up the loopback interface of a new network namespace.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // used for one request
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// claim mounts one of the waiting workspace directories at path.
func (v *view) claim(step, name, path string, readOnly bool) {
	v.do(step, func() error {
		tree, err := unix.OpenTree(unix.AT_FDCWD, filepath.Join(waitingDir, name),
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("hold: %w", err)
		}
		defer unix.Close(tree) //nolint:errcheck // it is mounted or not by then
		attr := unix.MountAttr{Attr_set: closed}
		if readOnly {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("restrict: %w", err)
		}
		return unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
}

// showWorkspaces mounts the claimed directories, unmounts all other workspaces and then makes the root read-only.
func showWorkspaces(c Claim) *StepError {
	mounts, home := c.Mounts, c.Home
	v := view{base: "/"}
	for _, m := range mounts {
		path := filepath.Join(workspacesDir, m.Name)
		v.dir(path)
		v.claim("mount workspace", m.Name, path, m.ReadOnly)
	}
	if home != "" {
		v.claim("mount the home folder", home, homeDir, false)
	}
	if len(mounts) > 0 {
		v.link(filepath.Join(workspacesDir, mounts[0].Name), workspaceLink)
	}
	if c.Trust != "" {
		v.trust(c.Trust)
	}
	v.do("let go of the workspaces", func() error {
		if err := unix.Unmount(waitingDir, unix.MNT_DETACH); err != nil {
			return err
		}
		return unix.Rmdir(waitingDir)
	})
	v.do("make the root read-only", func() error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	})
	return v.failed
}
