//go:build linux

package local

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// noRoom is the error for runs that were ended because the disk is short of room. The lock is held.
func (q *quotas) noRoom() *schemas.Error {
	return &schemas.Error{Code: schemas.Unavailable, Op: "run",
		Message: "what ran was ended because " + q.room.says() + ": try again later, or delete files with bash"}
}

// watchRoom monitors the free space until ctx ends.
func (q *quotas) watchRoom(ctx context.Context) {
	for {
		q.look()
		q.makeRoom()
		q.endAll()
		q.mu.Lock()
		every := roomIdle
		if len(q.boxes) > 0 {
			every = roomEvery
		}
		q.mu.Unlock()
		if !wait.Sleep(ctx, every) {
			return
		}
	}
}

// watchNameless checks for deleted open files until ctx ends. It runs beside watchRoom because it takes long with many boxes.
func (q *quotas) watchNameless(ctx context.Context) {
	for wait.Sleep(ctx, roomEvery) {
		q.endNameless()
	}
}

// look reads and stores the free space. If little is left it makes the measuring goroutines search for growing workspaces.
func (q *quotas) look() {
	room, err := q.roomNow()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		return // what was known holds
	}
	q.room = room
	switch short := room.Short(); {
	case short && q.short.IsZero():
		q.short = time.Now()
		q.log.Warn("disk space is low: writes to workspaces are refused until there is more", "free", room.Free, "reserve",
			room.Reserve, "free_inodes", room.Files)
	case !short && !q.short.IsZero():
		q.short = time.Time{}
		q.log.Info("disk space is sufficient again", "free", room.Free)
	}
	if q.short.IsZero() {
		return
	}
	for _, s := range q.spaces {
		s.touched = s.touched || s.boxes > 0
	}
	q.hurry()
}

// endAll ends all boxes that began before the space ran short, once only half of the reserve is left.
func (q *quotas) endAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.short.IsZero() || !q.room.below(2) || time.Since(q.lastNameless) < namelessDies && !q.room.below(8) {
		return
	}
	n := 0
	for sb, w := range q.boxes {
		if w.since.Before(q.short) && q.evict(sb, q.noRoom()) {
			n++
		}
	}
	if n > 0 {
		q.ended[fullDisk] += int64(n)
		q.log.Warn("disk almost full, all commands that can write to workspaces ended", "sandboxes", n, "free", q.room.Free)
	}
}

// roomNow reads the free space of the file systems and returns that of the tightest.
func (q *quotas) roomNow() (Room, error) {
	var least Room
	for i, dir := range q.dirs {
		r, err := roomOf(dir, q.reserve)
		if err != nil {
			return least, err
		}
		if i == 0 || r.Short() && !least.Short() || r.Short() == least.Short() && tighter(r, least) < 0 {
			least = r
		}
	}
	return least, nil
}

// roomOf reads the free space of the file system of a directory.
func roomOf(dir string, reserve Reserve) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Room{}, err
	}
	size := int64(st.Blocks) * st.Bsize
	return Room{
		Free: int64(st.Bavail) * st.Bsize, Size: size, Files: int64(st.Ffree), Nodes: int64(st.Files),
		Reserve: reserve.Of(size), off: reserve.Bytes < 0,
	}, nil
}

// makeRoom removes job outputs if the disk is short of room.
func (q *quotas) makeRoom() {
	if freed := q.outputs.giveWay(); freed > 0 {
		q.log.Warn("disk space is low: outputs of background jobs were dropped", "bytes", freed)
		q.look()
	}
}

// Room returns the free space as last read.
func (p *workspaces) Room() Room {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	return p.quotas.room
}
