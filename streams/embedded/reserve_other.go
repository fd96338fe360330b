//go:build !linux

package embedded

import (
	"errors"
	"os"
)

// allocate gives a file its blocks without writing them, which only Linux does here.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
