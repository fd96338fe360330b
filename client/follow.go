package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	followRoom  = 1024    // events buffered for one reader; further ones stay on the log
	followBytes = 8 << 20 // of them, with gaps and snapshots
	attachAgain = time.Second
)

// wsFrame is one message from the gateway; Op says which fields are set.
type wsFrame struct {
	Op        string          `json:"op"`
	ID        *int64          `json:"id"`
	Conv      string          `json:"conv"`
	Cur       schemas.Cursor  `json:"cur"`
	Prev      schemas.Cursor  `json:"prev"`
	Head      schemas.Cursor  `json:"head"`
	Recovered *bool           `json:"recovered"`
	Gap       json.RawMessage `json:"gap"`
	Data      json.RawMessage `json:"data"`
	Snapshot  json.RawMessage `json:"snapshot"`
	RetryMS   int64           `json:"retry_ms"`
	Error     *schemas.Error  `json:"error"`

	Call         schemas.CallID         `json:"call"`
	Conversation schemas.ConversationID `json:"conversation"`
	Status       string                 `json:"status"`
	Approval     schemas.ApprovalID     `json:"approval"`

	Frames []wsFrame `json:"frames"` // of a batch
}

// Follow reads a conversation after a cursor and continues live, as [Client.Events] does, on this socket. It ends when ctx ends or the
// loop breaks, or with an error when the socket ends.
//
// A slow reader does not delay others: up to 1,024 events, or slightly more than 8 MiB, are buffered for it; then the conversation is
// detached, and attached again when the reader has caught up.
//
// Codes: conflict (the socket follows it already), and permanent errors of the gateway.
func (s *Socket) Follow(ctx context.Context, conversation schemas.ConversationID, after schemas.Cursor) iter.Seq2[Item, error] {
	return s.follow(ctx, conversation, after, false)
}

// FollowCompact is [Socket.Follow] for a reader that comes late: events of the history whose content is contained in a later event, such
// as the output of a finished call, are omitted. If it begins in the middle of a call, an item has the call's earlier output.
func (s *Socket) FollowCompact(ctx context.Context, conversation schemas.ConversationID, after schemas.Cursor) iter.Seq2[Item, error] {
	return s.follow(ctx, conversation, after, true)
}

func (s *Socket) follow(ctx context.Context, conversation schemas.ConversationID, after schemas.Cursor,
	compact bool) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		f, err := s.follower(conversation, after, compact)
		if err != nil {
			yield(Item{}, err)
			return
		}
		defer s.leave(f)
		for {
			items, err := s.take(f)
			for _, it := range items {
				if !yield(it, nil) {
					return
				}
			}
			if err != nil {
				yield(Item{}, err)
				return
			}
			if len(items) > 0 {
				continue
			}
			select {
			case <-f.wake:
			case <-ctx.Done():
				yield(Item{}, fmt.Errorf("read %s: %w", conversation, ctx.Err()))
				return
			}
		}
	}
}

// follower is one conversation that is followed, across connections. Its fields are guarded by the socket's mutex.
type follower struct {
	conversation schemas.ConversationID
	compact      bool
	chain        chain
	items        []Item
	bytes        int           // of items, about
	wake         chan struct{} // signals that there are items

	request  int64 // the number of the attach in force; 0: none
	answered bool  // and it was answered: frames before that are of an earlier one
	full     bool  // detached for want of room
	live     bool
	torn     bool           // a hole was found, and
	tornAt   schemas.Cursor // where
	err      error
}

func (s *Socket) follower(conversation schemas.ConversationID, after schemas.Cursor, compact bool) (*follower, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return nil, s.over
	}
	if s.followers[conversation] != nil {
		return nil, schemas.OpErrorf(schemas.Conflict, "conversation", "this socket follows %s already: break out of that loop first", conversation)
	}
	f := &follower{conversation: conversation, compact: compact, chain: chain{at: after}, wake: make(chan struct{}, 1)}
	s.followers[conversation] = f
	s.attach(f)
	return f, nil
}

// leave removes a follower.
func (s *Socket) leave(f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detach(f)
	delete(s.followers, f.conversation)
}

// take returns all buffered items of a follower, and attaches it again if it was detached because its buffer was full.
func (s *Socket) take(f *follower) ([]Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := f.items
	f.items, f.bytes = nil, 0
	if f.full && f.err == nil {
		f.full = false
		s.attach(f)
	}
	return items, f.err
}

