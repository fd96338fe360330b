package leases

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// absenceKept is how long the absence of a worker's lease is remembered after the last call of Gone about the worker.
	absenceKept = time.Hour
	// probeEvery is the time between reads of a missing lease, until its absence counts as proof.
	probeEvery = Renew / 2
	// enoughReads is how many consecutive reads must miss a lease, over a period of at least absentFor, until the worker counts as gone. A
	// living worker renews its lease twice in that period.
	enoughReads = 5
	absentFor   = 2 * Renew
)

// absence records that a worker's lease is missing.
type absence struct {
	since clock.Reading // end of the first read that did not find it
	until clock.Reading // begin of the latest read that did not find it
	asked clock.Reading // when Gone was last called
	reads int           // consecutive reads that did not find it, while this process held its own lease
}

// proof reports whether the absence proves that the worker has ended, given that the reader's own lease is settled.
func (a absence) proof() bool { return a.reads >= enoughReads && a.until.Sub(a.since) >= absentFor }

// Gone reports whether a worker has ended: several reads over two seconds did not find its lease, and this lease was held all that time
// and for [Settle] at least. One read is no proof: the lease of a living worker is missing for a moment after an outage of the NATS
// server, and when the clock of the server that expires leases is set ahead. Therefore the first call about a worker never returns true;
// [Lease.Keep] continues to read the missing lease, and a later call has the proof. A worker without a name has ended. It blocks for one
// read. Code: unavailable.
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

// Missing reports whether the last read did not find a worker's lease. If [Lease.Gone] is false at the same time, a later call of Gone
// decides.
func (l *Lease) Missing(worker string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, missing := l.absent[worker]
	return missing
}

// AllGone reports whether every worker that started a call is [Lease.Gone]. It skips this lease's own worker: the caller knows which calls
// that has in flight. Code: unavailable.
func (l *Lease) AllGone(ctx context.Context, starts []schemas.StartedData) (bool, error) {
	all := true
	for _, s := range starts { // no early exit: Gone starts the probing of each worker
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

// read reads a worker's lease once, and reports whether the worker is gone.
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

// judge records the result of reading a worker's lease, and reports whether the worker is gone. The caller holds the mutex.
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

// forgetAbsences removes absences about which Gone was not called for absenceKept. The caller holds the mutex.
func (l *Lease) forgetAbsences(now clock.Reading) {
	for worker, a := range l.absent {
		if now.Sub(a.asked) > absenceKept {
			delete(l.absent, worker)
		}
	}
}

// undecided returns the workers whose lease is missing without proof that they have ended.
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

// probe reads missing leases again, until each is found or its worker counts as gone. It runs until ctx is done.
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
