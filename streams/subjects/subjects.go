// Package subjects has the names of the log's subjects, and reads them.
package subjects

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Subjects begin with these. Ids that clients choose travel as base64url without padding, because
// they may hold dots.
const (
	Calls     = "sandjet.calls."
	Intake    = "sandjet.calls.auto." // where clients publish requests; see the door for them
	Waiting   = "sandjet.intake."     // where those wait on the log
	Cancels   = "sandjet.cancels."
	Cancelled = "sandjet.cancelled." // where requests to cancel are published live
	Events    = "sandjet.events."
	Live      = "sandjet.live."
	Jobs      = "sandjet.jobs."
	Turns     = "sandjet.turns."
	Dead      = "sandjet.dead."

	Ours   = "sandjet."
	Timers = "sandjet.timers." // in front of what follows "sandjet." in the subject that a message on a timer is for

	Wakes      = "sandjet.wakes."
	Woken      = "sandjet.woken."        // where it is published live that there is one
	WakeTimers = "sandjet.timers.wakes." // where they wait for their time

	Transcripts = "sandjet.transcripts."
	Artifacts   = "sandjet.artifacts."
	Skills      = "sandjet.skills."

	Durable     = "sandjet.durable."
	DurableLive = "sandjet.durablelive." // where readers are woken

	Deliveries     = "sandjet.deliveries."
	DeliveryTimers = "sandjet.timers.deliveries." // where deliveries wait for their next try
	CallTimers     = "sandjet.timers.calls."      // where calls of an account that has thousands wait for their turn
	Inbox          = "sandjet.inbox."             // what comes to _INBOX in a tenant's own account
	Reply          = "sandjet.reply."             // where a tenant may have its inboxes on every server

	// RPCCall is where the request/reply NATS API takes calls; the last token is the account.
	RPCCall = RPC + "call"
	// RPCApprovals is where it is asked about approvals; the last token is the account.
	RPCApprovals = RPC + "approvals"

	RPC = "sandjet.rpc."

	// SharedQueue is the queue group of processes that share the messages of a subject: one of them gets each.
	SharedQueue = "sandjet"

	EventStreams      = "EVENTS_" // of the streams of events, by shards
	TranscriptStreams = "TRANSCRIPTS_"

	Parked    = "_parked" // stands in the place of a provider for calls that wait for a person
	NoAccount = "_"       // stands for the account where there is none
)

// Untoken is the text of which Token has made a token.
func Untoken(s string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return "", fmt.Errorf("subject token %q: %w", schemas.Quotable(s), err)
	}
	return string(b), nil
}

// Token makes one token of a subject, or of a key, of any text.
func Token(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// IsToken reports whether s can be a token as it is: letters, digits, _ and - only.
func IsToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	})
}

// OrNone is an account as a token of a subject, or what stands for none.
func OrNone(a schemas.AccountID) string {
	if a == "" {
		return NoAccount
	}
	return string(a)
}

// ShardOf spreads conversations over shards. The function is part of the log's format.
func ShardOf(c schemas.ConversationID, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(c)) // never fails
	return int(h.Sum32() % uint32(shards))
}

// EventsOf begins the subjects of the events of a shard.
func EventsOf(shard int) string { return Events + shardName(shard) + "." }

// EventStream names the stream of a shard of the events.
func EventStream(shard int) string { return EventStreams + shardName(shard) }

// shardName is the number of a shard, of which there are at most [maxShards], in two digits.
func shardName(shard int) string { return string([]byte{'0' + byte(shard/10), '0' + byte(shard%10)}) }

// Event is the subject of the events of a conversation.
func Event(shard int, a schemas.AccountID, c schemas.ConversationID) string {
	return EventsOf(shard) + string(a) + "." + Token(string(c))
}

// TranscriptsOf begins the subjects of the transcripts of a shard.
func TranscriptsOf(shard int) string { return Transcripts + shardName(shard) + "." }

// TranscriptStream names the stream of a shard of the transcripts.
func TranscriptStream(shard int) string { return TranscriptStreams + shardName(shard) }

// Transcript is the subject of the transcript of a conversation.
func Transcript(shard int, a schemas.AccountID, c schemas.ConversationID) string {
	return TranscriptsOf(shard) + string(a) + "." + Token(string(c))
}

// LiveSubject is where new events of a conversation appear at once, for NATS clients that may
// subscribe to it. Nothing is kept there.
func LiveSubject(a schemas.AccountID, c schemas.ConversationID) string {
	return Live + string(a) + "." + Token(string(c))
}

// LivePrefix begins the subjects of [LiveSubject] of one account; a dot and a token follow.
func LivePrefix(a schemas.AccountID) string { return Live + string(a) }

