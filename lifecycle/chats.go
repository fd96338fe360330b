package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// OpenChats returns the bucket of chats.
func OpenChats(b *streams.Bus) *streams.Bucket[schemas.Chat] {
	return streams.OpenBucket[schemas.Chat](b, streams.Chats)
}

// NoteChat records a message in a chat, and returns the chat with its present conversation. If another is set, the message begins a new
// conversation, once for each event. It may be called again after an error. Code: unavailable.
func NoteChat(ctx context.Context, b *streams.Bus, c schemas.Chat, another bool, event string) (schemas.Chat, error) {
	chats := OpenChats(b)
	var contest streams.Contest
	for {
		p, err := chats.Get(ctx, c.Key())
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return schemas.Chat{}, err
		}
		next := noted(p.Value, c, another, event)
		next.Updated = b.Now().UTC()
		if err != nil {
			_, err = chats.Create(ctx, c.Key(), next, 0)
		} else {
			_, err = chats.Update(ctx, c.Key(), next, p.Revision)
		}
		if !errors.Is(err, schemas.ErrConflict) { // else another gateway has received it too
			return next, err
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.Chat{}, err
		}
	}
}

// noted returns a chat's record after a message. It is pure.
func noted(have, c schemas.Chat, another bool, event string) schemas.Chat {
	c.Begun, c.BegunBy, c.User = have.Begun, have.BegunBy, schemas.HeadText(c.User, maxChatUser)
	switch c.Fetching {
	case "", have.Fetching:
		c.Fetching, c.FetchingSince, c.Before = have.Fetching, have.FetchingSince, have.Before
	default:
		c.Before = have.Fetching
	}
	if another && event != have.BegunBy {
		c.Begun, c.BegunBy = have.Begun+1, event
	}
	return c
}

// WasReceived reports whether [Receive] was called for a message, so that nothing about it needs to be decided. That call may not have
// finished.
func WasReceived(ctx context.Context, b *streams.Bus, a schemas.AccountID, id schemas.FollowUpID) (bool, error) {
	_, err := streams.OpenBucket[schemas.Received](b, streams.ReceivedMessages).Get(ctx, schemas.ReceivedKey(a, id))
	if errors.Is(err, schemas.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// FindChat returns the chat that a conversation belongs to. Code: not_found.
func FindChat(ctx context.Context, b *streams.Bus, a schemas.AccountID, conversation schemas.ConversationID) (schemas.Chat, error) {
	p, err := OpenChats(b).Get(ctx, schemas.ChatKey(a, conversation))
	if err != nil {
		return schemas.Chat{}, err
	}
	if p.Value.Account != a { // another's, of the same hash
		return schemas.Chat{}, schemas.Errorf(schemas.NotFound, "the conversation %s is of no chat", schemas.Quotable(string(conversation)))
	}
	return p.Value, nil
}

// Receive stores a message of a chat on the log: the turn that it begins, if an agent is to answer, then the event on the conversation,
// and the deliveries to the webhook endpoints. Each is stored once: a message that is received again stays in the conversation where it
// was received first. It may be called again after an error.
func Receive(ctx context.Context, b *streams.Bus, f schemas.FollowUp, endpoints []schemas.Endpoint) error {
	key := schemas.ReceivedKey(f.Account, f.ID)
	received := streams.OpenBucket[schemas.Received](b, streams.ReceivedMessages)
	absent := b.Absent() // if it is not recorded yet, none of the following is stored
	note := schemas.Received{Conversation: f.Conversation}
	if f.Message != nil {
		note.Workspace, note.Files = f.Message.Workspace, cutFiles(f.Message.Files)
	}
	_, err := received.Create(ctx, key, note, 0)
	if errors.Is(err, schemas.ErrConflict) {
		p, err := received.Get(ctx, key)
		if err != nil {
			return err
		}
		note, absent = p.Value, b.AbsentAt(p.Stored)
	} else if err != nil {
		return err
	}
	f.Conversation = note.Conversation
	if f.Message != nil && len(note.Files) > 0 { // their outcome was decided once: the turn and the event say the same
		m := *f.Message
		m.Workspace, m.Files = note.Workspace, note.Files
		f.Message, f.Text = &m, m.Said()
	}
	if f.Agent != "" {
		if err := streams.Turns.Publish(ctx, b, f); err != nil && !errors.Is(err, schemas.ErrConflict) {
			return fmt.Errorf("begin a turn: %w", err)
		}
	}
	e, err := schemas.MessageEvent(f)
	if err != nil {
		return err
	}
	at, err := streams.StoreOnce(ctx, b, e, absent)
	if err != nil {
		return fmt.Errorf("publish %s: %w", e.Type, err)
	}
	return Notify(ctx, b, e, at, endpoints)
}
