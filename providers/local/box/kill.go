//go:build linux

package box

import (
	"time"

	"golang.org/x/sys/unix"
)

// signal sends a signal to the process group of a run, unless the run has ended.
func (i *server) signal(f signalFrame) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for pid, r := range i.runs { // its number cannot be another's: it is not reaped while we hold the lock
		if r.id == f.ID {
			_ = unix.Kill(-pid, unix.Signal(f.Signal)) // it may have ended just now
		}
	}
}

// quietLooks is how often in a row nothing is found before nothing is left: a process that was born during a scan, of a parent that ended
// in it, is not seen by that scan.
const quietLooks = 3

// kill kills all processes that a run started, whatever their parent or group, and reports to the worker when none is left.
func (i *server) kill(f killFrame) {
	leader := 0
	i.mu.Lock()
	for pid, r := range i.runs {
		if r.id == f.ID {
			leader = pid
		}
	}
	i.mu.Unlock()
	tag := topTag - f.ID
	its := func(t uint64) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return t == tag || t < topTag-i.last // asked each time: a run may begin meanwhile, and its tag is lower
	}
	i.linger(its, time.Duration(f.Moment)*time.Millisecond)
	killed := map[int]struct{}{}
	for quiet := 0; quiet < quietLooks; {
		found := i.killThose(its)
		if len(found) == 0 {
			quiet++
			continue
		}
		quiet = 0
		for _, pid := range found {
			killed[pid] = struct{}{}
		}
		time.Sleep(time.Millisecond) // they are dying: there is no signal for that, as they are not all our children
	}
	delete(killed, leader)
	i.send(kindKilled, killedFrame{ID: f.ID, Killed: len(killed)})
}

// linger waits, at most for moment, until processes with these tags have ended by themselves.
func (i *server) linger(meant func(tag uint64) bool, moment time.Duration) {
	end := time.Now().Add(moment)
	for pause := time.Millisecond; time.Now().Before(end) && len(i.those(meant)) > 0; pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(min(pause, time.Until(end)))
	}
}

// killAll kills all processes that runs started. With a pid namespace of its own the box does not need it: they end with process 1.
func (i *server) killAll() {
	if i.state.setup.Mode == Isolated {
		return
	}
	quiet := 0
	for range 2000 {
		if len(i.killThose(func(uint64) bool { return true })) > 0 {
			quiet = 0
		} else if quiet++; quiet == quietLooks {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
