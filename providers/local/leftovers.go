//go:build linux

package local

import (
	"time"

	"github.com/sandjet/sandjet/providers/local/confine"
	"github.com/sandjet/sandjet/schemas"
)

// Bounds of kept boxes where Options do not say.
const (
	// DefaultBoxes is how many boxes are kept in all, DefaultAccountBoxes how many for one account.
	DefaultBoxes        = 32
	DefaultAccountBoxes = 16
	// DefaultLeftoverCPU is the processor time that what calls have left behind in a box may use while none of
	// them, and no job, is in it: beyond a twentieth of a processor, which is free.
	DefaultLeftoverCPU = time.Minute
)

const (
	meterEvery  = 5 * time.Second        // how often what is left behind is looked at
	meterSample = 200 * time.Millisecond // over what time
	freeShare   = 20                     // a 20th of a processor is free
)

// owed returns the processor time debt of an idle box after a sample: the debt before, plus the time used in the sample scaled to the time
// since the last sample, minus the free share. It is never negative.
func owed(before, used, sample, since time.Duration) time.Duration {
	if sample <= 0 {
		return before
	}
	return max(0, before+time.Duration(float64(used)/float64(sample)*float64(since))-since/freeShare)
}

// meter ends kept boxes in which no run or job is active and whose leftover processes use too much processor time, until the provider is
// closed.
func (p *keptBoxes) meter() {
	if p.opt.LeftoverCPU < 0 {
		return
	}
	every := time.NewTicker(p.meterEvery)
	defer every.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-every.C:
		}
		p.look(p.meterEvery)
	}
}

// reading is the processor time of an idle box at the start of a sample.
type reading struct {
	k    *kept
	used time.Time // when it was last used then
	cpu  time.Duration
}

// look takes one sample of all idle boxes, which counts for the whole time since the last one.
func (p *keptBoxes) look(since time.Duration) {
	var list []reading
	p.mu.Lock()
	for _, k := range p.kept {
		if k.alive() && p.idle(k) {
			list = append(list, reading{k: k, used: k.used})
		}
	}
	p.mu.Unlock()
	if len(list) == 0 {
		return
	}
	for i := range list {
		list[i].cpu = list[i].k.sb.cpuTime()
	}
	began := time.Now()
	pause := time.NewTimer(meterSample)
	defer pause.Stop()
	select {
	case <-p.done:
		return
	case <-pause.C:
	}
	for _, r := range list {
		used := r.k.sb.cpuTime() - r.cpu
		p.mu.Lock()
		if !p.idle(r.k) || !r.k.used.Equal(r.used) {
			p.mu.Unlock()
			continue // what it used may be a call's
		}
		r.k.owes = owed(r.k.owes, used, time.Since(began), since)
		over := r.k.owes > p.opt.LeftoverCPU
		if over && p.kept[r.k.ref.ID] == r.k {
			delete(p.kept, r.k.ref.ID)
		}
		p.mu.Unlock()
		if over {
			p.log.Warn("sandbox instance ended: processes left in it by calls used too much processor time",
				"box", r.k.ref.ID, "account", r.k.account, "allowed", p.opt.LeftoverCPU)
			r.k.end("processes that were left in its sandbox used too much processor time while no call was in it")
		}
	}
}

// idle reports whether no run and no job is active in a box. The lock is held.
func (p *keptBoxes) idle(k *kept) bool {
	if k.inside > 0 {
		return false
	}
	for _, j := range p.running.live {
		if j.sb == k.sb && !j.ended() {
			return false
		}
	}
	return true
}

// cpuTime returns the processor time of the box's processes.
func (s *sandbox) cpuTime() time.Duration {
	if s.cgroup != nil {
		if pids, err := s.cgroup.Processes(); err == nil {
			return confine.CPUTime(pids)
		}
	}
	return confine.CPUTime(confine.Below(s.Pid()))
}

// makeRoom makes room for one more kept box of an account. If a limit is reached it chooses as victim the box that has been idle for
// longest, of this account or, at the total limit, of the account with the most boxes; the caller ends it. Nil: there is room. The lock is
// held. Code: exhausted, something runs in all of them.
func (p *keptBoxes) makeRoom(account schemas.AccountID) (victim *kept, err error) {
	counts, total := map[schemas.AccountID]int{}, 0
	for _, k := range p.kept {
		if !k.made() || k.alive() {
			counts[k.account]++
			total++
		}
	}
	own := p.opt.AccountBoxes > 0 && counts[account] >= p.opt.AccountBoxes
	if !own && (p.opt.Boxes <= 0 || total < p.opt.Boxes) {
		return nil, nil //nolint:nilnil // there is room already
	}
	var at string
	for key, k := range p.kept {
		if !k.alive() || !p.idle(k) || own && k.account != account {
			continue
		}
		more := victim == nil || !own && counts[k.account] > counts[victim.account]
		same := victim != nil && (own || counts[k.account] == counts[victim.account])
		if more || same && k.used.Before(victim.used) {
			victim, at = k, key
		}
	}
	if victim == nil {
		if own {
			return nil, schemas.OpErrorf(schemas.Exhausted, "reserve",
				"calls or jobs run in all %d sandboxes that are kept for this account (--account-boxes): let one end first", counts[account])
		}
		return nil, schemas.OpErrorf(schemas.Exhausted, "reserve",
			"calls or jobs run in all %d sandboxes that this worker keeps (--max-boxes): try later", total)
	}
	delete(p.kept, at)
	return victim, nil
}
