package chat

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

var _ delivery.Ender = (*Sender)(nil)

// Ended publishes on the conversation the outcome of a delivery, and passes one that failed for good to the channel's fallback. Doing so
// again changes nothing: the event and the fallback's delivery have ids that follow from the delivery.
func (s *Sender) Ended(ctx context.Context, d schemas.Delivery, failure string) error {
	s.once.Do(s.begin)
	l, err := s.ledgers.Get(ctx, string(d.Account)+"."+string(d.ID))
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return fmt.Errorf("read what was sent of %s: %w", d.ID, err)
	}
	record, err := s.record(ctx, d)
	if code := schemas.CodeOf(err); err != nil && code != schemas.NotFound && code != schemas.Denied {
		return err
	}
	var messages []schemas.SentMessage
	for _, p := range l.Value.Parts {
		if p.State == sent || p.State == dropped {
			messages = append(messages, schemas.SentMessage{ID: p.ID, URL: p.URL, Repeat: p.Marked, Edited: p.Edits != nil})
		}
	}
	id := record.ID
	if id == "" {
		id = d.ChannelID
	}
	if failure == "" {
		return s.publish(ctx, d, schemas.DeliverySent, schemas.DeliverySentData{
			Delivery: d.ID, Event: d.Event, Channel: d.Channel, ChannelID: id, Messages: messages,
		})
	}
	to, err := s.fallBack(ctx, d, record)
	if err != nil {
		return err
	}
	return s.publish(ctx, d, schemas.DeliveryFailed, schemas.DeliveryFailedData{
		Delivery: d.ID, Event: d.Event, Channel: d.Channel, ChannelID: id, Reason: failure, Messages: messages, Fallback: to,
	})
}

// fallBack creates a delivery to the channel's fallback and returns the fallback's channel. It returns an empty id if there is none, or if
// this delivery is itself a fallback or a test of the channel.
func (s *Sender) fallBack(ctx context.Context, d schemas.Delivery, record schemas.ChatChannel) (schemas.ChannelID, error) {
	f := record.Fallback
	if f == nil || d.FallbackOf != "" || d.Tries > 0 { // deliveries with limited tries are tests of this very channel
		return "", nil
	}
	to, err := s.Channels.Get(ctx, d.Account, f.Channel)
	if errors.Is(err, schemas.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	next := schemas.Delivery{
		ID: schemas.MakeDeliveryID(d.Event, "fallback:"+string(d.ID)), Account: d.Account, Channel: to.Kind, ChannelID: to.ID, Route: f.Route,
		Event: d.Event, Type: d.Type, Conversation: d.Conversation, Body: d.Body, Created: s.Bus.Now().UTC(), FallbackOf: d.ID,
	}
	return to.ID, lifecycle.Deliver(ctx, s.Bus, next)
}

// publish publishes an event on the conversation. Its id contains the number of manual replays, so it is published once for each of them.
func (s *Sender) publish(ctx context.Context, d schemas.Delivery, t schemas.EventType, data any) error {
	if schemas.CodeOf(d.Conversation.Validate()) == schemas.Invalid { // it does not belong to a conversation
		return nil
	}
	raw, err := schemas.EncodeJSON(data)
	if err != nil {
		return fmt.Errorf("publish %s: %w", t, err)
	}
	now := s.Bus.Now().UTC()
	e := schemas.Event{
		SpecVersion: "1.0", ID: fmt.Sprintf("%s.%s.%s.%d", d.Account, d.ID, t, d.Replay), Type: t, Source: schemas.AccountSource(d.Account),
		Subject: string(d.ID), Time: now, Conversation: d.Conversation, Account: d.Account, Data: raw,
	}
	if _, err := streams.StoreOnce(ctx, s.Bus, e, s.Bus.AbsentAt(d.Created)); err != nil {
		return fmt.Errorf("publish %s: %w", t, err)
	}
	return nil
}
