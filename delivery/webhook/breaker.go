package webhook

import "time"

const (
	tripAfter = 5 // failures in a row
	tripOf    = 10
	tripShare = 0.7 // of at least tripOf tries within the window
	window    = 5 * time.Minute
	panes     = 10 // the window moves by a tenth

	firstRest = 30 * time.Second
	lastRest  = time.Hour
	probeTime = 15 * time.Second // what a probe takes at most, about
)

// breaker is the circuit breaker of an endpoint. It opens when consecutive tries fail, or most of many do; after a pause it allows one try
// as a probe, and the pause doubles while probes fail. The zero value is closed. It is a state machine without side effects: the time is
// passed in. Not safe for concurrent use.
type breaker struct {
	failures int // in a row
	recent   [panes]pane
	until    time.Time // the end of the rest; zero: closed
	rest     time.Duration
	probing  bool
	paused   time.Time // the receiver asked to be left alone until then
}

// pane is a tenth of the window.
type pane struct {
	number         int64
	tries, failing int
}

// allow reports whether a try may be made, and how long to wait otherwise. A true answer while the
// breaker is open makes that try its probe: record or forget must follow.
func (b *breaker) allow(now time.Time) (wait time.Duration, ok bool) {
	switch {
	case now.Before(b.paused):
		return b.paused.Sub(now), false
	case b.until.IsZero():
		return 0, true
	case now.Before(b.until):
		return b.until.Sub(now), false
	case b.probing:
		return probeTime, false
	}
	b.probing = true
	return 0, true
}

// record records the outcome of a try.
func (b *breaker) record(now time.Time, ok bool) {
	open := !b.until.IsZero()
	switch {
	case ok && open:
		*b = breaker{paused: b.paused}
		b.count(now, true)
	case ok:
		b.failures = 0
		b.count(now, true)
	case open && now.Before(b.until):
		// It began before the breaker opened: nothing new.
	case open:
		b.probing = false
		b.rest = min(2*b.rest, lastRest)
		b.until = now.Add(b.rest)
	default:
		b.failures++
		b.count(now, false)
		if b.failures >= tripAfter || b.mostFail(now) {
			b.rest = firstRest
			b.until = now.Add(b.rest)
		}
	}
}

// forget ends a try that had no outcome.
func (b *breaker) forget() { b.probing = false }

// pause allows no tries until a time, because the endpoint has asked for it.
func (b *breaker) pause(until time.Time) {
	if until.After(b.paused) {
		b.paused = until
	}
}

// rests returns until when no tries are allowed; zero if they are.
func (b *breaker) rests() time.Time {
	if b.paused.After(b.until) {
		return b.paused
	}
	return b.until
}

// closed reports whether tries are unrestricted.
func (b *breaker) closed(now time.Time) bool { return b.until.IsZero() && !now.Before(b.paused) }

func (b *breaker) count(now time.Time, ok bool) {
	number := paneOf(now)
	p := &b.recent[int(number%panes)]
	if p.number != number {
		*p = pane{number: number}
	}
	if p.tries++; !ok {
		p.failing++
	}
}

func (b *breaker) mostFail(now time.Time) bool {
	tries, failing := 0, 0
	for _, p := range b.recent {
		if p.number > paneOf(now)-panes {
			tries, failing = tries+p.tries, failing+p.failing
		}
	}
	return tries >= tripOf && float64(failing) > tripShare*float64(tries)
}

func paneOf(t time.Time) int64 { return t.Unix() / int64(window/panes/time.Second) }
