package replay

import (
	"fmt"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// Where calls end counts for the budget, and is forgotten with the frames; while a compact reader replays it is kept for a minute.
func TestAnIndexCountsForTheBudget(t *testing.T) {
	t.Parallel()
	h := New(nil, Options{})
	c := &conversation{hub: h, ring: span{}}
	r := &Reader{index: -1, c: c, compact: &compact{}, phase: replaying}
	const calls = 1000
	fill := func() {
		c.index = newIndex(c.head, h.tick.Load())
		for range calls {
			seq := c.head + 1
			c.pushFrame(&Frame{Seq: seq, prev: c.head, Type: schemas.CallFinished, subject: fmt.Sprintf("call_%04d", seq)})
		}
	}
	fill()
	c.index.add("call_0001", 7)
	const one = len("call_0001") + endBytes
	if c.index.bytes != calls*one || h.Bytes() != c.bytes() || h.Bytes() < calls*one {
		t.Errorf("%d bytes of the index, %d of the conversation, the hub counts %d", c.index.bytes, c.bytes(), h.Bytes())
	}
	if c.evict(); c.index.on || h.Bytes() != 0 {
		t.Errorf("an index that no reader wants is kept: %d bytes", h.Bytes())
	}
	c.join(r)
	fill()
	before := c.index.bytes
	h.tick.Add(indexKept - 1)
	if c.evict(); !c.index.on || h.Bytes() != before {
		t.Errorf("a reader that replays has lost it: %d bytes are kept, want %d", h.Bytes(), before)
	}
	c.seeking = true
	h.tick.Add(1)
	if c.evict(); !c.index.on {
		t.Error("it was dropped while it is read for")
	}
	c.seeking = false
	if c.evict(); c.index.on || h.Bytes() != 0 {
		t.Errorf("a minute later %d bytes are kept", h.Bytes())
	}
	fill()
	c.reset("e2", 0)
	if h.Bytes() != 0 {
		t.Errorf("of another stream %d bytes are kept", h.Bytes())
	}
}

// What cannot be let go of is no reason to try again at once.
func TestNothingMoreIsNoReasonToLookAtTheBudget(t *testing.T) {
	t.Parallel()
	h := New(nil, Options{Budget: 10})
	h.count(20)
	<-h.urgent
	h.count(0)
	h.count(-1)
	select {
	case <-h.urgent:
		t.Error("the hub looks at its budget without end")
	default:
	}
}
