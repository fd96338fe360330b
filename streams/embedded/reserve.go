package embedded

import (
	"os"
	"path/filepath"
	"time"
)

const (
	// reserveSize is how many bytes of its disk a log holds for itself, in a file, while there is room: with those of this file it can
	// write, and be started again, when others have filled the disk.
	reserveSize = 2 * leastRoom
	// reserveAgain is the free space from which on there is such a file.
	reserveAgain = 4 * reserveSize
	// reserveTry is when it is tried again, and logged again, after it could not be made or released.
	reserveTry = time.Minute
)

// reserving is what to do with the reserve file of a log.
type reserving int

const (
	reserveLeave reserving = iota
	reserveMake
	reserveGive // back to the disk
)

// reserveStep decides by the free space beside the reserve, now and at the previous reading. While free space falls the reserve is kept,
// since whatever fills the disk would take it too. It is pure.
func reserveStep(held bool, before, free int64) reserving {
	switch {
	case held && free < leastRoom && free >= before:
		return reserveGive
	case !held && free >= reserveAgain:
		return reserveMake
	}
	return reserveLeave
}

func (d *storeDir) reserveFile() string { return filepath.Join(d.path, "reserve") }

// reserve creates or releases the reserve file according to the free space, and returns what it did. It creates one only if mayMake.
func (d *storeDir) reserve(mayMake bool) (reserving, error) {
	name := d.reserveFile()
	info, err := os.Lstat(name)
	held := err == nil && info.Mode().IsRegular() && info.Size() > 0
	free := d.room()
	step := reserveStep(held, d.before, free)
	d.before = free
	switch step {
	case reserveMake:
		if !mayMake {
			return reserveLeave, nil
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return step, err
		}
		err = allocate(f, reserveSize)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = os.Remove(name) // half of one is none
		}
		return step, err
	case reserveGive:
		return step, os.Remove(name)
	case reserveLeave:
	}
	return step, nil
}
