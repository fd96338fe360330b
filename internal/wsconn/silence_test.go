package wsconn

import (
	"testing"
	"time"
)

func TestSilenceIsBrokenByAPingAndEndsASocket(t *testing.T) {
	t.Parallel()
	const long, short = Round, Round / 2
	for name, c := range map[string]struct {
		received, said time.Duration
		want           silence
	}{
		"both talk":                             {short, short, silenceShort},
		"nothing is said":                       {short, long, silenceBroken},
		"nothing either way":                    {long, long, silenceBroken},
		"the client only listens, for a moment": {long, short, silenceShort},
		"the client only listens":               {2 * long, short, silenceBroken},
		"a moment before it is gone":            {pongWithin, short, silenceBroken},
		"it has gone, whatever is said":         {pongWithin + 1, 0, silenceEnds},
		"it has gone":                           {pongWithin + 1, long, silenceEnds},
	} {
		if got := silent(c.received, c.said); got != c.want {
			t.Errorf("%s: heard %s ago, said %s ago: %d, want %d", name, c.received, c.said, got, c.want)
		}
	}
}
