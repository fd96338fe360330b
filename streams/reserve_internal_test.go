package streams

import "testing"

func TestTheReserveIsGivenBackBeforeTheDiskIsFull(t *testing.T) {
	for name, c := range map[string]struct {
		held bool
		free int64
		want reserving
	}{
		"much room":                      {false, 1 << 40, reserveMake},
		"room for it and more":           {false, reserveAgain, reserveMake},
		"a small disk":                   {false, reserveAgain - 1, reserveLeave},
		"it is there":                    {true, 1 << 40, reserveLeave},
		"little room":                    {true, leastRoom, reserveLeave},
		"no room":                        {true, leastRoom - 1, reserveGive},
		"nothing is left":                {true, 0, reserveGive},
		"it was given back":              {false, leastRoom + reserveSize, reserveLeave},
		"it was given back, and is gone": {false, 0, reserveLeave},
	} {
		if got := reserveStep(c.held, c.free); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if reserveSize < leastRoom+1 {
		t.Error("with it no log starts")
	}
}
