package logclock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// checkEvery is how often this process's clock is compared with the log's, askEvery how often the log is asked for its own. Both happen
	// at once when the connection has reconnected or this process's clock was set.
	checkEvery = time.Minute
	askEvery   = 5 * time.Minute
	// retryAfter is how long to wait after the log did not answer.
	retryAfter = 100 * time.Millisecond
	// Tolerance is by how much the clock of a process may differ from the log's before the process logs a warning.
	Tolerance = 5 * time.Second
	// logEvery is how often it logs that again.
	logEvery = time.Hour
	// noise is by how much two readings of the same clock may differ.
	noise = 50 * time.Millisecond
	// answerWithin is how long one question to the log may take.
	answerWithin = 5 * time.Second
)

// Log has the requests to the log that a Clock makes. Its functions may block, and are called from several goroutines.
type Log interface {
	// Time asks a server for its time. Code: unavailable.
	Time(context.Context) (time.Time, error)
	// Reconnects is how often the connection by which Time asks has reconnected.
	Reconnects() uint64
	// SetBack is how far the log's clock had come when it was set back, as processes have noted on the log; zero: it was not.
	SetBack(context.Context) (time.Time, error)
	// NoteSetBack notes that on the log.
	NoteSetBack(context.Context, time.Time) error
}

// Clock is this process's estimate of the log's clock. It is safe for concurrent use.
type Clock struct {
	log    Log
	logger *slog.Logger

	begun time.Time     // with a reading that cannot be set
	slept time.Duration // how long the host had slept by then

	apart atomic.Int64 // by how much the wall clock had gone ahead of begun's clock when sleep was last looked up
	sleep atomic.Int64 // how long the host had slept since begun, then

	mu       sync.RWMutex
	estimate estimate
	steps    steps
	set      clock.Reading // when the log's clock was last found to be set
	off      time.Duration // by how much the wall clock was ahead when the log was last asked
	conn     uint64        // how often the connection had reconnected by then
	kick     chan struct{} // has a token when the log should be asked

	asking   chan struct{} // a lock: its holder asks or logs, and owns the fields below
	asked    time.Duration // when the log was last asked, with an answer; of the clock that cannot be set
	ahead    time.Duration // of the wall clock before the clock that cannot be set, when the log's time was last followed
	doubt    bool          // the jump of the log's clock was logged
	loggedAt time.Time     // when the difference was last logged, by begun's clock; zero: there is none
}

// New makes a Clock. It has no time before [Clock.Ask] has succeeded once.
func New(log Log, logger *slog.Logger) *Clock {
	slept := hostSlept()
	for range 3 { // what is too little here would count as sleep later
		slept = max(slept, hostSlept())
	}
	return &Clock{
		log: log, logger: logger, begun: time.Now(), slept: slept, kick: make(chan struct{}, 1), asking: make(chan struct{}, 1),
	}
}

// Elapsed returns the time since the Clock was made, independent of clock settings and including time for which the host slept.
//
// Asking how long the host slept takes two system calls, and Elapsed is called several times for each call. A waking host sets its wall
// clock ahead at once, so the system is asked only when the two clocks have moved apart.
func (c *Clock) Elapsed() time.Duration {
	const drift = time.Millisecond
	now := time.Now()
	passed := now.Sub(c.begun)
	apart := now.Round(0).Sub(c.begun.Round(0)) - passed
	if off := apart - time.Duration(c.apart.Load()); off < -drift || off > drift {
		c.sleep.Store(int64(hostSlept() - c.slept)) // first: a goroutine that sees apart sees this too
		c.apart.Store(int64(apart))
	}
	if slept := time.Duration(c.sleep.Load()); slept > noise {
		passed += slept
	}
	return passed
}

// Now is the log's time, in UTC. It makes no request, and is exact to some milliseconds.
func (c *Clock) Now() time.Time {
	c.mu.RLock()
	now, off := c.estimate.now(c.Elapsed()), c.off
	c.mu.RUnlock()
	if d := time.Now().Round(0).Sub(now) - off; d > time.Second || d < -time.Second {
		c.AskSoon()
	}
	return now
}

// Off is by how much the clock of this process is ahead of the log's.
func (c *Clock) Off() time.Duration {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return time.Now().Round(0).Sub(c.estimate.now(c.Elapsed()))
}

// Warning says for people that the clock of this process is wrong. It is empty while the clock is not.
func (c *Clock) Warning() string {
	off := c.Off().Round(time.Millisecond)
	where := "ahead of"
	if off < 0 {
		where = "behind"
	}
	if off.Abs() <= Tolerance {
		return ""
	}
	return fmt.Sprintf("the clock of this host is %s %s the log's: times are taken from the log, set the clock right", off.Abs(), where)
}

// Stored records the timestamp of the last message of a stream, before the log is first asked for its time.
func (c *Clock) Stored(last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last.After(c.steps.newest) {
		c.steps.newest = last
	}
}

// SteadySince reports whether no setting of the log's clock was noticed since a reading.
func (c *Clock) SteadySince(r clock.Reading) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.set.After(r)
}

// Age returns how long ago something with a timestamp of the log was stored. If the log's clock was set back, the age may be unknown;
// treat it as arbitrarily old.
func (c *Clock) Age(at time.Time) (age time.Duration, known bool) {
	now := c.Now()
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.steps.ageOf(at, now)
}

