package streams

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
	prefixCalls     = "sandjet.calls."
	prefixIntake    = "sandjet.calls.auto." // where clients publish requests; see the door for them
	prefixWaiting   = "sandjet.intake."     // where those wait on the log
	prefixCancels   = "sandjet.cancels."
	prefixCancelled = "sandjet.cancelled." // where requests to cancel are published live
	prefixEvents    = "sandjet.events."
	prefixLive      = "sandjet.live."
	prefixJobs      = "sandjet.jobs."
	prefixTurns     = "sandjet.turns."
	prefixDead      = "sandjet.dead."

	prefixOurs  = "sandjet."
	prefixAside = "sandjet.timers." // in front of what follows "sandjet." in the subject that a message on a timer is for

	prefixWakes      = "sandjet.wakes."
	prefixWoken      = "sandjet.woken."        // where it is published live that there is one
	prefixWakeTimers = "sandjet.timers.wakes." // where they wait for their time

	prefixTranscripts = "sandjet.transcripts."

	prefixDeliveries = "sandjet.deliveries."
	prefixTimers     = "sandjet.timers.deliveries." // where deliveries wait for their next try
	prefixCallTimers = "sandjet.timers.calls."      // where calls of an account that has thousands wait for their turn
	prefixInbox      = "sandjet.inbox."             // what comes to _INBOX in a tenant's own account
	prefixReply      = "sandjet.reply."             // where a tenant may have its inboxes on every server

	// RPCSubject is where the request/reply NATS API takes calls; the last token is the account.
	RPCSubject = prefixRPC + "call"
	// RPCApprovals is where it is asked about approvals; the last token is the account.
	RPCApprovals = prefixRPC + "approvals"

	prefixRPC = "sandjet.rpc."

	parked    = "_parked" // stands in the place of a provider for calls that wait for a person
	noAccount = "_"       // stands for the account where there is none
)

func token(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func untoken(s string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return "", fmt.Errorf("subject token %q: %w", schemas.Quotable(s), err)
	}
	return string(b), nil
}

// Token makes one token of a subject, or of a key, of any text.
func Token(s string) string { return token(s) }

// IsToken reports whether s can be a token as it is: letters, digits, _ and - only.
func IsToken(s string) bool { return plain(s) }

// plain reports whether s may be a token as it is.
func plain(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	})
}

func orNone(a schemas.AccountID) string {
	if a == "" {
		return noAccount
	}
	return string(a)
}

// shardOf spreads conversations over shards. The function is part of the log's format.
func shardOf(c schemas.ConversationID, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(c)) // never fails
	return int(h.Sum32() % uint32(shards))
}

func eventSubjectPrefix(shard int) string { return prefixEvents + shardName(shard) + "." }

func eventStream(shard int) string { return eventsPrefix + shardName(shard) }

// shardName is the number of a shard, of which there are at most [maxShards], in two digits.
func shardName(shard int) string { return string([]byte{'0' + byte(shard/10), '0' + byte(shard%10)}) }

func eventSubject(shard int, a schemas.AccountID, c schemas.ConversationID) string {
	return eventSubjectPrefix(shard) + string(a) + "." + token(string(c))
}

func transcriptSubjectPrefix(shard int) string { return prefixTranscripts + shardName(shard) + "." }

func transcriptStream(shard int) string { return transcriptsPrefix + shardName(shard) }

func transcriptSubject(shard int, a schemas.AccountID, c schemas.ConversationID) string {
	return transcriptSubjectPrefix(shard) + string(a) + "." + token(string(c))
}

// LiveSubject is where new events of a conversation appear at once, for NATS clients that may
// subscribe to it. Nothing is kept there.
func LiveSubject(a schemas.AccountID, c schemas.ConversationID) string {
	return prefixLive + string(a) + "." + token(string(c))
}

// LivePrefix begins the subjects of [LiveSubject] of one account; a dot and a token follow.
func LivePrefix(a schemas.AccountID) string { return prefixLive + string(a) }

// ReplyPrefix begins the subjects on which an account may have its inboxes on every server; a dot and tokens follow.
func ReplyPrefix(a schemas.AccountID) string { return prefixReply + string(a) }

