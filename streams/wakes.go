package streams

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Wakes say which conversations are to be checked, as their turns may continue. A wake replaces another of the same conversation that no
// process has taken yet. Filter: an account.
var Wakes = Topic[schemas.Wake]{ //nolint:gochecknoglobals // a row of the table
	stream: streamWakes, subject: wakePlace, encode: encodeJSON[schemas.Wake], decode: decodeJSON[schemas.Wake],
	filter: func(s string) string { return subjects.Wakes + orAny(s) + ".*" },
	of:     func(_, account string) string { return subjects.Wakes + account + ".*" },
}

// ScheduleWake stores a wake that comes at a time, instead of any other of the conversation that has not come yet.
func ScheduleWake(ctx context.Context, b *Bus, w schemas.Wake, at time.Time) error {
	subject, err := wakePlace(b, w)
	if err != nil {
		return err
	}
	data, err := encodeJSON(w)
	if err != nil {
		return err
	}
	m := nats.NewMsg(subjects.WakeTimers + strings.TrimPrefix(subject, subjects.Wakes))
	m.Data = data
	return b.writer.schedule(ctx, m, subject, at)
}

func wakePlace(_ *Bus, w schemas.Wake) (string, error) {
	if err := errors.Join(w.Account.Validate(), w.Conversation.Validate()); err != nil {
		return "", err
	}
	return subjects.Wakes + string(w.Account) + "." + subjects.Token(string(w.Conversation)), nil
}

// Woken calls wake for each conversation that gets a wake, until ctx ends. Wakes during a disconnection are missed: a caller that must not
// miss any consumes [Wakes]. Wake must not block.
func Woken(ctx context.Context, b *Bus, wake func(schemas.AccountID, schemas.ConversationID)) error {
	sub, err := b.live.Subscribe(subjects.Woken+"*.*", func(m *nats.Msg) {
		account, name, _ := strings.Cut(strings.TrimPrefix(m.Subject, subjects.Woken), ".")
		if conversation, err := subjects.Untoken(name); err == nil {
			wake(schemas.AccountID(account), schemas.ConversationID(conversation))
		}
	})
	if err != nil {
		return natserr.Coded("hear of wakes", err)
	}
	<-ctx.Done()
	if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		b.log.Debug("unsubscribe failed", "error", err)
	}
	return nil
}

// WaitingTurn is a follow-up with its place in the stream of turns.
type WaitingTurn struct {
	Seq      uint64
	FollowUp schemas.FollowUp
}

// ReadTurns reads the follow-ups of a conversation that lie behind a sequence, oldest first. One that cannot be read is passed over, with
// a line in the log. Code: unavailable.
func ReadTurns(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, after uint64) ([]WaitingTurn, error) {
	if err := errors.Join(a.Validate(), c.Validate()); err != nil {
		return nil, err
	}
	subject := subjects.Turns + string(a) + "." + subjects.Token(string(c)) + ".*"
	var list []WaitingTurn
	for {
		page, more, err := b.reader.GetPage(ctx, streamTurns, subject, after+1, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			after = m.Seq
			e, err := Turns.entry(ctx, b, "", m)
			switch {
			case schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil:
				return nil, err
			case err != nil:
				b.log.Error("stored message is not a follow-up, skipped", "stream", streamTurns, "seq", m.Seq, "error", err)
			default:
				list = append(list, WaitingTurn{m.Seq, e.Value})
			}
		}
		if !more || len(page) == 0 {
			return list, nil
		}
	}
}

// LastTurn is the sequence of a conversation's last follow-up; 0 if there is none.
func LastTurn(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID) (uint64, error) {
	list, err := ReadTurns(ctx, b, a, c, 0)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return list[len(list)-1].Seq, nil
}
