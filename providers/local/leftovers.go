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

// owed is what a box owes after a sample: the time that was used in it stands for the time since the last sample, less what is free.
func owed(before, used, sample, since time.Duration) time.Duration {
	if sample <= 0 {
		return before
	}
	return max(0, before+time.Duration(float64(used)/float64(sample)*float64(since))-since/freeShare)
}

// meter ends boxes in which nothing of ours runs and which still use the processors, until the provider is closed.
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

// reading is the processor time of an idle box at the beginning of a sample.
type reading struct {
	k    *kept
	used time.Time // when it was last used then
	cpu  time.Duration
}

// look takes one sample of all idle boxes. It stands for the time since the last one.
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

// idle reports whether no run and no job is in a box. It is called under the lock.
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

// cpuTime is what the processes of a box have used.
func (s *sandbox) cpuTime() time.Duration {
	if s.cgroup != nil {
		if pids, err := s.cgroup.Processes(); err == nil {
			return confine.CPUTime(pids)
		}
	}
	return confine.CPUTime(confine.Below(s.Pid()))
}

// makeRoom makes place for one more kept box of an account: where there are as many as there may be, the one goes in
// which nothing has run for longest, of this account or of the one that has the most. Its victim is the caller's to
// end. It is called under the lock. Code: exhausted, something runs in all of them.
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
