package replay

import (
	"sync"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// known is the state of a conversation at the time a check began. compare checks it against the log's answer.
type known struct {
	c             *conversation
	epoch         string
	gen           uint64
	head, checked uint64
	doubts        uint64
}

// check starts a check of the conversations whose turn it is and of those in doubt: the last live event may have been lost, and no later
// one shows that.
//
// It does not wait for the log's answers. Until they arrive, new events are delivered again as soon as the conversation's stream is known
// to be the same (trust). If a check is still running, it only notes that another one is due.
func (h *Hub) check(turn []*conversation) {
	doubted := h.list(h.doubted)
	if len(turn)+len(doubted) == 0 {
		return
	}
	if h.checking.Swap(true) { // the conversations whose turn it was have another
		h.missed.Store(true)
		return
	}
	due := map[int][]known{}
	add := func(c *conversation, turn bool) {
		c.mu.RLock()
		defer c.mu.RUnlock()
		switch {
		case !c.doubt:
			h.unnote(h.doubted, c)
		case turn: // it is among the others
			return
		}
		if c.synced && len(c.readers) > 0 {
			shard := h.from.Shard(c.id)
			due[shard] = append(due[shard], known{c, c.epoch, c.gen, c.head, c.checked, c.doubts})
		}
	}
	for _, c := range turn {
		add(c, true)
	}
	for _, c := range doubted {
		c.mu.RLock()
		doubt := c.doubt
		c.mu.RUnlock()
		if doubt {
			add(c, false)
		} else {
			h.unnote(h.doubted, c)
		}
	}
	if len(due) == 0 || !h.start(func() { h.ask(due) }) {
		h.checking.Store(false)
	}
}

// ask runs the check of the conversations in due, by shard, with at most askAtOnce requests to the log at a time. It returns when all are
// answered.
func (h *Hub) ask(due map[int][]known) {
	defer func() {
		h.checking.Store(false)
		if h.missed.Swap(false) {
			h.checkSoon()
		}
	}()
	var asking sync.WaitGroup
	defer asking.Wait()
	places := make(chan struct{}, askAtOnce)
	for shard, of := range due {
		places <- struct{}{}
		asking.Go(func() {
			state, err := h.from.State(h.ctx, shard)
			<-places
			if err != nil {
				return // at the next tick, if it is in doubt
			}
			if h.sameServer(shard, state.Server) {
				for _, k := range of {
					k.c.trust(k, state.Epoch)
				}
			}
			for _, k := range of {
				if h.ctx.Err() != nil {
					return
				}
				if !needsLast(k, state) {
					h.compare(k, state, schemas.Cursor{})
					continue
				}
				places <- struct{}{}
				asking.Go(func() {
					defer func() { <-places }()
					if last, err := h.from.Last(h.ctx, k.c.account, k.c.id); err == nil {
						h.compare(k, state, last)
					}
				})
			}
		})
	}
}

// sameServer reports whether the server process that answers for a shard is the one of the last request, and records the new one. After a
// crash another process answers; then events may have been lost and their sequences reused.
func (h *Hub) sameServer(shard int, server string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	former, known := h.servers[shard]
	h.servers[shard] = server
	return known && former == server
}

// needsLast reports whether the state of the shard does not prove that nothing was missed, so that the conversation's last event must be
// read.
func needsLast(k known, state streams.ShardState) bool {
	return k.epoch == state.Epoch && state.Last > k.checked && state.Last > k.head
}

// compare compares a conversation's state with the log. It has the loader read missed events, begins a new incarnation if the stream was
// recreated, and otherwise ends the doubt.
func (h *Hub) compare(k known, state streams.ShardState, last schemas.Cursor) {
	c := k.c
	if needsLast(k, state) && last.Seq < k.head { // head is gone: what came behind it may have gone since the state was asked
		now, err := h.from.State(h.ctx, h.from.Shard(c.id))
		if err != nil {
			return // at the next tick, if it is in doubt
		}
		state.Epoch, state.First = now.Epoch, now.First
	}
	v := judge(k.epoch, k.head, k.checked, state, last.Seq)
	if v == recreated {
		if err := c.again(h.ctx, k.gen); err != nil {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != k.gen {
		return
	}
	if c.doubts == k.doubts { // else it came into doubt again since
		c.doubt, c.same = false, false
	}
	switch v {
	case behind:
		c.received = max(c.received, last.Seq)
	case cut:
		c.received = max(c.received, state.First-1) // reading finds nothing, and says so
	case complete:
		c.checked = state.Last
	case recreated:
	}
	if c.received > c.head {
		c.work()
	}
}

type verdict int

const (
	complete  verdict = iota // nothing was missed
	behind                   // there is more
	recreated                // the stream was recreated, or has lost its end
	cut                      // the missing events may have been removed already
)

// judge compares what is known of a conversation with its shard. Last is the sequence of the conversation's last event; it counts only if
// the shard has grown since the last check. It is pure.
func judge(epoch string, head, checked uint64, state streams.ShardState, last uint64) verdict {
	switch {
	case epoch != state.Epoch, state.Last < head:
		return recreated
	case state.Last > checked && last > head:
		return behind
	case state.First > max(head, checked)+1:
		return cut
	}
	return complete
}
