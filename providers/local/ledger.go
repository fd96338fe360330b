//go:build linux

package local

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/schemas"
)

// Bounds of workspaces where Options do not say.
const (
	DefaultWorkspaceQuota int64 = 10 << 30 // bytes of one workspace
	DefaultWorkspaceFiles int64 = 1_000_000
	DefaultAccountQuota   int64 = 50 << 30 // bytes of all workspaces of an account
)

// graceShare is the part of a limit by which a workspace may go above it before what runs in it is ended.
const graceShare = 20

// gauge is the space that one workspace, or all workspaces of an account, take, and its limit.
type gauge struct {
	limit   safefs.Taken // 0: none
	taken   safefs.Taken
	hidden  bool
	ceiling safefs.Taken // above it what writes is ended
	seen    bool
}

// beyond reports whether a exceeds b in bytes or files, where b has a limit.
func beyond(a, b safefs.Taken) bool {
	return b.Bytes > 0 && a.Bytes > b.Bytes || b.Files > 0 && a.Files > b.Files
}

// full reports whether writes are refused: the limit is reached, or not everything can be counted.
func (g *gauge) full() bool {
	return g.hidden || g.limit.Bytes > 0 && g.taken.Bytes >= g.limit.Bytes || g.limit.Files > 0 && g.taken.Files >= g.limit.Files
}

// observe stores a measurement and reports whether the writing boxes must be ended. They must if the space has grown beyond a ceiling
// above the limit. A process that deletes is spared however much is left: each measurement lowers the ceiling to the space taken (at least
// the limit) plus a grace, and only ending the boxes raises it.
func (g *gauge) observe(m safefs.Measured) (end bool) {
	grace := safefs.Taken{Bytes: g.limit.Bytes / graceShare, Files: g.limit.Files / graceShare}
	room := func(limit, now, grace int64) int64 { return max(limit, now) + grace }
	next := safefs.Taken{Bytes: room(g.limit.Bytes, m.Bytes, grace.Bytes), Files: room(g.limit.Files, m.Files, grace.Files)}
	if g.limit.Bytes == 0 {
		next.Bytes = 0
	}
	if g.limit.Files == 0 {
		next.Files = 0
	}
	end = g.seen && (beyond(m.Taken, g.ceiling) || m.Hidden && !g.hidden)
	if g.seen && !end {
		next = safefs.Taken{Bytes: min(g.ceiling.Bytes, next.Bytes), Files: min(g.ceiling.Files, next.Files)}
	}
	g.ceiling, g.taken, g.hidden, g.seen = next, m.Taken, m.Hidden, true
	return end
}

// add adds an amount that is about to be written, or that was removed (negative).
func (g *gauge) add(t safefs.Taken) {
	g.taken.Bytes = max(0, g.taken.Bytes+t.Bytes)
	g.taken.Files = max(0, g.taken.Files+t.Files)
}

// space is this process's record of a workspace.
type space struct {
	gauge

	name     string
	what     string // how a refusal begins
	flag     string // that sets its limit in bytes
	account  *gauge // of all workspaces of its account; nil: it is not known whose it is
	boxes    int    // that may write to it
	touched  bool   // something may have changed since the last measurement began
	pending  safefs.Taken
	active   bool // it is being measured
	measured time.Time
	took     time.Duration // that was worked for it, without rests

	counted time.Time // when the last measurement that succeeded began: it may lack what was written from then on
	left    time.Time // when a box that could write was last ended, or ended by itself
	gone    time.Time // when one last had ended
	dying   int       // that are to end and have not ended: they may write until then
}

// spares reports whether a box that began at that time is not to blame for growth since the last measurement: it began after another box
// was ended, and that other box may have written the data. The next measurement decides. So a new box can delete files right after another
// was ended for a full workspace.
func (s *space) spares(began time.Time) bool {
	return began.After(s.left) && (s.dying > 0 || s.counted.Before(s.gone))
}

// The pace of measurements. One that is in use is measured again after a second and a multiple of what the last one took.
const (
	measureEvery = time.Second
	measureShare = 5
)

