package natsapi

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Answer is the reply to a NATS client: ID and Conversation, or Error.
type Answer struct {
	ID           schemas.CallID         `json:"id,omitzero"`
	Conversation schemas.ConversationID `json:"conversation,omitzero"`
	// Status is awaiting_approval if the call waits for an approval, whose id is then in Approval; otherwise it is empty.
	Status   string             `json:"status,omitzero"`
	Approval schemas.ApprovalID `json:"approval,omitzero"`
	Error    *schemas.Error     `json:"error,omitzero"`
}

func answerOf(got admission.Accepted) Answer {
	a := Answer{ID: got.Call.ID, Conversation: got.Call.Conversation}
	if got.Awaiting {
		a.Status, a.Approval = admission.StatusAwaiting, got.Call.Approval
	}
	return a
}

// replyInbox returns the inbox to which the publisher wants its answer; empty if it names none. It must belong to the publisher's account:
// the consumer may publish anywhere, and must not be made to do so for another account. Code: invalid.
func replyInbox(h streams.Headers, a schemas.AccountID) (string, error) {
	return checkInbox(h.Get(HeaderReply), a)
}

func checkInbox(inbox string, a schemas.AccountID) (string, error) {
	const most = 256
	if inbox == "" {
		return "", nil
	}
	rest, ok := strings.CutPrefix(inbox, "_INBOX.")
	for _, own := range []string{subjects.ReplyPrefix(a) + ".", "_INBOX_" + string(a) + "."} {
		if tail, is := strings.CutPrefix(inbox, own); is {
			rest, ok = tail, true
		}
	}
	bad := strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r > '~' })
	if !ok || rest == "" || bad || len(inbox) > most || slices.Contains(strings.Split(rest, "."), "") {
		return "", schemas.Invalidf(HeaderReply, "must be an inbox of your own: _INBOX.… or %s.… without wildcards", subjects.ReplyPrefix(a))
	}
	return inbox, nil
}
