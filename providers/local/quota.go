//go:build linux

package local

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local/box"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// roomEvery is how often the free room is looked at while a box may write, roomIdle while none does.
	roomEvery = 100 * time.Millisecond
	roomIdle  = time.Second
	// restShare is how long a measurement rests, as a multiple of the time that it works.
	restShare = 3
	// quick is a workspace that is measured by either of the two who measure; of the others there is one at a time.
	quick = time.Second
	// leastGrowth is by how much a workspace must have grown to be one that fills the disk.
	leastGrowth = 1 << 20
)

// quotas enforces the limits of workspaces and keeps them from filling the host's disk. Writes of boxes are measured while the boxes live;
// writes of file tools are announced beforehand.
type quotas struct {
	dirs    []string // whose file systems are kept from being full; the first holds the workspaces
	limit   safefs.Taken
	home    int64 // bytes of a home folder; 0: no limit
	account safefs.Taken
	reserve Reserve
	outputs *outputs
	ownerOf func(schemas.AccountID) int // host user of an account's files, 0: they have none of their own
	log     *slog.Logger

	wake chan struct{} // something is to be measured sooner

	mu       sync.Mutex
	spaces   map[string]*space
	accounts map[string]*gauge // by accountKey
	boxes    map[*sandbox]writing
	room     Room
	short    time.Time // since when there is too little room; zero: there is enough
	refusals map[string]int64
	ended    map[string]int64

	namelessAt, namelessSoon time.Time // when files without a name are looked for next, and when at the earliest
	lastNameless             time.Time // when a box was last ended for those while the disk was short
}

// writing records the workspaces that a box may write to.
type writing struct {
	spaces  []string
	since   time.Time
	evicted bool
}

func newQuotas(p *host, outputs *outputs) *quotas {
	o := p.opt
	q := &quotas{
		dirs:    []string{o.Workspaces, o.StateDir},
		limit:   safefs.Taken{Bytes: limitOf(o.WorkspaceQuota, DefaultWorkspaceQuota), Files: limitOf(o.WorkspaceFiles, DefaultWorkspaceFiles)},
		home:    limitOf(o.HomeQuota, DefaultHomeQuota),
		account: safefs.Taken{Bytes: limitOf(o.AccountQuota, DefaultAccountQuota)},
		reserve: o.MinFree, outputs: outputs, ownerOf: p.hostID, log: p.log,
		wake: make(chan struct{}, 1), spaces: map[string]*space{}, accounts: map[string]*gauge{}, boxes: map[*sandbox]writing{},
		refusals: map[string]int64{}, ended: map[string]int64{},
	}
	if q.limit.Bytes > 0 && q.account.Bytes > 0 { // as many files for all its bytes as a workspace has for its own
		q.account.Files = max(q.limit.Files, int64(float64(q.limit.Files)*float64(q.account.Bytes)/float64(q.limit.Bytes)))
	}
	q.look()
	return q
}

// limitOf returns the limit that an option sets: 0 means the default, a negative value no limit (0).
func limitOf(value, standard int64) int64 { return max(0, cmp.Or(value, standard)) }

// accountKey returns the key of an account's gauge: the account's host user if it has one, because that can also be read from a
// directory's owner.
func accountKey(user int, a schemas.AccountID) string {
	if user > 0 {
		return strconv.Itoa(user)
	}
	return "account:" + string(a)
}

// run measures workspaces and monitors free space until done is closed.
func (q *quotas) run(done <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { q.measureAll(ctx, 0) })
	all.Go(func() { q.measureAll(ctx, quick) })
	all.Go(func() { q.watchRoom(ctx) })
	all.Go(func() { q.watchNameless(ctx) })
	<-done
	cancel()
	all.Wait()
}

// space returns the record of a workspace, creating it at first use. The lock is held.
func (q *quotas) space(name string) *space {
	s := q.spaces[name]
	if s == nil {
		s = &space{gauge: gauge{limit: q.limit}, name: name, what: spaceOver, flag: "--workspace-quota"}
		if strings.HasPrefix(name, homePrefix) {
			s.limit.Bytes, s.what, s.flag = q.home, homeOver, "--home-quota"
		}
		q.spaces[name] = s
	}
	return s
}

// owned records the account of a workspace, by its key. The lock is held.
func (q *quotas) owned(s *space, key string) {
	if s.account != nil {
		return
	}
	g := q.accounts[key]
	if g == nil {
		g = &gauge{limit: q.account, ceiling: safefs.Taken{
			Bytes: q.account.Bytes + q.account.Bytes/graceShare, Files: q.account.Files + q.account.Files/graceShare,
		}, seen: true}
		q.accounts[key] = g
	}
	s.account = g
	g.add(s.taken)
}

