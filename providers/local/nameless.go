//go:build linux

package local

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/confine"
	"github.com/sandjet/sandjet/schemas"
)

// The pace at which files without a name are looked for, in boxes that may write: no walk through a workspace meets them.
const (
	namelessEvery = time.Second
	namelessShare = 20   // a scan rests this multiple of the time that it took, or a quarter of that if the disk is short
	mostLookedAt  = 8192 // open files of one box
	// namelessDies is how long those that were ended for it may take to give their files back before all others are ended too.
	namelessDies = 500 * time.Millisecond
)

// unnamed is the size of the deleted files that a box holds open.
type unnamed struct {
	sb    *sandbox
	bytes int64
}

// processes returns the processes of a box.
func (s *sandbox) processes() []int {
	if s.cgroup != nil {
		if pids, err := s.cgroup.Processes(); err == nil {
			return pids
		}
	}
	return confine.Below(s.Pid())
}

// nameless returns the bytes of deleted files that processes hold open on the given devices. Files that are mapped but not open are
// missed.
func nameless(pids []int, devices []uint64) (bytes int64) {
	type file struct{ dev, ino uint64 }
	seen, looked := map[file]bool{}, 0
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		d, err := os.Open(dir)
		if err != nil {
			continue // it has ended
		}
		names, _ := d.Readdirnames(mostLookedAt - looked)
		_ = d.Close()
		for _, name := range names {
			var st unix.Stat_t
			if unix.Stat(dir+"/"+name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0 || !slices.Contains(devices, st.Dev) {
				continue
			}
			if f := (file{st.Dev, st.Ino}); !seen[f] {
				seen[f] = true
				bytes += st.Blocks * 512
			}
		}
		if looked += len(names); looked >= mostLookedAt {
			break
		}
	}
	return bytes
}

// endNameless ends boxes whose deleted open files exceed the workspace's limit or the rest of the account's, and the largest first if the
// disk is short of room.
func (q *quotas) endNameless() {
	now := time.Now()
	q.mu.Lock()
	short := !q.short.IsZero()
	due := q.namelessAt
	if short {
		due = q.namelessSoon
	}
	boxes := make([]unnamed, 0, len(q.boxes))
	for sb, w := range q.boxes {
		if !w.evicted {
			boxes = append(boxes, unnamed{sb: sb})
		}
	}
	q.mu.Unlock()
	if now.Before(due) || len(boxes) == 0 {
		return
	}
	var st unix.Stat_t
	if unix.Stat(q.dirs[0], &st) != nil {
		return
	}
	for i := range boxes {
		boxes[i].bytes = nameless(boxes[i].sb.processes(), []uint64{st.Dev})
	}
	slices.SortFunc(boxes, func(a, b unnamed) int { return cmp.Compare(b.bytes, a.bytes) })
	took := time.Since(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.namelessSoon = time.Now().Add(took * namelessShare / 4)
	q.namelessAt = time.Now().Add(max(namelessEvery, took*namelessShare))
	q.judgeNameless(boxes)
}

// judgeNameless ends those of the boxes, which are ordered largest first, that hold too much. The lock is held.
func (q *quotas) judgeNameless(boxes []unnamed) {
	missing := q.room.Reserve - q.room.Free
	sums := map[*gauge]int64{}
	for _, b := range boxes {
		if a := q.accountOf(b.sb); a != nil {
			sums[a] += b.bytes
		}
	}
	for _, b := range boxes {
		if b.bytes < leastGrowth {
			return
		}
		a := q.accountOf(b.sb)
		switch {
		case q.limit.Bytes > 0 && b.bytes > q.limit.Bytes+q.limit.Bytes/graceShare:
			q.endHolder(b, fullSpace, namelessError(q.limit.Bytes, "--workspace-quota"))
		case a != nil && a.limit.Bytes > 0 && a.taken.Bytes+sums[a] > a.limit.Bytes+a.limit.Bytes/graceShare:
			sums[a] -= b.bytes
			q.endHolder(b, fullAccount, namelessError(a.limit.Bytes, "--account-workspace-quota"))
		case !q.short.IsZero() && missing > 0:
			missing -= b.bytes
			q.lastNameless = time.Now()
			q.endHolder(b, fullDisk, q.noRoom())
		}
	}
}

// accountOf returns the gauge of all workspaces of a box's account; nil if the account is unknown. The lock is held.
func (q *quotas) accountOf(sb *sandbox) *gauge {
	for _, name := range q.boxes[sb].spaces {
		if s := q.spaces[name]; s != nil && s.account != nil {
			return s.account
		}
	}
	return nil
}

// endHolder ends a box because of its deleted open files. The lock is held.
func (q *quotas) endHolder(b unnamed, why string, err *schemas.Error) {
	if _, writes := q.boxes[b.sb]; !writes || !q.evict(b.sb, err) {
		return
	}
	q.ended[why]++
	q.log.Warn("processes that hold deleted files open were ended", "why", why, "bytes", b.bytes)
}

func namelessError(limit int64, flag string) *schemas.Error {
	return &schemas.Error{Code: schemas.Exhausted, Op: "run", Message: "what ran was ended: files that it has deleted and holds open take more than " +
		sizeText(limit) + " (" + flag + "): close such files, or delete others with bash"}
}
