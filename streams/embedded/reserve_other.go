//go:build !linux

package embedded

import (
	"errors"
	"os"
)

// allocate reserves blocks for a file without writing them; only Linux supports it here.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
