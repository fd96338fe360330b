package streams

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	searchFor = 2 * time.Second // the messages of others are looked for since the last of them was seen, or came
	// sharedFor is how long an account keeps slots free for others, since the second account was active. It is longer than most
	// pauses between two calls of one agent, and than most runs: else each call after a pause waits for the end of another
	// account's run, which may last ten minutes.
	sharedFor    = 5 * time.Minute
	shareOfSlots = 4 // one account leaves the fourth part of the slots to others, and one at least
)

// shareOf is how many of n slots one account may have while others use them too. A single slot cannot be shared: there
// accounts take turns.
func shareOf(n int) int { return max(n-max(n/shareOfSlots, 1), 1) }

// sharing is what accounts have to leave to each other in one consumer.
type sharing struct {
	until  time.Time // of the search
	search bool      // messages beyond the slots are taken, to find those of others behind them
	narrow bool      // one account has its share of the slots at most
}

// sighting is what one look at the accounts of a consumer has found.
type sighting struct {
	now     time.Time
	full    bool      // all places were taken since the last look
	waiting int       // accounts that have something waiting here
	others  bool      // messages of others than one account were never handed out
	unknown bool      // the log has not said whether there are any
	came    time.Time // when a message of an account came last that has nothing waiting
	second  time.Time // when the account was active that was so most recently but for one; zero: there is none
}

// next decides what holds from a look on. It is pure.
//
// A search is dear: everything that waits is handed out and goes back. So it lasts for as long as others are seen to wait. Slots
// are left free for much longer, so that a message that comes after a pause is begun at once when it has been found.
func (s sharing) next(g sighting) sharing {
	switch {
	case !g.full && !s.search:
	// Places may be free for a moment in a search too: what was put back is away, and comes again all at once.
	case g.waiting > 1 || g.others || g.unknown && s.search:
		s.until = g.now.Add(searchFor)
	case g.waiting == 1 && g.came.Add(searchFor).After(s.until):
		s.until = g.came.Add(searchFor)
	}
	s.search = g.now.Before(s.until)
	s.narrow = s.search || recent(g.second, g.now)
	return s
}

// recent reports whether an account that was active at a time still has slots left for it.
func recent(active, now time.Time) bool { return !active.IsZero() && now.Sub(active) < sharedFor }

// latest knows when accounts were active: the one that was so most recently, and the most recent of all others.
type latest struct {
	account    schemas.AccountID
	at, second time.Time
}

// note notes that an account is active, and reports whether another was so recently.
func (l *latest) note(a schemas.AccountID, now time.Time) bool {
	if l.account != "" && l.account != a {
		l.second = l.at
	}
	l.account, l.at = a, now
	return recent(l.second, now)
}
