package safefs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// syncDir makes a directory's entries durable, where the file system can.
func syncDir(f *os.File) error {
	err := f.Sync()
	if err == nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return fmt.Errorf("sync directory: %w", err)
}
