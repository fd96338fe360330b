package inbound

import (
	"slices"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Any stands for all places or users in a channel's record.
const Any = "*"

// SettingRun is the setting of a channel that lets its users run commands by /run; its value is "true".
const SettingRun = "run"

// Kind is the kind of a [Step].
type Kind string

// The kinds.
const (
	Ignore  Kind = "ignore"  // nothing is done
	Greet   Kind = "greet"   // the service gets its answer, and nothing else happens
	Deliver Kind = "deliver" // it begins a turn
	Command Kind = "command" // it is a command for the gateway
	Answer  Kind = "answer"  // it answers an approval
)

// The commands, the same in all chats.
const (
	New     = "/new"
	Stop    = "/stop"
	Status  = "/status"
	Help    = "/help"
	Run     = "/run"
	Approve = "/approve"
	Deny    = "/deny"
)

// Step is the decision about one request of a chat service.
type Step struct {
	Kind Kind
	// Why it is ignored, for the log.
	Why string
	// Command is the command's name, and Rest the text after it.
	Command, Rest string
	// Approval and Approved are of an Answer.
	Approval schemas.ApprovalID
	Approved bool
}

// Decide returns what to do about a message that came in by a channel. It is pure.
//
// A message is accepted if its place is listed in the channel's record and its writer is one of the record's users; if the record lists no
// users, messages of all users in those places are accepted. Only users that the record names may answer approvals: permission to write in
// a room does not imply permission to approve.
func Decide(c schemas.ChatChannel, in channel.Inbound) Step {
	switch {
	case in.Kind == channel.Handshake:
		return Step{Kind: Greet}
	case in.Kind == channel.Ignored:
		return Step{Kind: Ignore, Why: in.Why}
	case in.Event == "" || in.Conversation == "":
		return Step{Kind: Ignore, Why: "it has no id or no place"}
	case !listed(c.Places, in.Place):
		return Step{Kind: Ignore, Why: "its place is not one of the channel's"}
	case len(c.Users) > 0 && !listed(c.Users, in.User):
		return Step{Kind: Ignore, Why: "its writer is not one of the channel's users"}
	case in.Kind == channel.Pressed:
		return pressed(c, in)
	case strings.TrimSpace(in.Text) == "" && len(in.Files) == 0:
		return Step{Kind: Ignore, Why: "it says nothing"}
	}
	word, rest := command(in.Text)
	switch word {
	case New, Stop, Status, Help:
		return Step{Kind: Command, Command: word, Rest: rest}
	case Approve, Deny:
		if rest == "" {
			return Step{Kind: Command, Command: questions}
		}
		return answer(c, in.User, schemas.ApprovalID(rest), word == Approve)
	case Run:
		if c.Settings[SettingRun] == "true" {
			return Step{Kind: Command, Command: Run, Rest: rest}
		}
	}
	return Step{Kind: Deliver}
}

// pressed decides about the press of a button, from the data that we put into it.
func pressed(c schemas.ChatChannel, in channel.Inbound) Step {
	verb, id, _ := strings.Cut(in.Data, ":")
	switch verb {
	case buttonApprove, buttonDeny:
		return answer(c, in.User, schemas.ApprovalID(id), verb == buttonApprove)
	}
	return Step{Kind: Ignore, Why: "its button is none of ours"}
}

const (
	buttonApprove = "approve"
	buttonDeny    = "deny"
)

func answer(c schemas.ChatChannel, user string, id schemas.ApprovalID, yes bool) Step {
	switch {
	case id.Validate() != nil:
		return Step{Kind: Command, Command: Help}
	case user == "" || len(c.Users) == 0 || !listed(c.Users, user):
		return Step{Kind: Command, Command: notAllowed}
	}
	return Step{Kind: Answer, Approval: id, Approved: yes}
}

// Commands that only Decide returns; they cannot be typed.
const (
	notAllowed = "not allowed" // the user may write, but not answer approvals
	questions  = "questions"   // /approve or /deny without an id
)

func listed(list []string, s string) bool {
	return slices.Contains(list, s) && s != "" || slices.Contains(list, Any)
}

// command splits a text that begins with a slash into its first word in lower case, without a suffix @name as it is typed in rooms with
// several bots, and the rest. Both are empty for any other text. The suffix is not checked: the service routes such a command to the right
// bot.
func command(text string) (word, rest string) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "/") {
		return "", ""
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r == ' ' || r == '\n' || r == '\t' })
	if end < 0 {
		end = len(text)
	}
	word, _, _ = strings.Cut(strings.ToLower(text[:end]), "@")
	return word, strings.TrimSpace(text[end:])
}