// due returns when to measure the space again, sooner if the disk is short of room; false if there is no need to.
func (s *space) due(short bool) (at time.Time, ok bool) {
	if s.active || s.seen && !s.touched && s.boxes == 0 {
		return at, false
	}
	switch {
	case s.measured.IsZero():
		return s.measured, true
	case short:
		return s.measured.Add(roomEvery), true
	default:
		return s.measured.Add(max(measureEvery, measureShare*s.took)), true
	}
}

// Why nothing may be written.
const (
	fullSpace   = "workspace"
	fullAccount = "account"
	fullDisk    = "disk"
)

// FullReasons returns the reasons by which refusals are counted.
func FullReasons() []string { return []string{fullSpace, fullAccount, fullDisk} }

// How a refusal begins.
const (
	spaceOver   = "the workspace is over its limit"
	homeOver    = "the sandbox's home folder is over its limit"
	accountOver = "the workspaces of this account are over their common limit"
)

// over describes the full workspace, for an error message.
func (s *space) over() string { return s.says(s.what, s.flag, "--workspace-files") }

// refusal returns why nothing may be written to the space; nil if writes are allowed.
func (s *space) refusal() *refused {
	switch {
	case s.full():
		return &refused{why: fullSpace, err: schemas.OpErrorf(schemas.Exhausted, "write", "%s", s.over())}
	case s.account != nil && s.account.full():
		return &refused{why: fullAccount, err: schemas.OpErrorf(schemas.Exhausted, "write", "%s",
			s.account.says(accountOver, "--account-workspace-quota", "--account-workspace-quota"))}
	}
	return nil
}

// refused is the error of a refused write, with the reason by which it is counted.
type refused struct {
	why string
	err error
}

// says describes a full gauge, for an error message.
func (g *gauge) says(what, bytes, files string) string {
	const remedy = "delete files with bash, which can always do that: then there is room again"
	switch {
	case g.limit.Bytes > 0 && g.taken.Bytes >= g.limit.Bytes:
		return fmt.Sprintf("%s of %s (%s): %s", what, sizeText(g.limit.Bytes), bytes, remedy)
	case g.limit.Files > 0 && g.taken.Files >= g.limit.Files:
		return fmt.Sprintf("%s of %d files and directories (%s): %s", what, g.limit.Files, files, remedy)
	default:
		return fmt.Sprintf("not all of the workspace can be counted, for many directories in it are nested more than %d deep, or some cannot "+
			"be read: delete those with bash, or make them readable", safefs.MeasureDepth)
	}
}

// sizeText formats a number of bytes for people.
func sizeText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// Reserve is the space that must stay free on a file system. The zero value is a tenth of it, at most 1 GiB.
type Reserve struct {
	Bytes   int64   // below 0: none
	Percent float64 // of the file system
}

const (
	mostReserve    int64 = 1 << 30
	reservePercent       = 10
	// freeFilesShare is the part of a file system's inodes that must stay free, where it has a number of them.
	freeFilesShare = 100
)

// Of returns the bytes that must stay free on a file system of that size.
func (r Reserve) Of(size int64) int64 {
	switch {
	case r.Bytes < 0:
		return 0
	case r.Percent > 0:
		return int64(r.Percent / 100 * float64(size))
	case r.Bytes > 0:
		return r.Bytes
	default:
		return min(mostReserve, size/reservePercent)
	}
}

// Room is the free space on the file system of the workspaces, or on that of the provider's own files if that has less.
type Room struct {
	Free, Size   int64 // bytes
	Files, Nodes int64 // inodes that are free, and all of them; 0: the file system makes them as it likes
	Reserve      int64 // bytes that must stay free
	off          bool
}

// Short reports whether less space or fewer inodes are free than must be.
func (r Room) Short() bool { return r.below(1) }

// below reports whether less than the n-th part of what must stay free is free.
func (r Room) below(n int64) bool {
	return !r.off && (r.Free < r.Reserve/n || r.Nodes > 0 && r.Files < r.Nodes/freeFilesShare/n)
}

// tighter orders rooms by their free bytes beyond the reserve.
func tighter(a, b Room) int { return cmp.Compare(a.Free-a.Reserve, b.Free-b.Reserve) }

// says describes the lack of space, for an error message.
func (r Room) says() string {
	if r.Free < r.Reserve {
		return fmt.Sprintf("the disk of this worker has less than %s free (--min-free)", sizeText(r.Reserve))
	}
	return "the file system of this worker has almost no free inodes"
}