// InboxPrefix begins the subjects of what is sent to _INBOX in an account's own NATS account; a dot and tokens follow.
func InboxPrefix(a schemas.AccountID) string { return prefixInbox + string(a) }

// IntakeSubject is where an account's own NATS clients publish requests.
func IntakeSubject(a schemas.AccountID) string { return prefixIntake + string(a) }

// waitingSubject is where they wait on the log.
func waitingSubject(a schemas.AccountID) string { return prefixWaiting + string(a) }

func callSubject(provider string, a schemas.AccountID, id schemas.CallID) string {
	return prefixCalls + provider + "." + string(a) + "." + token(string(id))
}

// callProvider is the provider in the subject of a call, or what stands in its place.
func callProvider(subject string) string {
	provider, _, _ := strings.Cut(strings.TrimPrefix(subject, prefixCalls), ".")
	return provider
}

func cancelSubject(a schemas.AccountID, id schemas.CallID) string {
	return prefixCancels + string(a) + "." + token(string(id))
}

// targetOf is the subject that the server writes the message of a timer to; any other subject is its own.
func targetOf(subject string) string {
	if rest, ok := strings.CutPrefix(subject, prefixAside); ok {
		return prefixOurs + rest
	}
	return subject
}

// accountOf finds the account in a subject of ours; empty if there is none. A message on a timer is that of its target.
func accountOf(subject string) schemas.AccountID {
	subject = targetOf(subject)
	if rest, ok := strings.CutPrefix(subject, prefixArtifacts); ok {
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
	case len(t) == 4 && strings.HasPrefix(subject, prefixIntake):
		at = 3
	case len(t) == 3 && strings.HasPrefix(subject, prefixWaiting):
		at = 2
	case len(t) == 5 && (strings.HasPrefix(subject, prefixCalls) || strings.HasPrefix(subject, prefixEvents) ||
		strings.HasPrefix(subject, prefixDead) || strings.HasPrefix(subject, prefixTranscripts)):
		at = 3
	case len(t) == 5 && strings.HasPrefix(subject, prefixDeliveries):
		at = 3
	case len(t) == 5 && strings.HasPrefix(subject, prefixTurns), len(t) == 4 && strings.HasPrefix(subject, prefixJobs):
		at = 2
	case len(t) == 4 && (strings.HasPrefix(subject, prefixCancels) || strings.HasPrefix(subject, prefixLive) ||
		strings.HasPrefix(subject, prefixWakes)):
		at = 2
	case len(t) == 4 && strings.HasPrefix(subject, prefixRPC):
		at = 3
	}
	if at < 0 || t[at] == noAccount {
		return ""
	}
	return schemas.AccountID(t[at])
}

// readFor is the account for which a subject is read; empty for what is of all accounts.
func readFor(subject string) schemas.AccountID {
	if rest, ok := strings.CutPrefix(subject, prefixDurable); ok {
		a, _, _ := strings.Cut(rest, ".")
		return schemas.AccountID(a)
	}
	return accountOf(subject)
}

// streamOfEvents names the stream of an event's subject.
func streamOfEvents(subject string) string {
	rest := strings.TrimPrefix(subject, prefixEvents)
	shard, _, _ := strings.Cut(rest, ".")
	return "EVENTS_" + shard
}

// inboxSubject is where a reply to a tenant's inbox is published; see [Bus.Reply].
func inboxSubject(a schemas.AccountID, inbox string) (string, error) {
	const most = 256
	bad := strings.ContainsFunc(inbox, func(r rune) bool { return r <= ' ' || r == '*' || r == '>' || r > '~' })
	rest, shared := strings.CutPrefix(inbox, "_INBOX.")
	subject := prefixInbox + string(a) + "." + rest
	for _, own := range []string{prefixReply + string(a) + ".", "_INBOX_" + string(a) + "."} {
		if tail, ok := strings.CutPrefix(inbox, own); ok {
			rest, subject, shared = tail, inbox, true
		}
	}
	if bad || !shared || len(inbox) > most || a.Validate() != nil || slices.Contains(strings.Split(rest, "."), "") {
		return "", schemas.Invalidf("reply", "must be an inbox of your own: _INBOX.… or "+prefixReply+"%s.… without wildcards", a)
	}
	return subject, nil
}
