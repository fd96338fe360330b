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

// outputs keeps what jobs print from filling the disk: all of it has a bound, and it gives way first where room is short.
// It is safe for concurrent use.
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

// begin counts the log of a job until end is called.
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

// look takes note of the free room.
func (o *outputs) look() Room {
	r, err := o.ask()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unseen = 0; err == nil { // else what was known holds
		o.room = r
	}
	return o.room
}

// admits reports whether n more bytes of a log are kept.
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

// grow is called before a log becomes longer by a segment. Ended jobs give way to those that run; where these alone have too much,
// alone reports that the log is to keep no more than it must.
func (o *outputs) grow(l *jobLog) (alone bool) {
	most, running := o.bounds()
	o.dirs.prune(time.Now(), most, running)
	o.mu.Lock()
	a := o.logs[l]
	o.mu.Unlock()
	return sum(running)+segmentSize > most || running[a]+segmentSize > most/2
}

// bounds are how much all may keep, and what those that run have of it.
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

// prune lets go of what is not to be kept any more.
func (o *outputs) prune() {
	most, running := o.bounds()
	o.dirs.prune(time.Now(), most, running)
}

// giveWay frees what is missing on the disk: of ended jobs first, the oldest of the account that keeps the most, then all but the last
// segments of those that run. It reports how many bytes it has freed.
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