// use records that an account is about to use a workspace. It returns why nothing may be written there; nil if writes are allowed.
func (q *quotas) use(a schemas.AccountID, name string) *refused {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.space(name)
	q.owned(s, accountKey(q.ownerOf(a), a))
	return q.refusal(s)
}

// refusal returns why nothing may be written to the space; nil if writes are allowed. The lock is held.
func (q *quotas) refusal(s *space) *refused {
	if !q.short.IsZero() {
		return &refused{why: fullDisk, err: schemas.OpErrorf(schemas.Unavailable, "write",
			"%s, so nothing is written: try again later, or delete files with bash", q.room.says())}
	}
	return s.refusal()
}

// frugal returns why a command with these mounts may only read and delete; empty if it may write.
func (q *quotas) frugal(a schemas.AccountID, mounts []providers.Mount) string {
	for _, m := range mounts {
		if m.ReadOnly {
			continue
		}
		if r := q.use(a, m.Namespace); r != nil {
			q.count(r.why)
			return schemas.Public(r.err).Message
		}
	}
	return ""
}

// count counts a refusal by its reason.
func (q *quotas) count(why string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusals[why]++
}

// admit returns the function that a file tool calls before a write, with the most bytes and files by which the workspace can grow. It
// returns an error if the write is refused, and counts the growth otherwise.
func (q *quotas) admit(a schemas.AccountID, name string) func(bytes, files int64) error {
	return func(bytes, files int64) error {
		q.mu.Lock()
		defer q.mu.Unlock()
		s := q.space(name)
		q.owned(s, accountKey(q.ownerOf(a), a))
		if bytes > 0 || files > 0 {
			if r := q.refusal(s); r != nil {
				q.refusals[r.why]++
				return r.err
			}
		}
		t := safefs.Taken{Bytes: bytes, Files: files}
		s.add(t)
		if s.account != nil {
			s.account.add(t)
		}
		if s.touched = true; s.active {
			s.pending.Bytes, s.pending.Files = s.pending.Bytes+bytes, s.pending.Files+files
		}
		return nil
	}
}

// enter records that a box may write to mounts, until leave.
func (q *quotas) enter(sb *sandbox, a schemas.AccountID, mounts []providers.Mount) {
	w := writing{since: time.Now()}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range mounts {
		if m.ReadOnly {
			continue
		}
		s := q.space(m.Namespace)
		q.owned(s, accountKey(q.ownerOf(a), a))
		s.boxes++
		s.touched = true
		w.spaces = append(w.spaces, m.Namespace)
	}
	if len(w.spaces) > 0 {
		q.boxes[sb] = w
		q.hurry()
	}
}

// leave ends what enter recorded, if anything.
func (q *quotas) leave(sb *sandbox) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range q.boxes[sb].spaces {
		if s := q.spaces[name]; s != nil {
			s.boxes--
			s.touched = true
			s.gone = time.Now()
			if q.boxes[sb].evicted {
				s.dying--
			} else {
				s.left = s.gone
			}
		}
	}
	delete(q.boxes, sb)
}

// gone drops the record of a workspace whose directory was just removed, unless it is being measured: the measurement drops it then.
func (q *quotas) gone(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spaces[name]; s != nil && !s.active {
		q.forget(s)
	}
}

