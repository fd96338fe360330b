package inbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// MaxBody is the largest request of a chat service that is accepted, in bytes. Their requests are far smaller.
const MaxBody = 1 << 20

// Channels provides the records of chat channels. It must be safe for concurrent use, and should need no round trip.
type Channels interface {
	// Get returns a record with its secrets. Codes: not_found, unavailable.
	Get(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error)
	// List returns the channels of an account with their secrets.
	List(ctx context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error)
}

// Handler processes the requests of chat services. It is safe for concurrent use.
type Handler struct {
	Bus      *streams.Bus
	Channels Channels
	// Receiver returns the adapter of a kind of channel; false if there is none, or it does not receive.
	Receiver func(kind string) (channel.Receiver, bool)
	// Endpoints are the webhook endpoints of an account. Nil: it has none.
	Endpoints func(ctx context.Context, a schemas.AccountID) ([]schemas.Endpoint, error)
	// Calls admits the calls of /run.
	Calls admission.Admitter
	// Approvals decides approvals.
	Approvals admission.Approvals
	// Stop cancels the calls and jobs of a conversation and returns their number.
	Stop func(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) (int, error)
	// Running describes the running calls and jobs of a conversation, for people.
	Running func(ctx context.Context, a schemas.AccountID, conv schemas.ConversationID) ([]string, error)
	// Seen is called for each accepted text message; it must not block. It may be nil.
	Seen func(c schemas.ChatChannel, in channel.Inbound)
	// Received counts messages by kind of channel and what was done. It may be nil.
	Received func(kind string, done Kind)
	Log      *slog.Logger // nil: silent
}

// Post processes a request of a chat service to /webhooks/{account}/{channel}; the channel is named by its id, its name or its kind. It
// answers once all consequences are on the log. Codes: not_found (also if the channel is disabled), denied (the signature is wrong, status
// 401), invalid, exhausted, unavailable. After an error the service posts the request again.
func (h *Handler) Post(w http.ResponseWriter, r *http.Request) error {
	c, err := h.find(r.Context(), schemas.AccountID(r.PathValue("account")), strings.ToValidUTF8(r.PathValue("channel"), "\uFFFD"))
	if err != nil {
		return err
	}
	body, err := web.ReadBody(w, r, MaxBody, "no chat service sends as much")
	if err != nil {
		return err
	}
	in, step, err := h.receive(r.Context(), c, channel.Request{Header: r.Header, Query: r.URL.Query(), Body: body})
	if err != nil {
		return err
	}
	if step.Kind == Ignore && in.Kind != channel.Ignored && len(in.Unheard.Body) > 0 {
		in.Answer = in.Unheard
	}
	writeAnswer(w, in.Answer)
	return nil
}

// Simulated is the result of [Handler.Simulate].
type Simulated struct {
	Done Kind `json:"done"`
	// Reason says why it was ignored.
	Reason       string                 `json:"reason,omitzero"`
	Conversation schemas.ConversationID `json:"conversation,omitzero"`
}

// Simulate processes a text as if the chat service had posted it: the request is signed with the channel's secret, then verified and read
// as every other. Codes: not_found, unsupported (the service signs with a private key of its own), and those of [Handler.Post].
func (h *Handler) Simulate(ctx context.Context, a schemas.AccountID, name string, said channel.Said) (Simulated, error) {
	c, err := h.find(ctx, a, name)
	if err != nil {
		return Simulated{}, err
	}
	receiver, _ := h.Receiver(c.Kind)
	simulator, ok := receiver.(channel.Simulator)
	if !ok {
		return Simulated{}, schemas.Errorf(schemas.Unsupported, "messages of %s cannot be simulated: it signs with a key of its own", c.Kind)
	}
	request, err := simulator.Simulate(channel.Destination{Credential: c.Secrets, Settings: c.Settings}, said, time.Now())
	if err != nil {
		return Simulated{}, err
	}
	in, step, err := h.receive(ctx, c, request)
	if err != nil {
		return Simulated{}, err
	}
	out := Simulated{Done: step.Kind, Reason: step.Why}
	if step.Kind != Ignore && step.Kind != Greet {
		chat, err := lifecycle.FindChat(ctx, h.Bus, a, schemas.ChatName(c.ID, in.Conversation))
		if err != nil {
			return Simulated{}, err
		}
		out.Conversation = chat.Conversation()
	}
	return out, nil
}

