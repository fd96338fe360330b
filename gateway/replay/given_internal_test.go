package replay

import "testing"

// TestASlowReaderHoldsLittleOfAPage: of a page that was read for it a reader keeps what goes out with one write, in the order of the page and
// without a hole to the rest. Where memory is short it keeps that for a while only, long enough to come for it.
func TestASlowReaderHoldsLittleOfAPage(t *testing.T) {
	t.Parallel()
	const frames, from = 200, 10
	page := &span{from: from, to: from}
	for seq := uint64(from + 1); seq <= from+frames; seq++ {
		page.add(&Frame{Seq: seq, prev: seq - 1, text: make([]byte, 4<<10)})
	}
	h := New(nil, Options{})
	r := &Reader{seq: from, index: -1}
	c := &conversation{hub: h, pages: []*span{page}}
	r.c = c
	c.join(r)
	c.give(r, page)
	g := r.given
	if n := len(g.frames); n == 0 || n > 16 || cap(g.frames) > 64 || g.from != from || g.frames[0].Seq != from+1 || g.to != g.frames[n-1].Seq {
		t.Fatalf("of %d frames it keeps %d of a slice of %d, from %d to %d", frames, n, cap(g.frames), g.from, g.to)
	}
	var few [partFrames]*Frame
	if got := part(&few, page.frames); len(got) > 16 {
		t.Errorf("%d frames are taken at once", len(got))
	}
	c.evict()
	if r.given == nil {
		t.Error("what was read for it this moment is gone")
	}
	h.tick.Add(givenKept)
	c.evict()
	if r.given != nil {
		t.Error("it keeps what it does not come for")
	}
	c.give(r, &span{from: from, to: from + 5}) // of events that are gone
	if !r.given.covers(from) || r.given.to != from+5 || len(r.given.frames) != 0 {
		t.Errorf("of nothing: %+v", r.given)
	}
}