// hurry wakes the measuring goroutines.
func (q *quotas) hurry() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// measureAll measures due workspaces until ctx ends; with a positive most only those whose last measurement took no longer.
func (q *quotas) measureAll(ctx context.Context, most time.Duration) {
	if most == 0 {
		q.discover()
	}
	for {
		s, wait := q.next(time.Now(), most)
		if s != nil {
			q.measure(ctx, s)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-q.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// discover creates records of the existing workspaces.
func (q *quotas) discover() {
	entries, err := os.ReadDir(q.dirs[0])
	if err != nil {
		q.log.Warn("workspaces not listed: their sizes are known once they are used", "error", err)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && box.CheckName(name) == nil && name[0] != '.' {
			q.space(name)
		}
	}
}

// next returns the workspace that is most overdue, or nil and how long to wait for one.
func (q *quotas) next(now time.Time, most time.Duration) (s *space, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = measureEvery
	var first time.Time
	for _, c := range q.spaces {
		at, ok := c.due(!q.short.IsZero())
		switch {
		case !ok || most > 0 && c.took > most:
		case at.After(now):
			wait = min(wait, at.Sub(now))
		case s == nil || c.boxes > 0 && s.boxes == 0 || at.Before(first) && (c.boxes > 0) == (s.boxes > 0):
			s, first = c, at
		}
	}
	if s != nil {
		s.active, s.touched, s.pending = true, false, safefs.Taken{}
	}
	return s, wait
}

// measure measures a workspace, stores the result and ends boxes if it is too large.
func (q *quotas) measure(ctx context.Context, s *space) {
	var took time.Duration
	rest := func(ctx context.Context, worked time.Duration) {
		took += worked
		q.mu.Lock()
		pause := worked * restShare
		if !q.short.IsZero() {
			pause = 0
		}
		q.mu.Unlock()
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	dir := q.dirs[0] + "/" + s.name
	began := time.Now()
	m, err := safefs.Measure(ctx, dir, rest)
	var st unix.Stat_t
	owner := 0
	if unix.Lstat(dir, &st) == nil && os.Geteuid() == 0 {
		owner = int(st.Uid)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.active, s.measured, s.took = false, time.Now(), took
	switch {
	case errors.Is(err, fs.ErrNotExist):
		q.forget(s)
		return
	case err != nil:
		s.touched = true
		if ctx.Err() == nil {
			q.log.Warn("workspace not measured", "workspace", s.name, "error", err)
		}
		return
	}
	if owner > 0 {
		q.owned(s, accountKey(owner, ""))
	}
	q.observe(s, m)
	s.counted = began
}

// forget drops the record of a workspace whose directory is gone. The lock is held.
func (q *quotas) forget(s *space) {
	if s.account != nil {
		s.account.add(safefs.Taken{Bytes: -s.taken.Bytes, Files: -s.taken.Files})
	}
	if s.boxes == 0 {
		delete(q.spaces, s.name)
	}
	s.taken, s.seen = safefs.Taken{}, true
}

// observe stores a measurement, and ends the writing boxes if it exceeds a ceiling. The lock is held.
func (q *quotas) observe(s *space, m safefs.Measured) {
	m.Bytes, m.Files = max(0, m.Bytes+s.pending.Bytes), max(0, m.Files+s.pending.Files)
	before, known := s.taken, s.seen
	end := s.observe(m)
	grown := safefs.Taken{Bytes: m.Bytes - before.Bytes, Files: m.Files - before.Files}
	var sum bool
	if a := s.account; a != nil {
		sum = a.observe(safefs.Measured{Taken: safefs.Taken{Bytes: max(0, a.taken.Bytes+grown.Bytes), Files: max(0, a.taken.Files+grown.Files)}})
	}
	switch {
	case end:
		q.endIn(s, fullSpace, s.over())
	case sum && known && grown.Bytes+grown.Files > 0:
		q.endIn(s, fullAccount, s.account.says(accountOver, "--account-workspace-quota", "--account-workspace-quota"))
	case !q.short.IsZero() && known && (grown.Bytes >= leastGrowth || grown.Files >= leastGrowth>>10):
		q.endIn(s, fullDisk, "")
	}
}

// endIn ends the boxes that may write to a workspace, except those that [space.spares]. The lock is held.
func (q *quotas) endIn(s *space, why, says string) {
	err := &schemas.Error{Code: schemas.Exhausted, Op: "run", Message: "what ran was ended: " + says}
	if why == fullDisk {
		err = q.noRoom()
	}
	var blamed []*sandbox // all of them before the first is ended, which spares who begins later
	for sb, w := range q.boxes {
		if slices.Contains(w.spaces, s.name) && !s.spares(w.since) {
			blamed = append(blamed, sb)
		}
	}
	n := len(blamed)
	if n == 0 {
		return
	}
	for _, sb := range blamed {
		q.evict(sb, err)
	}
	q.ended[why] += int64(n)
	q.log.Warn("processes that could write to a workspace were ended", "workspace", s.name, "why", why, "sandboxes", n, "bytes",
		s.taken.Bytes, "files", s.taken.Files)
}

// evict ends a box, and records that it wrote to its workspaces until now. It reports whether this was the first eviction. The lock is
// held.
func (q *quotas) evict(sb *sandbox, why *schemas.Error) (first bool) {
	if first = sb.evict(why); first {
		w := q.boxes[sb]
		for _, name := range w.spaces {
			s := q.space(name)
			s.left = time.Now()
			s.dying++
		}
		if w.evicted = true; len(w.spaces) > 0 {
			q.boxes[sb] = w
		}
	}
	return first
}

// Refusals returns how many commands and file tool writes were refused because a workspace, an account or the disk was full, and how many
// sandboxes were ended for that, by reason (see [FullReasons]).
func (p *workspaces) Refusals() (refused, ended map[string]int64) {
	q := p.quotas
	q.mu.Lock()
	defer q.mu.Unlock()
	refused, ended = map[string]int64{}, map[string]int64{}
	for _, why := range FullReasons() {
		refused[why], ended[why] = q.refusals[why], q.ended[why]
	}
	return refused, ended
}

// evict ends a box with all its processes; runs and jobs in it fail with why. It reports whether it was the first eviction.
func (s *sandbox) evict(why *schemas.Error) bool {
	first := s.evicted.CompareAndSwap(nil, why)
	s.because(why.Message)
	s.Kill()
	return first
}
