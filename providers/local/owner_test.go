//go:build linux

package local_test

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestTenantsPayForTheirOwnNamespacesPool: what the kernel counts for the maker of a user namespace, such as
// instances of inotify, must not be taken from root of this host.
//
//guarantee:a-run-stays-in-its-box
func TestTenantsPayForTheirOwnNamespacesPool(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it has no others to make boxes for: they are all its own
	}
	p := open(t, "L3", nil)
	if _, err := p.Reserve(t.Context(), "kept", command("").Spec); err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf("/proc/%d/ns/user", p.KeptPid("kept"))
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var owner uint32
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.NS_GET_OWNER_UID, uintptr(unsafe.Pointer(&owner))); errno != 0 {
		t.Fatal(errno)
	}
	if owner == 0 {
		t.Error("the namespace is charged to root of the host")
	}
}
