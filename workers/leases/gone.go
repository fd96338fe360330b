package leases

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// absenceKept is how long the absence of a worker's lease is remembered after it was last asked about.
	absenceKept = time.Hour
	// probeEvery is how often a lease that was not found is read again until its absence is proof.
	probeEvery = Renew / 2
	// enoughReads is how many reads in a row must not find a lease, over absentFor at least: a living worker writes its own twice in
	// that time.
	enoughReads = 5
	absentFor   = 2 * Renew
)

// absence is that of one worker's lease.
type absence struct {
	since clock.Reading // the end of the first read that did not find it
	until clock.Reading // the begin of the last one
	asked clock.Reading // when Gone was last called
	reads int           // in a row that did not find it, each while this process held its own lease
}

// proof reports whether the worker is gone, if the reader's own lease is settled.
func (a absence) proof() bool { return a.reads >= enoughReads && a.until.Sub(a.since) >= absentFor }

// Gone reports whether a worker has ended: its lease was in none of several reads over two seconds, and this lease was held all that
// time and for [Settle] at least. One read is no proof: the lease of a living worker is missing for a moment after an outage of the
// log, and when the clock of the server that ends leases is set ahead. So the first answer about a worker is never true; [Lease.Keep]
// reads on, and a later call has the proof. The worker without a name has ended. It blocks for one read. Code: unavailable.
func (l *Lease) Gone(ctx context.Context, worker string) (bool, error) {
	if worker == "" {
		return true, nil
	}
	gone, err := l.read(ctx, worker)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	if a, missing := l.absent[worker]; missing {
		a.asked = clock.Now()
		l.absent[worker] = a
	}
	l.mu.Unlock()
	return gone, nil
}

// Missing reports whether the last read did not find a worker's lease. Where [Lease.Gone] says no beside it, a later call decides.
func (l *Lease) Missing(worker string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, missing := l.absent[worker]
	return missing
}

// AllGone reports whether every worker that started a call is [Lease.Gone], but for this lease's own: the caller knows better
// what that has in flight.
func (l *Lease) AllGone(ctx context.Context, starts []schemas.StartedData) (bool, error) {
	all := true
	for _, s := range starts { // each, so that the first call begins to look for all of them
		if s.Worker == l.record.Worker {
			continue
		}
		gone, err := l.Gone(ctx, s.Worker)
		if err != nil {
			return false, err
		}
		all = all && gone
	}
	return all, nil
}

// read reads a worker's lease once, and reports whether it is gone by now.
func (l *Lease) read(ctx context.Context, worker string) (bool, error) {
	begun := clock.Now()
	held, err := Held(ctx, l.bucket, worker)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	gone := l.judge(worker, held, begun, clock.Now())
	l.mu.Unlock()
	if !held && !gone {
		select {
		case l.missing <- struct{}{}:
		default:
		}
	}
	return gone, nil
}

// judge takes in a read of a worker's lease, and reports whether the worker is gone. The caller has the mutex.
func (l *Lease) judge(worker string, held bool, begun, ended clock.Reading) bool {
	if held {
		delete(l.absent, worker)
		return false
	}
	a, known := l.absent[worker]
	if kept := !l.since.After(a.since) && l.held(ended); !known || !kept {
		l.forgetAbsences(ended)
		a = absence{since: ended, asked: ended}
	}
	if l.absent == nil {
		l.absent = map[string]absence{}
	}
	a.until, a.reads = begun, min(a.reads+1, enoughReads)
	l.absent[worker] = a
	return a.proof() && ended.Sub(l.since) >= Settle
}

// forgetAbsences drops those that were not asked about for long. The caller has the mutex.
func (l *Lease) forgetAbsences(now clock.Reading) {
	for worker, a := range l.absent {
		if now.Sub(a.asked) > absenceKept {
			delete(l.absent, worker)
		}
	}
}

// undecided lists the workers of which it is open whether they have ended.
func (l *Lease) undecided() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []string
	for worker, a := range l.absent {
		if !a.proof() {
			open = append(open, worker)
		}
	}
	return open
}

// probe reads leases that were not found again, until each is found or its absence is proof, whenever there are any, until ctx
// ends.
func (l *Lease) probe(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.missing:
		}
		for open := l.undecided(); len(open) > 0 && wait.Sleep(ctx, probeEvery); open = l.undecided() {
			reading, cancel := context.WithTimeout(ctx, Renew)
			for _, worker := range open {
				if _, err := l.read(reading, worker); err != nil {
					l.log.Debug("lease of another worker not read, retrying", "owner", worker, "error", err)
					break
				}
			}
			cancel()
		}
	}
}
