package streams

import "testing"

func TestTheReserveIsGivenBackBeforeTheDiskIsFull(t *testing.T) {
	for name, c := range map[string]struct {
		held         bool
		before, free int64
		want         reserving
	}{
		"much room":                           {false, 1 << 40, 1 << 40, reserveMake},
		"room for it and more":                {false, 0, reserveAgain, reserveMake},
		"a small disk":                        {false, reserveAgain, reserveAgain - 1, reserveLeave},
		"it is there":                         {true, 1 << 40, 1 << 40, reserveLeave},
		"little room":                         {true, leastRoom, leastRoom, reserveLeave},
		"no room":                             {true, leastRoom - 1, leastRoom - 1, reserveGive},
		"nothing is left":                     {true, 0, 0, reserveGive},
		"it is just being filled":             {true, 1 << 30, leastRoom - 1, reserveLeave},
		"the last of it is just being filled": {true, 1, 0, reserveLeave},
		"it was given back":                   {false, 0, leastRoom + reserveSize, reserveLeave},
		"it was given back, and is gone":      {false, 0, 0, reserveLeave},
	} {
		if got := reserveStep(c.held, c.before, c.free); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if reserveSize < leastRoom+1 {
		t.Error("with it no log starts")
	}
}
