package safefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

var _ workspacefs.Marker = (*Root)(nil)

// Mark implements [workspacefs.Marker]. A file with several names is refused ([workspacefs.ErrHardLink]), because another name may be
// outside of the root.
func (r *Root) Mark(ctx context.Context, name string, executable *bool, modified time.Time) (err error) {
	if r.opt.ReadOnly {
		return workspacefs.ErrReadOnly
	}
	opened, err := r.Open(ctx, name)
	if err != nil {
		return err
	}
	f, ok := opened.(*os.File)
	if !ok {
		return fmt.Errorf("mark %s: %w", name, errors.Join(errors.ErrUnsupported, opened.Close()))
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := regular(f)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return workspacefs.ErrHardLink
	}
	if executable != nil {
		const bits = 0o111
		mode := info.Mode().Perm() &^ bits
		if *executable {
			mode |= (mode & 0o444) >> 2 // for those who may read it //nolint:mnd // the bits beside those
		}
		if err := f.Chmod(mode & fs.ModePerm); err != nil {
			return refusal(err)
		}
	}
	if modified.IsZero() {
		return nil
	}
	// Through the open file, even if its name has another file by now.
	if err := os.Chtimes(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), time.Time{}, modified); err != nil {
		return refusal(err)
	}
	return nil
}
