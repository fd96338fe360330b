package lifecycle

import (
	"context"
	"errors"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// OpenTurnHolds returns the bucket that records which process runs the turns of a conversation.
func OpenTurnHolds(b *streams.Bus) *streams.Bucket[schemas.TurnHold] {
	return streams.OpenBucket[schemas.TurnHold](b, streams.TurnHolds)
}

// TurnHoldKey returns the key of a conversation's record.
func TurnHoldKey(a schemas.AccountID, c schemas.ConversationID) string {
	return string(a) + "." + subjects.Token(string(c))
}

// WakeTurn makes the process that runs a conversation's turn check it. It may be called at any time and any number of times.
func WakeTurn(ctx context.Context, b *streams.Bus, a schemas.AccountID, c schemas.ConversationID) error {
	return streams.Wakes.Publish(ctx, b, schemas.Wake{Account: a, Conversation: c})
}

// wakeFor wakes the turn that waits for a call, if one does.
func wakeFor(ctx context.Context, b *streams.Bus, c schemas.Call) error {
	if !c.Wake {
		return nil
	}
	return WakeTurn(ctx, b, c.Account, c.Conversation)
}

// Address stores a message to an agent on the log. It is idempotent by its id for seven days, and reports whether the message was there
// already. The process that runs the turns reads it from there.
//
// Codes: invalid, conflict (the id has another content; or the mode is reject, and a turn runs), exhausted (more than
// [schemas.MaxWaitingTurns] or [schemas.MaxWaitingTurnBytes] wait in the conversation), unavailable: it is unknown whether it was stored;
// call it again with the same id.
func Address(ctx context.Context, b *streams.Bus, f schemas.FollowUp) (existing bool, err error) {
	if err := errors.Join(f.Mode.Validate(), f.Agent.Validate()); err != nil {
		return false, err
	}
	switch {
	case f.Text == "" && !f.Mode.Stops():
		return false, schemas.Invalidf("input", "is missing: say something to the agent")
	case len(f.Text) > schemas.MaxTurnInput:
		return false, schemas.Invalidf("input", "is %d bytes long: the limit is %d", len(f.Text), schemas.MaxTurnInput)
	}
	hold, err := ensureHold(ctx, b, f)
	if err != nil {
		return false, err
	}
	waiting, err := streams.ReadTurns(ctx, b, f.Account, f.Conversation, hold.Seen)
	if err != nil {
		return false, err
	}
	n, size := 0, len(f.Text)
	for _, w := range waiting {
		if w.FollowUp.ID == f.ID {
			return addressed(w.FollowUp, f)
		}
		if !hold.Has(w.Seq, w.FollowUp.ID) {
			n, size = n+1, size+len(w.FollowUp.Text)
		}
	}
	switch {
	case f.Mode.Stops(): // what ends a turn is never too much
	case f.Mode == schemas.TurnReject && (hold.Turn != "" || n > 0):
		return false, schemas.Errorf(schemas.Conflict, "a turn of the conversation runs: wait for its end, or use another mode")
	case n >= schemas.MaxWaitingTurns || size > schemas.MaxWaitingTurnBytes:
		return false, schemas.Errorf(schemas.Exhausted,
			"%d messages wait for the agent in this conversation: at most %d, of %d bytes together: try again when it has taken some in",
			n, schemas.MaxWaitingTurns, schemas.MaxWaitingTurnBytes)
	}
	err = streams.Turns.Publish(ctx, b, f)
	if errors.Is(err, schemas.ErrConflict) { // one that is dealt with, or was faster
		all, err := streams.ReadTurns(ctx, b, f.Account, f.Conversation, 0)
		if err != nil {
			return false, err
		}
		for _, w := range all {
			if w.FollowUp.ID == f.ID {
				return addressed(w.FollowUp, f)
			}
		}
		return false, schemas.Errorf(schemas.Unavailable, "the message is there but cannot be read now: send it again")
	}
	return false, err
}

// addressed compares a repeated message with the stored one. Code: conflict.
func addressed(have, f schemas.FollowUp) (bool, error) {
	if have.Text != f.Text || have.Mode != f.Mode || have.Agent != f.Agent {
		return false, &schemas.Error{
			Code: schemas.Conflict, Field: "id", Message: "the key is that of a message with other content: use a new key for a new message",
		}
	}
	return true, nil
}

// ensureHold returns the record of a conversation, and makes it if there is none. A new record begins after the messages that exist, which
// are not for the turn runners.
func ensureHold(ctx context.Context, b *streams.Bus, f schemas.FollowUp) (schemas.TurnHold, error) {
	holds, key := OpenTurnHolds(b), TurnHoldKey(f.Account, f.Conversation)
	var contest streams.Contest
	for {
		p, err := holds.Get(ctx, key)
		if !errors.Is(err, schemas.ErrNotFound) {
			return p.Value, err
		}
		last, err := streams.LastTurn(ctx, b, f.Account, f.Conversation)
		if err != nil {
			return schemas.TurnHold{}, err
		}
		h := schemas.TurnHold{Account: f.Account, Conversation: f.Conversation, First: last, Seen: last, Updated: b.Now().UTC()}
		if _, err := holds.Create(ctx, key, h, 0); !errors.Is(err, schemas.ErrConflict) {
			return h, err
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.TurnHold{}, err
		}
	}
}

// ExpectTurn records that the message at a sequence in the stream of turns is for the turn runners, and wakes them. It may be called
// again.
func ExpectTurn(ctx context.Context, b *streams.Bus, f schemas.FollowUp, seq uint64) error {
	holds, key := OpenTurnHolds(b), TurnHoldKey(f.Account, f.Conversation)
	var contest streams.Contest
	for {
		p, err := holds.Get(ctx, key)
		before := seq - 1
		switch {
		case errors.Is(err, schemas.ErrNotFound):
			h := schemas.TurnHold{Account: f.Account, Conversation: f.Conversation, First: before, Seen: before, Updated: b.Now().UTC()}
			_, err = holds.Create(ctx, key, h, 0)
		case err != nil:
			return err
		case seq <= p.Value.First: // another that came behind it was faster to make the record
			p.Value.First, p.Value.Seen = before, min(p.Value.Seen, before)
			_, err = holds.Update(ctx, key, p.Value, p.Revision)
		}
		if errors.Is(err, schemas.ErrConflict) {
			if err := contest.Again(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		return WakeTurn(ctx, b, f.Account, f.Conversation)
	}
}
