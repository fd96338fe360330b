//go:build linux

package confine

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrCgo says that the program is linked with cgo and so cannot change all its threads at once.
// Nothing was changed.
var ErrCgo = errors.New("a program linked with cgo cannot confine all its threads: build it with CGO_ENABLED=0, or confine one thread " +
	"and exec")

// everyThread makes one system call on each thread of the process. The Go runtime aborts the process if the threads' results differ, so no
// thread is ever left out. The arguments must not be pointers.
func everyThread(trap, a1, a2, a3 uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3)
	return threadsError(errno)
}

// thisThread makes the call on the calling thread alone.
func thisThread(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := syscall.RawSyscall(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}

// caller makes a system call whose effect the kernel keeps per thread: everyThread or thisThread.
type caller func(trap, a1, a2, a3 uintptr) error

func threadsError(errno syscall.Errno) error {
	switch errno {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return ErrCgo
	default:
		return fmt.Errorf("on every thread: %w", errno)
	}
}
