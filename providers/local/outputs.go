//go:build linux

package local

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// outputShare is the part of the file system that the outputs of jobs take together, at most; one account has half of that.
	outputShare = 4
	// checkEvery is after how many bytes of output the free room is looked at.
	checkEvery = 4 << 20
	// littleOutput is what each job may keep while there is too little room.
	littleOutput = 64 << 10
)

// outputs keeps job outputs from filling the disk: their total is bounded, and they are the first to be removed when room is short. It is
// safe for concurrent use.
type outputs struct {
	dirs *jobDirs
	ask  func() (Room, error) // of the disk that it is on

	mu     sync.Mutex
	logs   map[*jobLog]schemas.AccountID // of the jobs that run
	room   Room
	unseen int64 // bytes that were kept since the room was looked at
}

func newOutputs(dirs *jobDirs, ask func() (Room, error)) *outputs {
	o := &outputs{dirs: dirs, ask: ask, logs: map[*jobLog]schemas.AccountID{}}
	o.look()
	return o
}

// begin counts the log of a job as one that is being written, until end is called.
func (o *outputs) begin(l *jobLog, a schemas.AccountID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logs[l] = a
}

func (o *outputs) end(l *jobLog) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.logs, l)
}

// look reads and stores the free room. On an error the last value stays.
func (o *outputs) look() Room {
	r, err := o.ask()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unseen = 0; err == nil { // else what was known holds
		o.room = r
	}
	return o.room
}

// admits reports whether n more bytes of a log may be stored.
func (o *outputs) admits(l *jobLog, n int) bool {
	o.mu.Lock()
	o.unseen += int64(n)
	r, due := o.room, o.unseen >= checkEvery
	o.mu.Unlock()
	if due {
		r = o.look()
	}
	return !r.Short() || !r.below(2) && l.kept()+int64(n) <= littleOutput
}

// grow is called before a log gets another segment; it removes outputs of ended jobs to make room. If running jobs alone exceed the limit
// it returns true: the log should then store as little as possible.
func (o *outputs) grow(l *jobLog) (alone bool) {
	most, running := o.bounds()
	o.dirs.prune(time.Now(), most, running)
	o.mu.Lock()
	a := o.logs[l]
	o.mu.Unlock()
	return sum(running)+segmentSize > most || running[a]+segmentSize > most/2
}

// bounds returns how many bytes all outputs may take, and how many the running jobs of each account take.
func (o *outputs) bounds() (most int64, running map[schemas.AccountID]int64) {
	o.mu.Lock()
	logs, size := maps.Clone(o.logs), o.room.Size
	o.mu.Unlock()
	running = map[schemas.AccountID]int64{}
	for l, a := range logs {
		running[a] += l.kept()
	}
	if most = mostJobBytes; size > 0 {
		most = min(most, size/outputShare)
	}
	return most, running
}

func sum(of map[schemas.AccountID]int64) (n int64) {
	for _, bytes := range of {
		n += bytes
	}
	return n
}

// prune removes old jobs, and outputs beyond the limit.
func (o *outputs) prune() {
	most, running := o.bounds()
	o.dirs.prune(time.Now(), most, running)
}

// giveWay frees the space that the disk is short of: first outputs of ended jobs, beginning with the oldest of the account that stores the
// most, then all but the last segments of running jobs. It returns how many bytes it freed.
func (o *outputs) giveWay() (freed int64) {
	r := o.look()
	missing := r.Reserve - r.Free
	if !r.Short() || missing <= 0 {
		return 0
	}
	_, running := o.bounds()
	freed = o.dirs.empty(missing, running)
	o.mu.Lock()
	logs := maps.Clone(o.logs)
	o.mu.Unlock()
	largest := slices.SortedFunc(maps.Keys(logs), func(a, b *jobLog) int {
		return cmp.Or(cmp.Compare(running[logs[b]], running[logs[a]]), cmp.Compare(b.kept(), a.kept()))
	})
	for _, l := range largest {
		if freed >= missing {
			break
		}
		freed += l.shrink()
	}
	if freed > 0 {
		o.look()
	}
	return freed
}
