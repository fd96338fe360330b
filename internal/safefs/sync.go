package safefs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// syncDir makes the entries of a directory durable, if the file system supports that.
func syncDir(f *os.File) error {
	err := f.Sync()
	if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return fmt.Errorf("sync directory: %w", err)
}
