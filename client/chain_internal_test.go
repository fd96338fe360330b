package client

import (
	"slices"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func at(seq uint64) schemas.Cursor { return schemas.Cursor{Epoch: "e1", Seq: seq} }

func TestAChainTakesWhatFollowsAndNothingElse(t *testing.T) {
	t.Parallel()
	type ev struct{ cur, prev schemas.Cursor }
	start, old := schemas.Cursor{}, schemas.Cursor{Epoch: "e0", Seq: 3}
	for name, tt := range map[string]struct {
		after schemas.Cursor
		evs   []ev
		want  []verdict
		end   schemas.Cursor
	}{
		"from the beginning":               {start, []ev{{at(1), start}, {at(4), at(1)}}, []verdict{next, next}, at(4)},
		"a repeat":                         {at(3), []ev{{at(3), at(2)}, {at(4), at(3)}}, []verdict{again, next}, at(4)},
		"one before is named as the first": {at(3), []ev{{at(4), start}}, []verdict{next}, at(4)},
		"a hole":                           {at(3), []ev{{at(6), at(5)}}, []verdict{hole}, at(3)},
		"a hole at the beginning":          {start, []ev{{at(6), at(5)}}, []verdict{hole}, start},
		"a new epoch that nobody told of":  {old, []ev{{at(4), at(3)}}, []verdict{hole}, old},
		"a predecessor of another epoch":   {at(3), []ev{{at(4), old}}, []verdict{hole}, at(3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := chain{at: tt.after}
			var got []verdict
			for _, e := range tt.evs {
				got = append(got, c.judge(e.cur, e.prev))
			}
			if !slices.Equal(got, tt.want) || c.at != tt.end {
				t.Errorf("%v at %s, want %v at %s", got, c.at, tt.want, tt.end)
			}
		})
	}
}

func TestAGapThatWasOwnedUpToIsSteppedOverOnce(t *testing.T) {
	t.Parallel()
	c := chain{at: schemas.Cursor{Epoch: "e0", Seq: 3}}
	c.skip(schemas.Cursor{Epoch: "e0", Seq: 3}, at(0))
	if v := c.judge(at(9), schemas.Cursor{Epoch: "e0", Seq: 3}); v != next {
		t.Errorf("the event after the gap: %v", v)
	}
	if v := c.judge(at(12), at(11)); v != hole {
		t.Errorf("a hole after it: %v", v)
	}
}

// A log that has lost its end has other events at sequences that were used before.
func TestAChainGoesBackWithTheLog(t *testing.T) {
	t.Parallel()
	c := chain{at: schemas.Cursor{Epoch: "e1", Seq: 9, Mark: 7}}
	c.skip(c.at, at(0))
	if v := c.judge(at(8), at(0)); v != next {
		t.Errorf("an event at an old place: %v", v)
	}
	if v := c.judge(at(9), at(8)); v != next {
		t.Errorf("the event at the place of the one that was lost: %v", v)
	}
	if v := c.judge(at(12), at(11)); v != hole {
		t.Errorf("a hole after it: %v", v)
	}
}

func TestAChainGoesWhereTheGatewaySays(t *testing.T) {
	t.Parallel()
	c := chain{at: schemas.Tail}
	c.begin(at(7))
	if v := c.judge(at(8), at(7)); v != next {
		t.Errorf("the first after now: %v", v)
	}
	c.caughtUp(at(12)) // the replay was compacted
	if v := c.judge(at(13), at(12)); v != next {
		t.Errorf("the first after a compacted end: %v", v)
	}
	if c.caughtUp(at(2)); c.at != at(13) {
		t.Errorf("it went back to %s", c.at)
	}
}
