package main

import (
	"fmt"

	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// boxFlags are the limits of one sandbox of the provider local, except those of disk space.
type boxFlags struct {
	TmpQuota     byteSize `placeholder:"SIZE" default:"256MiB" group:"Limits" help:"Maximum size of /tmp in one sandbox. It is memory, and counts as the sandbox's."`
	MaxFileSize  byteSize `placeholder:"SIZE" default:"1GiB" group:"Limits" help:"Largest file that a command in a sandbox can write."`
	MaxProcesses int      `placeholder:"N" default:"512" group:"Limits" help:"Processes and threads of one sandbox; fewer if the host cannot run that many in each of --max-boxes."`
	MaxOpenFiles int      `placeholder:"N" default:"1024" group:"Limits" help:"Files that one process in a sandbox may have open; never more than this process may have."`
}

// check returns an error for the first flag that is out of range.
func (f boxFlags) check() error {
	const leastBytes, leastFiles, most = 1 << 20, 64, 1 << 20
	switch {
	case f.TmpQuota < leastBytes:
		return schemas.Invalidf("tmp-quota", "%s is out of range: at least %s", f.TmpQuota, byteSize(leastBytes))
	case f.MaxFileSize < leastBytes:
		return schemas.Invalidf("max-file-size", "%s is out of range: at least %s", f.MaxFileSize, byteSize(leastBytes))
	case f.MaxProcesses < local.LeastProcesses || f.MaxProcesses > most:
		return schemas.Invalidf("max-processes", "%d is out of range: %d to %d", f.MaxProcesses, local.LeastProcesses, most)
	case f.MaxOpenFiles < leastFiles || f.MaxOpenFiles > most:
		return schemas.Invalidf("max-open-files", "%d is out of range: %d to %d", f.MaxOpenFiles, leastFiles, most)
	}
	return nil
}

// set copies the flags to the provider's options.
func (f boxFlags) set(o *local.Options) {
	o.Tmp, o.FileSize, o.Processes, o.OpenFiles = int64(f.TmpQuota), int64(f.MaxFileSize), f.MaxProcesses, f.MaxOpenFiles
}

// describe returns the limits of a sandbox, for the doctor.
func (f boxFlags) describe() finding {
	return finding{"box limits", good,
		fmt.Sprintf("%s of memory unless its record says more, /tmp %s (--tmp-quota), a file %s (--max-file-size), "+
			"%s (--max-processes), %s open (--max-open-files)", byteSize(local.DefaultMemory), f.TmpQuota, f.MaxFileSize,
			count(f.MaxProcesses, "process", "processes"), count(f.MaxOpenFiles, "file")), ""}
}