// attach attaches a follower on the present connection, if there is one. The caller holds the mutex.
func (s *Socket) attach(f *follower) {
	if s.conn == nil || f.full || f.err != nil {
		return
	}
	s.detach(f)
	s.lastID++
	f.request = s.lastID
	op := map[string]any{"op": "attach", "id": f.request, "conv": f.conversation, "after": f.chain.at}
	if f.compact {
		op["compact"] = true
	}
	if s.Batch {
		op["batch"] = true
	}
	s.write(op)
}

func (s *Socket) detach(f *follower) {
	if f.request != 0 {
		s.write(map[string]any{"op": "detach", "conv": f.conversation})
	}
	f.request, f.answered = 0, false
}

// dispatch handles a message from the gateway.
func (s *Socket) dispatch(w wsFrame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.Conv == "" {
		if w.ID != nil {
			s.answer(*w.ID, w)
		}
		return
	}
	f := s.followers[schemas.ConversationID(w.Conv)]
	if f == nil || f.err != nil || f.request == 0 {
		return
	}
	own := w.ID != nil && *w.ID == f.request
	switch {
	case w.Op == "attached" && own:
		f.answered = true
		f.chain.begin(w.Head)
		f.gap(w)
	case w.Op == "error" && own:
		f.request, f.answered = 0, false // the gateway has detached it
		s.refused(f, w.Error)
	case !f.answered:
	case w.Op == "gap":
		f.gap(w)
	case w.Op == "live":
		f.gap(w)
		f.chain.caughtUp(w.Cur)
		if !f.live {
			f.push(Item{Live: true, Cursor: f.chain.at})
		}
		f.live = true
	case w.Op == "snapshot":
		if w.Snapshot != nil {
			f.push(Item{Snapshot: w.Snapshot, Cursor: f.chain.at})
		}
	case w.Op == "ev":
		f.gap(w)
		s.event(f, w)
	}
}

// refused handles an error that the gateway sent about a follower: it ends the follower, or attaches it again after a while if the error
// is temporary.
func (s *Socket) refused(f *follower, e *schemas.Error) {
	if e == nil {
		e = &schemas.Error{Code: schemas.Internal, Message: "the gateway did not say why"}
	}
	if e.Code != schemas.Unavailable && e.Code != schemas.Interrupted {
		f.finish(e)
		return
	}
	conn := s.conn
	time.AfterFunc(attachAgain, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.conn == conn && s.followers[f.conversation] == f && f.request == 0 {
			s.attach(f)
		}
	})
}

func (s *Socket) event(f *follower, w wsFrame) {
	v := f.chain.judge(w.Cur, w.Prev)
	if v == hole && (!f.torn || f.tornAt != f.chain.at) { // what was lost on the way is in the log: ask for it
		f.torn, f.tornAt = true, f.chain.at
		s.attach(f)
		return
	}
	if v == hole { // the log has the same hole: own up to it
		gap, err := json.Marshal(map[string]schemas.Cursor{"from": f.chain.at, "to": w.Prev})
		if err != nil {
			f.finish(fmt.Errorf("report a gap: %w", err))
			return
		}
		f.chain.skip(f.chain.at, w.Prev)
		f.push(Item{Gap: gap, Cursor: f.chain.at})
		v = f.chain.judge(w.Cur, w.Prev)
	}
	if v != next {
		return
	}
	e, err := schemas.DecodeEvent(w.Data)
	if err != nil {
		s.detach(f)
		f.finish(fmt.Errorf("the socket's event cannot be read: %w", err))
		return
	}
	f.bytes += len(w.Data)
	f.push(Item{Event: e, Cursor: w.Cur})
	if len(f.items) >= followRoom || f.bytes >= followBytes { // only behind an event, so that the next attach is further on
		f.full = true
		s.detach(f)
	}
}

// gap records the gap that a message reports, if it does.
func (f *follower) gap(w wsFrame) {
	if w.Recovered == nil || *w.Recovered {
		return
	}
	if w.Gap == nil {
		w.Gap = json.RawMessage("{}")
	}
	var gap struct {
		From schemas.Cursor `json:"from"`
		To   schemas.Cursor `json:"to"`
	}
	_ = json.Unmarshal(w.Gap, &gap) // a gap of a later version is a gap too
	f.chain.skip(gap.From, gap.To)
	f.push(Item{Gap: w.Gap, Cursor: f.chain.at})
}

func (f *follower) push(it Item) {
	f.items = append(f.items, it)
	f.bytes += len(it.Gap) + len(it.Snapshot)
	f.rouse()
}

func (f *follower) finish(err error) {
	f.err = err
	f.rouse()
}

func (f *follower) rouse() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}
