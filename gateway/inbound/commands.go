package inbound

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
)

// mostListed is how many running calls and jobs /status lists.
const mostListed = 10

// shownCommand is how much of a command a list of approvals shows, in bytes.
const shownCommand = 80

// command executes a command and posts the reply in the chat.
func (h *Handler) command(ctx context.Context, c schemas.ChatChannel, chat schemas.Chat, m schemas.ChatMessage, s Step) error {
	var text string
	switch s.Command {
	case New:
		text = "A new conversation begins here. What runs in the one before goes on; its results still come here."
	case Stop:
		n, err := h.Stop(ctx, chat.Account, chat.Conversation())
		if err != nil {
			return err
		}
		text = stopped(n)
	case Status:
		running, err := h.Running(ctx, chat.Account, chat.Conversation())
		if err != nil {
			return err
		}
		text = status(chat.Conversation(), running)
	case questions:
		open, err := h.Approvals.List(ctx, chat.Account,
			admission.Filter{State: schemas.ApprovalPending, Conversation: chat.Conversation()}, mostListed)
		if err != nil {
			return err
		}
		text = waiting(open)
	case Run:
		return h.run(ctx, c, chat, m, s.Rest)
	case notAllowed:
		text = "You may not answer this: the channel's record names who may (`users`)."
	default:
		text = help(c)
	}
	return h.say(ctx, chat, m, text)
}

// run starts a command as a background job. Its result is posted in the chat, as every job's is.
func (h *Handler) run(ctx context.Context, c schemas.ChatChannel, chat schemas.Chat, m schemas.ChatMessage, line string) error {
	if line == "" {
		return h.say(ctx, chat, m, "Say what to run: `/run ls -l`")
	}
	input, err := json.Marshal(map[string]any{"command": line, "background": true})
	if err != nil {
		return fmt.Errorf("encode the input: %w", err)
	}
	to := chat.Origin()
	calls := h.Calls
	calls.Kind = admission.Channel
	_, err = calls.Admit(ctx, chat.Account, schemas.Request{
		ID: schemas.CallID(schemas.MakeMessageID(m.Channel, m.Event)), Agent: c.Agent, Conversation: chat.Conversation(), Tool: schemas.ToolBash,
		Input: input, Workspace: string(c.Workspace), Origin: &to,
	})
	switch schemas.CodeOf(err) {
	case "":
		return h.say(ctx, chat, m, "Started. What it prints comes here when it has ended.")
	case schemas.Unavailable, schemas.Exhausted, schemas.Internal:
		return err // the service posts it again
	default:
		return h.say(ctx, chat, m, "⚠️ It cannot run: "+schemas.Public(err).Message)
	}
}

func stopped(n int) string {
	switch n {
	case 0:
		return "Nothing runs here."
	case 1:
		return "One call is being stopped."
	}
	return fmt.Sprintf("%d calls are being stopped.", n)
}

func status(conv schemas.ConversationID, running []string) string {
	if len(running) == 0 {
		return fmt.Sprintf("Nothing runs here. This is the conversation `%s`.", conv)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This is the conversation `%s`. What runs here:\n\n", conv)
	for _, s := range running[:min(len(running), mostListed)] {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	if more := len(running) - mostListed; more > 0 {
		fmt.Fprintf(&b, "- and %d more\n", more)
	}
	return b.String()
}

// waiting returns the text that lists open approvals with the commands that answer them.
func waiting(open admission.ApprovalList) string {
	if len(open.Approvals) == 0 {
		return "No question waits for an answer here."
	}
	b := []byte("These questions wait for an answer, `/approve ID` or `/deny ID`:\n\n")
	for _, a := range open.Approvals {
		command := schemas.HeadText(strings.Join(strings.Fields(schemas.Command(a.Call.Tool, a.Call.Input)), " "), shownCommand)
		b = fmt.Appendf(b, "- `%s`: %s %s\n", a.ID, a.Call.Tool, schemas.CodeSpan(command))
	}
	if open.More {
		b = append(b, "- and older ones\n"...)
	}
	return string(b)
}

func help(c schemas.ChatChannel) string {
	lines := []string{
		"What you write here goes to the agent. Besides:", "",
		"- `/new` begins another conversation",
		"- `/stop` stops what runs here",
		"- `/status` shows what runs here",
		"- `/approve ID` and `/deny ID` answer a question",
	}
	if c.Agent == "" {
		lines[0] = "No agent answers here. There are these commands:"
	}
	if c.Settings[SettingRun] == "true" {
		lines = append(lines, "- `/run COMMAND` runs a command in the channel's workspace")
	}
	return strings.Join(append(lines, "- `/help` shows this"), "\n")
}
