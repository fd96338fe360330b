// Package host returns the limits of this process on its host.
package host

import "syscall"

// OpenFiles returns how many file descriptors the process may have.
func OpenFiles() int {
	const usual, most = 1024, 1 << 30
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return usual
	}
	return int(min(r.Cur, most))
}