// ReplyPrefix begins the subjects on which an account may have its inboxes on every server; a dot and tokens follow.
func ReplyPrefix(a schemas.AccountID) string { return Reply + string(a) }

// InboxPrefix begins the subjects of what is sent to _INBOX in an account's own NATS account; a dot and tokens follow.
func InboxPrefix(a schemas.AccountID) string { return Inbox + string(a) }

// IntakeSubject is where an account's own NATS clients publish requests.
func IntakeSubject(a schemas.AccountID) string { return Intake + string(a) }

// WaitingSubject is where they wait on the log.
func WaitingSubject(a schemas.AccountID) string { return Waiting + string(a) }

// Call is the subject of a call.
func Call(provider string, a schemas.AccountID, id schemas.CallID) string {
	return Calls + provider + "." + string(a) + "." + Token(string(id))
}

// Provider is the provider in the subject of a call, or what stands in its place.
func Provider(subject string) string {
	provider, _, _ := strings.Cut(strings.TrimPrefix(subject, Calls), ".")
	return provider
}

// Cancel is the subject of requests to cancel a call.
func Cancel(a schemas.AccountID, id schemas.CallID) string {
	return Cancels + string(a) + "." + Token(string(id))
}

// TargetOf is the subject that the server writes the message of a timer to; any other subject is its own.
func TargetOf(subject string) string {
	if rest, ok := strings.CutPrefix(subject, Timers); ok {
		return Ours + rest
	}
	return subject
}

// AccountOf finds the account in a subject of ours; empty if there is none. A message on a timer is that of its target.
func AccountOf(subject string) schemas.AccountID {
	subject = TargetOf(subject)
	if rest, ok := strings.CutPrefix(subject, Artifacts); ok {
		a, _, _ := strings.Cut(rest, ".")
		return schemas.AccountID(a)
	}
	const most = 6 // tokens: one more than any of them has
	var room [most]string
	t := room[:0]
	for token := range strings.SplitSeq(subject, ".") {
		if t = append(t, token); len(t) == most {
			return ""
		}
	}
	at := -1
	switch {
	case len(t) == 4 && strings.HasPrefix(subject, Intake):
		at = 3
	case len(t) == 3 && strings.HasPrefix(subject, Waiting):
		at = 2
	case len(t) == 5 && (strings.HasPrefix(subject, Calls) || strings.HasPrefix(subject, Events) ||
		strings.HasPrefix(subject, Dead) || strings.HasPrefix(subject, Transcripts)):
		at = 3
	case len(t) == 5 && strings.HasPrefix(subject, Deliveries):
		at = 3
	case len(t) == 5 && strings.HasPrefix(subject, Turns), len(t) == 4 && strings.HasPrefix(subject, Jobs):
		at = 2
	case len(t) == 4 && (strings.HasPrefix(subject, Cancels) || strings.HasPrefix(subject, Live) ||
		strings.HasPrefix(subject, Wakes)):
		at = 2
	case len(t) == 4 && strings.HasPrefix(subject, RPC):
		at = 3
	}
	if at < 0 || t[at] == NoAccount {
		return ""
	}
	return schemas.AccountID(t[at])
}

// ReadFor is the account for which a subject is read; empty for what is of all accounts.
func ReadFor(subject string) schemas.AccountID {
	if rest, ok := strings.CutPrefix(subject, Durable); ok {
		a, _, _ := strings.Cut(rest, ".")
		return schemas.AccountID(a)
	}
	return AccountOf(subject)
}

// StreamOfEvents names the stream of an event's subject.
func StreamOfEvents(subject string) string {
	rest := strings.TrimPrefix(subject, Events)
	shard, _, _ := strings.Cut(rest, ".")
	return "EVENTS_" + shard
}

// InboxSubject is where a reply to a tenant's inbox is published; see [Bus.Reply].
func InboxSubject(a schemas.AccountID, inbox string) (string, error) {
	const most = 256
	bad := strings.ContainsFunc(inbox, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r > '~' })
	rest, shared := strings.CutPrefix(inbox, "_INBOX.")
	subject := Inbox + string(a) + "." + rest
	for _, own := range []string{Reply + string(a) + ".", "_INBOX_" + string(a) + "."} {
		if tail, ok := strings.CutPrefix(inbox, own); ok {
			rest, subject, shared = tail, inbox, true
		}
	}
	if bad || !shared || len(inbox) > most || a.Validate() != nil || slices.Contains(strings.Split(rest, "."), "") {
		return "", schemas.Invalidf("reply", "must be an inbox of your own: _INBOX.… or "+Reply+"%s.… without wildcards", a)
	}
	return subject, nil
}
