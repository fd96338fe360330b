package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// story follows the events of the tour's conversation and stores them.
type story struct {
	mu    sync.Mutex
	items []arrived
	more  chan struct{} // closed and replaced when an item or an error is added
	err   error
	end   context.CancelFunc
	ended sync.WaitGroup
}

// arrived is an event and when it arrived here.
type arrived struct {
	client.Item

	at time.Time
}

func follow(ctx context.Context, c *client.Client, conversation schemas.ConversationID) *story {
	ctx, end := context.WithCancel(ctx)
	s := &story{more: make(chan struct{}), end: end}
	s.ended.Go(func() {
		for item, err := range c.Events(ctx, conversation, schemas.Cursor{}) {
			s.add(item, err)
		}
	})
	return s
}

func (s *story) stop() {
	s.end()
	s.ended.Wait()
}

func (s *story) add(item client.Item, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.err = err
	case item.Gap != nil:
		s.err = fmt.Errorf("the stream has a hole: %s", item.Gap)
	case !item.Live:
		s.items = append(s.items, arrived{item, time.Now()})
	}
	close(s.more)
	s.more = make(chan struct{})
}

// all returns the events that have arrived so far.
func (s *story) all() []arrived {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrived(nil), s.items...)
}

var errStory = errors.New("the event did not come")

// wait returns the first event that matches, and waits for one if none has arrived yet.
func (s *story) wait(ctx context.Context, match func(schemas.Event) bool) (arrived, error) {
	for seen := 0; ; {
		s.mu.Lock()
		items, more, err := s.items, s.more, s.err
		s.mu.Unlock()
		for ; seen < len(items); seen++ {
			if match(items[seen].Event) {
				return items[seen], nil
			}
		}
		if err != nil {
			return arrived{}, fmt.Errorf("%w: %w", errStory, err)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return arrived{}, fmt.Errorf("%w: %w", errStory, ctx.Err())
		}
	}
}

// about returns a matcher of events of a type about a call.
func about(id schemas.CallID, t schemas.EventType) func(schemas.Event) bool {
	return func(e schemas.Event) bool { return e.Subject == string(id) && e.Type == t }
}

// result waits for the result of a call.
func (s *story) result(ctx context.Context, id schemas.CallID) (schemas.Result, error) {
	e, err := s.wait(ctx, about(id, schemas.CallFinished))
	if err != nil {
		return schemas.Result{}, fmt.Errorf("result of %s: %w", id, err)
	}
	r, ok := decode[schemas.Result](e.Event)
	if !ok {
		return schemas.Result{}, fmt.Errorf("result of %s: %w", id, errStory)
	}
	return r, nil
}