// FoundSince reports whether a finished read, which began at a time of the log's clock, has certainly found everything stored since then.
// After the log's clock was set back it may have missed something. It costs two requests, so ask only if something was not found. A step
// that this process did not notice is known from the notes of other processes.
func (c *Clock) FoundSince(ctx context.Context, since time.Time) (bool, error) {
	if err := c.askSince(ctx, c.Elapsed()); err != nil {
		return false, err
	}
	if _, known := c.Age(since); !known {
		c.noteSteps(ctx)
		return false, nil
	}
	if err := c.readSteps(ctx); err != nil {
		return false, err
	}
	_, known := c.Age(since)
	return known, nil
}

// Begin asks the log for its time, and for the steps of its clock that other processes have noted on it.
func (c *Clock) Begin(ctx context.Context) error {
	if err := c.Ask(ctx); err != nil {
		return err
	}
	if err := c.readSteps(ctx); err != nil {
		return err
	}
	c.noteSteps(ctx)
	c.AskSoon() // notes a step that could not be noted yet
	return nil
}

// AskSoon makes [Clock.Run] ask the log soon.
func (c *Clock) AskSoon() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Ask asks the log for its time.
func (c *Clock) Ask(ctx context.Context) error { return c.askSince(ctx, c.Elapsed()) }

// askSince is Ask, unless another goroutine has asked since elapsed.
func (c *Clock) askSince(ctx context.Context, elapsed time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return schemas.Wrap(schemas.Unavailable, "ask the log for its time", "the log does not answer: try again", ctx.Err())
	}
	if c.asked > elapsed {
		return nil
	}
	conn := c.log.Reconnects()
	begin := c.Elapsed()
	said, err := c.log.Time(ctx)
	if err != nil {
		return err
	}
	c.observe(said, begin, c.Elapsed(), conn)
	return nil
}

// observe updates the estimate with the log's answer to a request that was sent at begin and answered at end. The caller holds asking.
func (c *Clock) observe(said time.Time, begin, end time.Duration, conn uint64) {
	half := (end - begin) / 2
	ahead := time.Now().Round(0).Sub(c.begun.Round(0)) - end
	c.asked = begin
	c.mu.Lock()
	was := c.estimate.now(end)
	if c.steps.observe(said.Add(half), end) {
		c.set = clock.Now()
	}
	doubted := c.estimate.observe(said.Add(half), end, half+noise, ahead-c.ahead, conn != c.conn)
	c.conn = conn
	c.off = time.Now().Round(0).Sub(c.estimate.now(end))
	off := c.off
	c.mu.Unlock()
	if doubted && !c.doubt {
		c.logger.Warn("log clock jumped ahead, not following it for now", "log", said, "taken", was, "followed_after", jumpFollowed)
	}
	if c.doubt = doubted; !doubted {
		c.ahead = ahead
	}
	c.report(off)
}

// report logs that the clocks differ, or that they agree again. The caller holds asking.
func (c *Clock) report(off time.Duration) {
	now := c.begun.Add(c.Elapsed())
	switch wrong := off.Abs() > Tolerance; {
	case wrong && (c.loggedAt.IsZero() || now.Sub(c.loggedAt) >= logEvery):
		c.loggedAt = now
		c.logger.Warn("host clock differs from the log's, times are the log's: synchronize it by NTP",
			"ahead_by", off.Round(time.Millisecond))
	case !wrong && !c.loggedAt.IsZero():
		c.loggedAt = time.Time{}
		c.logger.Info("host clock agrees with the log's again", "ahead_by", off.Round(time.Millisecond))
	}
}

// Run follows the log's clock until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	last, failed := c.Elapsed(), false
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
		reconnected := c.log.Reconnects() != c.conn
		c.mu.RUnlock()
		if now := c.Elapsed(); kicked || failed || reconnected || now-last >= askEvery {
			if err := c.Ask(ctx); err != nil {
				if failed = true; ctx.Err() == nil {
					c.logger.Debug("log clock not read since the reconnect", "error", err)
				}
				wait.Sleep(ctx, retryAfter) // a kick comes back at once
				continue
			}
			last, failed = now, false
			c.noteSteps(ctx)
			continue
		}
		select {
		case c.asking <- struct{}{}:
			c.report(c.Off())
			<-c.asking
		case <-ctx.Done():
			return
		}
	}
}

// readSteps reads the steps of the log's clock that other processes have noted.
func (c *Clock) readSteps(ctx context.Context) error {
	back, err := c.log.SetBack(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps.marked = back; back.After(c.steps.back) {
		c.steps.back = back
	}
	return nil
}

// noteSteps notes on the log how far its clock had come when it was set back, for processes that start later or did not notice.
func (c *Clock) noteSteps(ctx context.Context) {
	c.mu.RLock()
	back, marked := c.steps.back, c.steps.marked
	c.mu.RUnlock()
	if !back.After(marked) {
		return
	}
	if err := c.log.NoteSetBack(ctx, back); err != nil {
		c.logger.Debug("step of the log's clock not noted yet", "error", err)
		return
	}
	c.mu.Lock()
	c.steps.marked = back
	c.mu.Unlock()
}
