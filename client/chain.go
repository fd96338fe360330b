package client

import "github.com/sandjet/sandjet/schemas"

// verdict is what a chain says of an event.
type verdict int

const (
	next  verdict = iota // it follows on what was taken, and is taken
	again                // it was taken before
	hole                 // something is missing before it
)

// chain proves that a conversation is whole. Every event names the cursor of the one before it:
// a client that has the two can distinguish a repeat and a gap from what comes next, whatever happened on
// the way.
type chain struct {
	at    schemas.Cursor // of the last event taken: a new connection resumes after it
	owned bool           // a gap was reported and nothing came since: the next event need not prove itself
}

// begin takes the answer to an attach: where "now" was.
func (c *chain) begin(head schemas.Cursor) {
	if c.at.IsTail() && !head.IsStart() {
		c.at = head
	}
}

// skip continues behind a gap that the gateway has reported. A gap that leads back is that of a log that has lost its end: what is
// delivered next has places that were there before.
func (c *chain) skip(from, to schemas.Cursor) {
	c.owned = true
	if to.Epoch != "" && to.Epoch == from.Epoch && to.Seq < from.Seq {
		c.at = to
		return
	}
	if !to.IsStart() && (to.Epoch != c.at.Epoch || to.Seq > c.at.Seq) {
		c.at = to
	}
}

// caughtUp goes to the place where the replay ended: a compacted one leaves events out, also the
// last ones.
func (c *chain) caughtUp(cur schemas.Cursor) {
	if c.at.IsStart() || cur.Epoch == c.at.Epoch && cur.Seq > c.at.Seq {
		c.at = cur
	}
}

// judge says what an event is, and takes it when it is the next one.
func (c *chain) judge(cur, prev schemas.Cursor) verdict {
	if cur.Epoch == c.at.Epoch && cur.Seq <= c.at.Seq {
		return again
	}
	if !c.owned && !c.proven(cur, prev) {
		return hole
	}
	c.owned, c.at = false, cur
	return next
}

// proven reports whether nothing can lie between what was taken and cur. Nothing lies between prev
// and cur, by the gateway's word; so nothing is missed when prev is not ahead.
func (c *chain) proven(cur, prev schemas.Cursor) bool {
	if c.at.IsStart() {
		return prev.Seq == 0
	}
	return cur.Epoch == c.at.Epoch && (prev.IsStart() || prev.Epoch == c.at.Epoch && prev.Seq <= c.at.Seq)
}