// receive verifies and parses a request, decides what to do, and does it.
func (h *Handler) receive(ctx context.Context, c schemas.ChatChannel, r channel.Request) (in channel.Inbound, s Step, err error) {
	receiver, ok := h.Receiver(c.Kind)
	if !ok {
		return in, s, schemas.Errorf(schemas.Unsupported, "channels of the kind %s take nothing here", c.Kind)
	}
	to := channel.Destination{Credential: c.Secrets, Settings: c.Settings}
	// The services sign by their own clocks, which this machine's is held against and not the log's.
	if err := receiver.Verify(r, to, time.Now()); err != nil {
		if errors.Is(err, schemas.ErrDenied) {
			err = web.WithStatus(http.StatusUnauthorized, err)
		}
		return in, s, err
	}
	if in, err = receiver.Read(r, to); err != nil {
		return in, s, err
	}
	s = Decide(c, in)
	return in, s, h.take(ctx, c, in, s)
}

// writeAnswer writes the response that the service expects.
func writeAnswer(w http.ResponseWriter, a channel.Answer) {
	if a.Type != "" {
		w.Header().Set("Content-Type", a.Type)
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the service posts again what it has no answer to
}

// find returns the enabled channel with this id, name or, if the account has only one of it, kind. Code: not_found.
func (h *Handler) find(ctx context.Context, a schemas.AccountID, name string) (schemas.ChatChannel, error) {
	none := schemas.Errorf(schemas.NotFound, "there is no chat channel %q that takes messages", schemas.Quotable(name))
	if a.Validate() != nil {
		return schemas.ChatChannel{}, none
	}
	if id := schemas.ChannelID(name); id.Validate() == nil {
		c, err := h.Channels.Get(ctx, a, id)
		if errors.Is(err, schemas.ErrNotFound) || err == nil && c.Disabled {
			err = none
		}
		return c, err
	}
	list, err := h.Channels.List(ctx, a)
	if err != nil {
		return schemas.ChatChannel{}, err
	}
	var ofKind []schemas.ChatChannel
	for _, c := range list {
		switch {
		case c.Disabled:
		case c.Name == name:
			return c, nil
		case c.Kind == name:
			ofKind = append(ofKind, c)
		}
	}
	if len(ofKind) == 1 {
		return ofKind[0], nil
	}
	return schemas.ChatChannel{}, none
}

// take carries out the decision about a message: it records the chat, and then delivers the message, executes the command or answers the
// approval.
func (h *Handler) take(ctx context.Context, c schemas.ChatChannel, in channel.Inbound, step Step) error {
	log := h.log().With("account", c.Account, "channel", c.ID, "kind", c.Kind, "event", in.Event)
	if h.Received != nil {
		h.Received(c.Kind, step.Kind)
	}
	if step.Kind == Greet || step.Kind == Ignore {
		log.Info("message of a chat not accepted", "reason", step.Why, "place", in.Place, "user", in.User)
		return nil
	}
	chat := schemas.Chat{
		Account: c.Account, Channel: c.ID, Kind: c.Kind, Name: schemas.ChatName(c.ID, in.Conversation), Route: in.Route, User: in.User,
	}
	m := message(c, in, h.Bus.Now())
	if step.Kind == Deliver && len(m.Files) > 0 {
		chat.Fetching, chat.FetchingSince = schemas.MakeMessageID(m.Channel, m.Event), m.Received
	}
	chat, err := lifecycle.NoteChat(ctx, h.Bus, chat, step.Command == New, in.Event)
	if err != nil {
		return err
	}
	switch step.Kind {
	case Deliver:
		err = h.deliver(ctx, chat, c.Agent, m)
	case Command:
		err = h.command(ctx, c, chat, m, step)
	case Answer:
		err = h.decide(ctx, chat, m, step)
	case Ignore, Greet:
	}
	if err == nil && h.Seen != nil && in.Kind == channel.Text {
		h.Seen(c, in)
	}
	return err
}

// deliver begins a turn. If the message has files, or an earlier message of the chat still waits for its files, it stores a delivery
// instead; the deliverer fetches the files and begins the turn, see package delivery/inbox.
func (h *Handler) deliver(ctx context.Context, chat schemas.Chat, agent schemas.AgentID, m schemas.ChatMessage) error {
	if err := h.Bus.RoomFor(ctx, chat.Account, len(m.Text)); err != nil {
		return err
	}
	turn := schemas.MessageTurn(chat, agent, m)
	later, err := h.later(ctx, chat, turn)
	if err != nil {
		return err
	}
	if later != nil {
		return lifecycle.Deliver(ctx, h.Bus, schemas.IncomingDelivery(*later))
	}
	var endpoints []schemas.Endpoint
	if h.Endpoints != nil {
		if endpoints, err = h.Endpoints(ctx, chat.Account); err != nil {
			return err
		}
	}
	return lifecycle.Receive(ctx, h.Bus, turn, endpoints)
}

// later returns the delivery of a turn that must wait for files, its own or those of an earlier message; nil if it can begin at once, or
// was begun already.
func (h *Handler) later(ctx context.Context, chat schemas.Chat, turn schemas.FollowUp) (*schemas.Incoming, error) {
	after := chat.After(turn.ID, h.Bus.Now())
	if after != "" {
		there, err := lifecycle.WasReceived(ctx, h.Bus, chat.Account, after)
		if err != nil {
			return nil, err
		}
		if there {
			after = ""
		}
	}
	if after == "" && len(turn.Message.Files) == 0 {
		return nil, nil //nolint:nilnil // nothing waits
	}
	there, err := lifecycle.WasReceived(ctx, h.Bus, chat.Account, turn.ID)
	if err != nil || there { // the service has posted it again
		return nil, err
	}
	return &schemas.Incoming{Turn: turn, After: after}, nil
}

// decide answers an approval. If it was answered already, it posts the earlier decision in the chat.
func (h *Handler) decide(ctx context.Context, chat schemas.Chat, m schemas.ChatMessage, step Step) error {
	state := schemas.ApprovalDenied
	if step.Approved {
		state = schemas.ApprovalApproved
	}
	a, err := lifecycle.FindApproval(ctx, h.Bus, chat.Account, step.Approval)
	switch {
	case errors.Is(err, schemas.ErrNotFound), err == nil && !asked(a.Value.Call, chat):
		return h.say(ctx, chat, m, "There is no such question here.")
	case err != nil:
		return err
	}
	done, err := h.Approvals.Decide(ctx, chat.Account, step.Approval, lifecycle.Decision{
		State: state, By: lifecycle.ByChat, Reason: "by " + who(m) + " in " + m.Kind,
	})
	if errors.Is(err, schemas.ErrConflict) {
		return h.say(ctx, chat, m, decided(done))
	}
	return err // the outcome is reported where every answer is, see [lifecycle.FinishDecision]
}

// asked reports whether the approval of a call was requested in a chat: the call belongs to one of the chat's conversations, also one
// before /new, or it names the chat's channel as its origin.
func asked(c schemas.Call, chat schemas.Chat) bool {
	return schemas.ChatKey(c.Account, c.Conversation) == chat.Key() || c.Origin != nil && c.Origin.ChannelID == chat.Channel
}

// decided returns the text that says how an approval was answered.
func decided(a schemas.Approval) string {
	text := fmt.Sprintf("`%s` is %s already", a.ID, a.State)
	if a.Reason != "" {
		text += ", " + a.Reason
	}
	return text + "."
}

// who returns the name and id of a message's writer, for people.
func who(m schemas.ChatMessage) string {
	if m.UserName != "" && m.UserName != m.User {
		return m.UserName + " (" + m.User + ")"
	}
	return m.User
}

// say stores a delivery of a reply to a message. It is stored once for each message.
func (h *Handler) say(ctx context.Context, chat schemas.Chat, m schemas.ChatMessage, text string) error {
	about := schemas.Event{
		ID: schemas.MessageReceivedID(chat.Account, schemas.MakeMessageID(m.Channel, m.Event)), Type: schemas.MessageReceived,
		Account: chat.Account, Conversation: chat.Conversation(),
	}
	return lifecycle.Deliver(ctx, h.Bus, schemas.ChatDelivery(about, chat.Origin(), ".answer",
		schemas.ChatBody{Text: text, Reply: true}, h.Bus.Now()))
}

// message returns the incoming message with its text, files and names cut to their limits.
func message(c schemas.ChatChannel, in channel.Inbound, now time.Time) schemas.ChatMessage {
	m := schemas.ChatMessage{
		Channel: c.ID, Kind: c.Kind, Event: in.Event, Place: in.Place, User: in.User, UserName: in.UserName,
		Text: strings.ToValidUTF8(in.Text, "\uFFFD"), Received: now.UTC(),
	}
	if len(m.Text) > schemas.MaxChatText {
		m.Text, m.TextTruncated = schemas.HeadText(m.Text, schemas.MaxChatText), true
	}
	for _, f := range in.Files[:min(len(in.Files), schemas.MaxChatFiles)] {
		if len(f.Ref) > schemas.MaxChatFileRef {
			f.Ref = ""
		}
		m.Files = append(m.Files, schemas.ChatFile{
			Name: schemas.HeadText(f.Name, 2*schemas.MaxChatFileName), Type: schemas.HeadText(f.Type, schemas.MaxChatFileType),
			Size: f.Size, Ref: f.Ref,
		})
	}
	return m
}

func (h *Handler) log() *slog.Logger {
	if h.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Log
}
