//go:build linux

package confine

import (
	"errors"
	"syscall"
	"testing"
)

// TestCgoIsAnError: the syscall package answers ENOTSUP in a program that is linked with cgo. That
// must never pass for success.
func TestCgoIsAnError(t *testing.T) {
	if err := threadsError(syscall.ENOTSUP); !errors.Is(err, ErrCgo) {
		t.Errorf("got %v, want ErrCgo", err)
	}
	if err := threadsError(syscall.EPERM); !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v, want EPERM", err)
	}
	if err := threadsError(0); err != nil {
		t.Errorf("got %v", err)
	}
}
