package callstate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/logclock"
)

// Recent returns the states of calls by their ids. It reads a few pages of each conversation, whatever its length, and leaves out a call
// that it does not find in them. Results have no text and no output.
func (s *Reader) Recent(ctx context.Context, calls []callstore.Listed) (map[schemas.CallID]State, error) {
	const atATime = 8
	byConversation := map[schemas.ConversationID][]*Reading{}
	for _, c := range calls {
		byConversation[c.Call.Conversation] = append(byConversation[c.Call.Conversation], s.recent(c))
	}
	found := make(map[schemas.CallID]State, len(calls))
	for chunk := range slices.Chunk(slices.Collect(maps.Values(byConversation)), atATime) {
		whole, errs := make([]bool, len(chunk)), make([]error, len(chunk))
		var wg sync.WaitGroup
		for i, group := range chunk {
			wg.Go(func() { whole[i], errs[i] = readTogether(ctx, group) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		for i, group := range chunk {
			for _, r := range group {
				if whole[i] || r.State.Result != nil {
					found[r.State.Call.ID] = r.State
				}
			}
		}
	}
	return found, nil
}

// recent is [Reader.Begin] without the question for when the call was stored.
func (s *Reader) recent(c callstore.Listed) *Reading {
	stream, subject := s.o.EventsOf(c.Call.Account, c.Call.Conversation)
	r := &Reading{
		Stream: stream, Subject: subject, Stored: c.Stored, Since: c.Stored.Add(-logclock.ServersApart), State: State{Call: c.Call},
		of: s, short: true,
	}
	if c.Call.Accepted.Before(r.Since) { // released by a person, or put aside, since
		r.Stored, r.Since = c.Call.Accepted, c.Call.Accepted.Add(-logclock.ServersApart)
	}
	return r
}

// readTogether reads the states of calls of one conversation. whole reports that it read until the present or the last result.
func readTogether(ctx context.Context, group []*Reading) (whole bool, err error) {
	const common, perRead = 2, 16 // pages, and calls for which there is one more
	first, most := earliest(group), common+len(group)/perRead
	from, since := uint64(1), &first.Since
	for range most {
		page, more, err := first.of.o.Reader.GetPage(ctx, first.Stream, first.Subject, from, since, 0)
		if err != nil {
			return false, err
		}
		open := false
		for _, r := range group {
			for _, m := range page {
				if err := r.take(ctx, m); err != nil {
					return false, err
				}
			}
			open = open || r.State.Result == nil
		}
		if !open || !more || len(page) == 0 {
			return complete(ctx, group, most)
		}
		from, since = page[len(page)-1].Seq+1, nil
	}
	return false, nil
}
