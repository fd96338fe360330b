package fair

import (
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	searchFor = 2 * time.Second // a search lasts that long after the last message of another account was seen waiting, or arrived
	// sharedFor is how long an account keeps slots free for others, since the second account was active. It is longer than most
	// pauses between two calls of one agent, and than most runs: else each call after a pause would wait for the end of
	// another account's run, which may last ten minutes.
	sharedFor    = 5 * time.Minute
	shareOfSlots = 4 // one account leaves a fourth of the slots to others, and one at least
)

// shareOf returns how many of n slots one account may use while other accounts are active. A single slot cannot be shared: accounts take
// turns at it.
func shareOf(n int) int { return max(n-max(n/shareOfSlots, 1), 1) }

// sharing says how many slots of a consumer are reserved for other accounts, and whether it searches for their messages.
type sharing struct {
	until  time.Time // of the search
	search bool      // messages beyond the slots are pulled, to find those of others behind them
	narrow bool      // one account has its share of the slots at most
}

// sighting is the result of one check of a consumer's accounts.
type sighting struct {
	now     time.Time
	full    bool      // all slots were taken since the last look
	waiting int       // accounts that have messages waiting here
	others  bool      // messages of more than one account were never delivered
	unknown bool      // the log has not said whether there are any
	came    time.Time // when the last message of an account without waiting messages arrived
	second  time.Time // when the second most recently active account was active; zero: there is none
}

// next decides after a check how accounts share. It is pure.
//
// A search is expensive, because all waiting messages are delivered and nak'ed, so it lasts only while other accounts have messages
// waiting. Slots stay reserved much longer, so that a message that comes after a pause starts as soon as it is found.
func (s sharing) next(g sighting) sharing {
	switch {
	case !g.full && !s.search:
	// Slots may be free for a moment during a search too: messages that were nak'ed are delivered again together.
	case g.waiting > 1 || g.others || g.unknown && s.search:
		s.until = g.now.Add(searchFor)
	case g.waiting == 1 && g.came.Add(searchFor).After(s.until):
		s.until = g.came.Add(searchFor)
	}
	s.search = g.now.Before(s.until)
	s.narrow = s.search || recent(g.second, g.now)
	return s
}

// recent reports whether slots are still reserved for an account that was last active at a time.
func recent(active, now time.Time) bool { return !active.IsZero() && now.Sub(active) < sharedFor }

// latest has the last activity of the most recently active account, and that of the most recently active other one.
type latest struct {
	account    schemas.AccountID
	at, second time.Time
}

// note records that an account is active, and reports whether another one was active recently.
func (l *latest) note(a schemas.AccountID, now time.Time) bool {
	if l.account != "" && l.account != a {
		l.second = l.at
	}
	l.account, l.at = a, now
	return recent(l.second, now)
}
