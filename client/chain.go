package client

import "github.com/sandjet/sandjet/schemas"

// verdict is the result of [chain.judge] for an event.
type verdict int

const (
	next  verdict = iota // it follows the last event
	again                // it was taken before
	hole                 // something is missing before it
)

// chain checks that a conversation is received without holes. Every event names the cursor of the one before it, so a client can
// distinguish repeated and missing events from the next one, even across connections.
type chain struct {
	at    schemas.Cursor // of the last event taken: a new connection resumes after it
	owned bool           // a gap was reported and nothing came since: the next event need not prove itself
}

// begin handles the answer to an attach: for a reader that begins at "now" it sets the position.
func (c *chain) begin(head schemas.Cursor) {
	if c.at.IsTail() && !head.IsStart() {
		c.at = head
	}
}

// skip sets the position after a gap that the gateway has reported. A gap that leads back is that of a log that has lost its end: the next
// events have sequences that occurred before.
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

// caughtUp sets the position to the end of the replay: a compact replay omits events, possibly also the last ones.
func (c *chain) caughtUp(cur schemas.Cursor) {
	if c.at.IsStart() || cur.Epoch == c.at.Epoch && cur.Seq > c.at.Seq {
		c.at = cur
	}
}

// judge returns the verdict about an event, and advances the position if it is the next one.
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

// proven reports whether no event can be missing between the position and cur. The gateway guarantees that nothing lies between prev and
// cur, so nothing is missing if prev is not after the position.
func (c *chain) proven(cur, prev schemas.Cursor) bool {
	if c.at.IsStart() {
		return prev.Seq == 0
	}
	return cur.Epoch == c.at.Epoch && (prev.IsStart() || prev.Epoch == c.at.Epoch && prev.Seq <= c.at.Seq)
}
