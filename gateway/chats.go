package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/gateway/channels"
	"github.com/sandjet/sandjet/gateway/inbound"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// mostInChat is how many calls and jobs of a conversation a chat looks at, the newest first.
const mostInChat = 100

// postInbound takes what a chat service posts.
func (g *Gateway) postInbound(w http.ResponseWriter, r *http.Request) error {
	h, err := g.inbound()
	if err != nil {
		return err
	}
	return h.Post(w, r)
}

// inbound is what takes messages, if this gateway has it.
func (g *Gateway) inbound() (*inbound.Handler, error) {
	if g.Channels == nil || g.ChatReceiver == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway takes no messages of chats")
	}
	h := &inbound.Handler{
		Bus: g.Bus, Channels: g.Channels, Receiver: g.ChatReceiver, Log: g.Log, Approvals: g.approvals.Approvals,
		Calls: admission.Admitter{Bus: g.Bus, Records: g.Records, Log: g.Log, Serving: g.Serving},
		Stop:  g.stopAll, Running: g.running, Seen: g.ChatSeen, Received: g.metrics.inbound,
	}
	if g.Endpoints != nil {
		h.Endpoints = g.Endpoints.List
	}
	return h, nil
}

// postChannelSimulate takes a simulated message.
func (g *Gateway) postChannelSimulate(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	h, err := g.inbound()
	if err != nil {
		return err
	}
	var said channel.Said
	if err := web.DecodeBody(w, r, false, &said); err != nil {
		return err
	}
	if said.Text == "" && len(said.Files) == 0 {
		return schemas.Invalidf("text", "is missing: say what the user is to have written")
	}
	if len(said.Files) > schemas.MaxChatFiles {
		return schemas.Invalidf("files", "are %d: at most %d", len(said.Files), schemas.MaxChatFiles)
	}
	done, err := h.Simulate(r.Context(), a, string(channels.ID(r)), said)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, done)
	return nil
}

// openIn lists the calls of a conversation that have no end, and its jobs that run.
func (g *Gateway) openIn(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) (
	calls []schemas.CallSummary, jobs []schemas.Job, err error,
) {
	recent, _, err := g.recentCalls(ctx, a, "", mostInChat, func(c schemas.Call) bool { return c.Conversation == conv })
	if err != nil {
		return nil, nil, err
	}
	for _, c := range recent {
		if c.Finished.IsZero() {
			calls = append(calls, c)
		}
	}
	found, err := g.jobs.Find(ctx, a, func(j schemas.Job) bool { return j.Conversation == conv && !j.State.Final() }, mostInChat)
	return calls, found.Jobs, err
}

// running names what runs in a conversation.
func (g *Gateway) running(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) ([]string, error) {
	calls, jobs, err := g.openIn(ctx, a, conv)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, c := range calls {
		list = append(list, fmt.Sprintf("%s `%s`: %s", c.Tool, c.Summary, c.Status))
	}
	for _, j := range jobs {
		list = append(list, fmt.Sprintf("job `%s`: %s", j.ID, j.State))
	}
	return list, nil
}

// stopAll asks for the end of all that runs in a conversation, and says how much that was.
func (g *Gateway) stopAll(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) (int, error) {
	const reason = "stopped in the chat"
	calls, jobs, err := g.openIn(ctx, a, conv)
	if err != nil {
		return 0, err
	}
	n := 0
	ended := func(err error) error {
		if err == nil {
			n++
		}
		if errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrConflict) { // it has ended meanwhile
			return nil
		}
		return err
	}
	for _, c := range calls {
		call, err := streams.FindCall(ctx, g.Bus, a, c.ID)
		if err == nil {
			err = g.cancel(ctx, call, admission.Channel, reason)
		}
		if err := ended(err); err != nil {
			return n, err
		}
	}
	for _, j := range jobs {
		if j.State == schemas.JobWaiting {
			continue // its call was among them
		}
		_, err := lifecycle.ControlJob(ctx, g.Bus, schemas.JobCommand{Account: a, Job: j.ID, Action: schemas.JobActionStop, Reason: reason})
		if err := ended(err); err != nil {
			return n, err
		}
	}
	return n, nil
}

// answerInChat carries what an agent says to the chat that the conversation belongs to, if it belongs to one.
func (g *Gateway) answerInChat(ctx context.Context, e schemas.Event) error {
	text := said(e)
	if text == "" {
		return nil
	}
	chat, err := lifecycle.FindChat(ctx, g.Bus, e.Account, e.Conversation)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return lifecycle.Deliver(ctx, g.Bus, schemas.ChatDelivery(e, chat.Origin(), "", schemas.ChatBody{Text: text, Reply: true}, g.Bus.Now()))
}

// said is what people in a chat are to read of an event that a harness has added: the text of a message, unless another author than the
// agent has written it, and why a turn has failed.
func said(e schemas.Event) string {
	var data struct {
		Role  string `json:"role"`
		Text  string `json:"text"`
		Error string `json:"error"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return "" // its fields are the client's own: they may be of any type
	}
	switch {
	case e.Type == schemas.Message && (data.Role == "" || data.Role == "assistant"):
		return data.Text
	case e.Type == schemas.AgentFailed && data.Error != "":
		return "⚠️ " + data.Error
	}
	return ""
}
