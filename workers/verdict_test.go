package workers

import (
	"fmt"
	"testing"
	"time"
)

// TestDecide pins the verdicts by name; TestDecideInvariants holds over all facts.
//
//guarantee:one-result-for-every-accepted-call
func TestDecide(t *testing.T) {
	t.Parallel()
	const left = time.Minute
	for name, c := range map[string]struct {
		facts facts
		want  verdict
	}{
		"a first delivery runs without a look":        {facts{left: left, sideEffects: true}, toRun},
		"so does one of a reading tool":               {facts{left: left}, toRun},
		"a redelivery looks first":                    {facts{left: left, sideEffects: true, doubt: true}, toLook},
		"a reading tool too, its result may be there": {facts{left: left, doubt: true}, toLook},
		"not started after all: run": {facts{left: left, sideEffects: true, doubt: true,
			looked: true}, toRun},
		"finished: only the ack was lost": {facts{left: left, sideEffects: true, doubt: true, looked: true,
			finished: true, starts: 1}, toAck},
		"started by a worker that lives: wait for it": {facts{left: left, sideEffects: true, doubt: true, looked: true, starts: 1,
			alive: true}, toWait},
		"started by a worker that is gone: interrupted": {facts{left: left, sideEffects: true, doubt: true, looked: true,
			starts: 1}, toInterrupt},
		"a started reading tool is run again":                 {facts{left: left, doubt: true, looked: true, starts: 1, alive: true}, toRun},
		"a reading tool whose workers all died":               {facts{left: left, doubt: true, looked: true, starts: maxStarts}, toAbandon},
		"held by this very process: wait":                     {facts{left: left, sideEffects: true, doubt: true, inFlight: true}, toWait},
		"cancelled before the start: look for a result, then": {facts{left: left, sideEffects: true, cancelled: true}, toLook},
		"cancelled before the start: say so": {facts{left: left, sideEffects: true, cancelled: true,
			looked: true}, toCancel},
		"cancelled and settled by another: ack": {facts{left: left, cancelled: true, looked: true, finished: true}, toAck},
		"cancelled after a start whose worker is gone": {facts{left: left, sideEffects: true, cancelled: true, looked: true,
			starts: 1}, toInterrupt},
		"past its deadline: somebody may have said so": {facts{sideEffects: true}, toLook},
		"past its deadline":                            {facts{sideEffects: true, looked: true}, toExpire},
		"past its deadline by a second":                {facts{left: -time.Second, looked: true}, toExpire},
		"past its deadline, but started: unknown outcome": {facts{left: -time.Second, sideEffects: true, doubt: true, looked: true,
			starts: 1}, toInterrupt},
		"past its deadline, but finished":                         {facts{left: -time.Second, doubt: true, looked: true, finished: true}, toAck},
		"cancelled and past its deadline: the person comes first": {facts{left: -time.Second, cancelled: true, looked: true}, toCancel},
		"forgotten: it may have been run":                         {facts{left: left, sideEffects: true, doubt: true, looked: true, forgotten: true}, toInterrupt},
		"forgotten and past its deadline: it may have been run": {facts{left: -time.Second, sideEffects: true, doubt: true, looked: true,
			forgotten: true}, toInterrupt},
		"forgotten and cancelled: it may have been run": {facts{left: left, sideEffects: true, doubt: true, cancelled: true, looked: true,
			forgotten: true}, toInterrupt},
		"forgotten, but published a moment ago: it may be announced yet": {facts{left: left, sideEffects: true, doubt: true, looked: true,
			forgotten: true, young: true}, toWait},
		"a forgotten reading tool is run, again or not": {facts{left: left, doubt: true, looked: true, forgotten: true}, toRun},
		"a forgotten reading tool, past its deadline":   {facts{left: -time.Second, doubt: true, looked: true, forgotten: true}, toExpire},
		"past its deadline, still run by a living worker: its job": {facts{left: -time.Second, sideEffects: true, doubt: true, looked: true,
			starts: 1, alive: true}, toWait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decide(c.facts); got != c.want {
				t.Errorf("decide(%+v) = %s, want %s", c.facts, got, c.want)
			}
		})
	}
}

//guarantee:one-result-for-every-accepted-call
//guarantee:side-effects-are-started-at-most-once
func TestDecideInvariants(t *testing.T) {
	t.Parallel()
	seen := map[verdict]bool{}
	for bits := range 1 << 12 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		f := facts{
			left: time.Second, sideEffects: bit(0), doubt: bit(1), inFlight: bit(2), cancelled: bit(3),
			looked: bit(4), finished: bit(5), alive: bit(7), forgotten: bit(8), young: bit(11),
		}
		if bit(6) {
			f.starts = 1
		}
		if bit(10) {
			f.starts += maxStarts
		}
		if bit(9) {
			f.left = -time.Second
		}
		if !f.looked && (f.finished || f.starts > 0 || f.alive || f.forgotten) {
			continue // known only after a read
		}
		if f.forgotten && (f.finished || f.starts > 0 || f.alive || !f.doubt) {
			continue // only what shows nothing is, and only where it may have been handed out before
		}
		v := decide(f)
		seen[v] = true
		for broken, is := range map[string]bool{
			"two looks":                                    v == toLook && f.looked,
			"run in spite of a doubt":                      v == toRun && f.doubt && !f.looked,
			"run in spite of a result":                     v == toRun && f.finished,
			"a second start of a call with effects":        v == toRun && f.starts > 0 && f.sideEffects,
			"run although it may have been":                v == toRun && f.forgotten && f.sideEffects,
			"said not to be run although it may have been": (v == toCancel || v == toExpire) && f.forgotten && f.sideEffects,
			"run although it was cancelled":                v == toRun && f.cancelled,
			"run after its deadline":                       v == toRun && f.left <= 0,
			"run twice in one process":                     v == toRun && f.inFlight,
			"abandoned while its worker lives":             v == toInterrupt && f.alive,
			"interrupted without a proof of a start":       v == toInterrupt && f.starts == 0 && !f.forgotten,
			"interrupted although it may be run again":     v == toInterrupt && !f.sideEffects,
			"a second result":                              (v == toInterrupt || v == toCancel || v == toExpire) && f.finished,
			"said not to be started although it was":       (v == toCancel || v == toExpire) && f.starts > 0 && f.sideEffects,
			"acknowledged without a result":                v == toAck && !f.finished,
			"run for ever":                                 v == toRun && f.starts >= maxStarts,
			"abandoned with effects":                       v == toAbandon && f.sideEffects,
			"waits without a reason":                       v == toWait && !f.inFlight && f.starts == 0 && !f.young,
		} {
			if is {
				t.Errorf("%s: decide(%+v) = %s", broken, f, v)
			}
		}
	}
	for _, v := range []verdict{toLook, toRun, toWait, toAck, toInterrupt, toCancel, toExpire, toAbandon} {
		if !seen[v] {
			t.Errorf("no facts lead to %s", fmt.Sprint(v))
		}
	}
}
