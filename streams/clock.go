package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// clockTick is how often this process's clock is held against the log's, clockEvery how often the log is asked for its own; both happen at
	// once when the connection has reconnected, or this process's clock was set.
	clockTick  = time.Minute
	clockEvery = 5 * time.Minute
	// ClockTolerance is by how much the clock of a process may differ from the log's before the process says so.
	ClockTolerance = 5 * time.Second
	// clockLogEvery is how often it says so again.
	clockLogEvery = time.Hour
	// clockNoise is below what two readings of the same clock may differ.
	clockNoise = 50 * time.Millisecond
	// resetBelieved is for how long the log's clock must have been ahead of what has passed, over a connection that was
	// kept, before it is followed.
	resetBelieved = 10 * time.Minute
)

// logTime works out the log's time from what the log has said and from a clock that cannot be set. It is pure.
type logTime struct {
	at      time.Time     // the log's time, when it was last taken
	elapsed time.Duration // of the clock that cannot be set, then
	jumped  time.Duration // the same, since when the log's clock is ahead of it; 0: it is not
}

// now is the log's time when so much has elapsed.
func (l *logTime) now(elapsed time.Duration) time.Time { return l.at.Add(elapsed - l.elapsed) }

// take updates the estimate with a reading of the log's clock, by so much exact. Reconnected says that the connection is another than at
// the last time: this process may have been suspended, with the clock that cannot be set. Ahead is by how much its wall clock has gone
// ahead of that clock since: what such a suspension lasted, where the host's clock was set right after it.
//
// A clock that jumps ahead would make everything overdue at once. It is not followed at once, unless this process may have been suspended
// for as long: a server that is started on a host whose clock is wrong brings a new connection too. A clock that is behind does no harm and
// is followed.
func (l *logTime) take(said time.Time, elapsed, exact, ahead time.Duration, reconnected bool) (doubted bool) {
	off := said.Sub(l.now(elapsed))
	switch {
	case l.at.IsZero() || off < -exact || off > exact && off <= clockSlack || reconnected && off > exact && off <= ahead+clockSlack:
	case off <= exact:
		l.jumped = 0
		return false
	case l.jumped == 0:
		l.jumped = max(elapsed, 1)
		return true
	case elapsed-l.jumped < resetBelieved:
		return true
	}
	*l = logTime{at: said, elapsed: elapsed}
	return false
}

// timekeeper is the log's clock as this process knows it.
type timekeeper struct {
	begun time.Time     // with a reading that cannot be set
	slept time.Duration // that the host had slept by then

	apart atomic.Int64 // by how much the wall clock had gone ahead of begun's clock when sleep was last looked for
	sleep atomic.Int64 // that the host had slept since begun, then

	mu    sync.RWMutex
	log   logTime
	steps clockSteps
	set   clock.Reading // when the log's clock was last found to be set
	off   time.Duration // of wall, when the log was last asked
	conn  uint64        // how often the connection had reconnected by then
	kick  chan struct{} // has a token when the log should be asked

	asking   chan struct{} // has room for who asks or logs: one at a time, which has the rest
	asked    time.Duration // when the log was last asked, with an answer; of the clock that cannot be set
	ahead    time.Duration // of the wall clock before the clock that cannot be set, when the log's time was last taken
	doubt    bool          // that the jump of the log's clock was logged
	loggedAt time.Time     // when the difference was last logged, by begun's clock; zero: there is none
}

func newTimekeeper() *timekeeper {
	slept := hostSlept()
	for range 3 { // what is too little here would count as sleep later
		slept = max(slept, hostSlept())
	}
	return &timekeeper{begun: time.Now(), slept: slept, kick: make(chan struct{}, 1), asking: make(chan struct{}, 1)}
}

// elapsed is how much time has passed since the beginning, whatever was set; what the host slept is in it.
//
// To ask how long that was takes two system calls, and this is asked several times for each call. A host that wakes up sets its
// wall clock ahead by what it slept in the same step, so only where the two clocks have moved apart it is asked.
func (c *timekeeper) elapsed() time.Duration {
	const drift = time.Millisecond
	now := time.Now()
	passed := now.Sub(c.begun)
	apart := now.Round(0).Sub(c.begun.Round(0)) - passed
	if off := apart - time.Duration(c.apart.Load()); off < -drift || off > drift {
		c.sleep.Store(int64(hostSlept() - c.slept)) // first: who sees apart sees this too
		c.apart.Store(int64(apart))
	}
	if slept := time.Duration(c.sleep.Load()); slept > clockNoise {
		passed += slept
	}
	return passed
}

// Now is the time of the log's server, in UTC: for everything that another process reads or judges, and for every decision that ends,
// expires or deletes. It costs no round trip. A clock of this host that is wrong, is set or stops does not affect it; it is exact to some
// milliseconds. On a machine that was suspended with all its clocks it is behind until the connection is made again and its wall clock is
// right, or for ten minutes.
func (b *Bus) Now() time.Time {
	c := b.clock
	c.mu.RLock()
	now, off := c.log.now(c.elapsed()), c.off
	c.mu.RUnlock()
	if d := time.Now().Round(0).Sub(now) - off; d > time.Second || d < -time.Second {
		c.askSoon()
	}
	return now
}

// ClockOff is by how much the clock of this process is ahead of the log's.
func (b *Bus) ClockOff() time.Duration {
	b.clock.mu.RLock()
	defer b.clock.mu.RUnlock()
	return time.Now().Round(0).Sub(b.clock.log.now(b.clock.elapsed()))
}

// ClockWarning says that the clock of this process is wrong, for people; empty while it is not.
func (b *Bus) ClockWarning() string {
	off := b.ClockOff().Round(time.Millisecond)
	where := "ahead of"
	if off < 0 {
		where = "behind"
	}
	if off.Abs() <= ClockTolerance {
		return ""
	}
	return fmt.Sprintf("the clock of this host is %s %s the log's: times are taken from the log, set the clock right", off.Abs(), where)
}

// askSoon makes the timekeeper ask the log soon.
func (c *timekeeper) askSoon() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// askTime asks the log for its time. Any stream's leader answers with it and the state of the stream; all processes ask
// for the same one.
func (b *Bus) askTime(ctx context.Context) error { return b.askTimeSince(ctx, b.clock.elapsed()) }

// askTimeSince is askTime unless another goroutine has asked after so much had elapsed.
func (b *Bus) askTimeSince(ctx context.Context, elapsed time.Duration) error {
	c := b.clock
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return coded("ask the log for its time", ctx.Err())
	}
	if c.asked > elapsed {
		return nil
	}
	conn := b.bulk.Stats().Reconnects
	begin := c.elapsed()
	m, err := b.bulk.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+streamCancels, nil)
	end := c.elapsed()
	if err != nil {
		return coded("ask the log for its time", err)
	}
	said, err := parseTime(m.Data)
	if err != nil {
		return err
	}
	if b.options.LogClock != nil {
		said = b.options.LogClock().Round(0).UTC()
	}
	exact := (end-begin)/2 + clockNoise
	ahead := time.Now().Round(0).Sub(c.begun.Round(0)) - end
	c.asked = begin
	c.mu.Lock()
	was := c.log.now(end)
	if c.steps.observe(said.Add((end-begin)/2), end) {
		c.set = clock.Now()
	}
	doubted := c.log.take(said.Add((end-begin)/2), end, exact, ahead-c.ahead, conn != c.conn)
	c.conn = conn
	c.off = time.Now().Round(0).Sub(c.log.now(end))
	off := c.off
	c.mu.Unlock()
	if doubted && !c.doubt {
		b.log.Warn("log clock jumped ahead, not following it for now", "log", said, "taken", was, "followed_after", resetBelieved)
	}
	if c.doubt = doubted; !doubted {
		c.ahead = ahead
	}
	b.sayClock(off)
	return nil
}

// sayClock says that the clocks differ, and that they do no more.
func (b *Bus) sayClock(off time.Duration) {
	c := b.clock
	now := c.begun.Add(c.elapsed())
	switch wrong := off.Abs() > ClockTolerance; {
	case wrong && (c.loggedAt.IsZero() || now.Sub(c.loggedAt) >= clockLogEvery):
		c.loggedAt = now
		b.log.Warn("host clock differs from the log's, times are the log's: synchronize it by NTP",
			"ahead_by", off.Round(time.Millisecond))
	case !wrong && !c.loggedAt.IsZero():
		c.loggedAt = time.Time{}
		b.log.Info("host clock agrees with the log's again", "ahead_by", off.Round(time.Millisecond))
	}
}

// parseTime reads the time in the answer to a question about a stream.
func parseTime(data []byte) (time.Time, error) {
	var answer struct {
		Time time.Time `json:"ts"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Time.IsZero() {
		return time.Time{}, schemas.Wrap(schemas.Unavailable, "ask the log for its time", "the answer has no time", err)
	}
	return answer.Time.UTC(), nil
}

// followTime keeps the log's time until ctx ends.
func (b *Bus) followTime(ctx context.Context) {
	c := b.clock
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	last, failed := c.elapsed(), false
	for {
		kicked := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.kick:
			kicked = true
		}
		c.mu.RLock()
		reconnected := b.bulk.Stats().Reconnects != c.conn
		c.mu.RUnlock()
		if now := c.elapsed(); kicked || failed || reconnected || now-last >= clockEvery {
			if err := b.askTime(ctx); err != nil {
				if failed = true; ctx.Err() == nil {
					b.log.Debug("log clock not read since the reconnect", "error", err)
				}
				wait.Sleep(ctx, reconnectAfter) // a kick comes back at once
				continue
			}
			last, failed = now, false
			b.noteSteps(ctx)
			continue
		}
		select {
		case c.asking <- struct{}{}:
			b.sayClock(b.ClockOff())
			<-c.asking
		case <-ctx.Done():
			return
		}
	}
}
