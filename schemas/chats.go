package schemas

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ChatMessage is what a person wrote in a chat. It is the data of [MessageReceived] and part of the turn that begins with it.
type ChatMessage struct {
	Channel  ChannelID  `json:"channel"`
	Kind     string     `json:"kind"`               // the service: telegram
	Event    string     `json:"event"`              // the service's own id of it
	Place    string     `json:"place"`              // the chat, channel or repository
	User     string     `json:"user,omitzero"`      // who wrote, as the service names people
	UserName string     `json:"user_name,omitzero"` // as people see it
	Text     string     `json:"text"`
	Files    []ChatFile `json:"files,omitzero"`
	// Workspace is where those of Files are that have a path.
	Workspace WorkspaceID `json:"workspace,omitzero"`
	// TextTruncated says that the text was longer than MaxChatText bytes.
	TextTruncated bool      `json:"text_truncated,omitzero"`
	Received      time.Time `json:"received"`
}

// ChatFile is a file that came with a message: it is in the workspace, at Path, or Reason says why it is not.
type ChatFile struct {
	Name string `json:"name"`          // as the service says, see [SafeFileName]
	Type string `json:"type,omitzero"` // as the service says: it may be wrong
	Size int64  `json:"size,omitzero"` // bytes; absent: not said
	Ref  string `json:"ref,omitzero"`  // what the service finds it by
	// Path leads to it from the root of the workspace.
	Path string `json:"path,omitzero"`
	// Reason says why it was not stored, in a sentence for people.
	Reason string `json:"reason,omitzero"`
}

// ChatBody is the body of a delivery to a chat, but for that of a follow-up, see [ChatBodyOf].
type ChatBody struct {
	Text    string       `json:"text"` // Markdown
	Buttons []ChatButton `json:"buttons,omitzero"`
	// Reply has it stand as an answer to the message that the route names, where the service knows answers.
	Reply bool `json:"reply,omitzero"`
	// Edit has an earlier message rewritten in place of all that, where the service can do so and has that message.
	Edit *ChatEdit `json:"edit,omitzero"`
}

// ChatEdit is an earlier message of ours in a chat, with its new text.
type ChatEdit struct {
	Delivery DeliveryID `json:"delivery"` // that carried it; its last part is meant
	Text     string     `json:"text"`     // Markdown; where it is longer than one message, ChatBody.Text is taken
}

// ChatButton is a button under a message.
type ChatButton struct {
	Label string `json:"label"`
	Data  string `json:"data"` // at most 64 bytes
	Style string `json:"style,omitzero" jsonschema:"enum=approve,enum=deny"`
}

// ChatBodyOf returns what a delivery to a chat says; for a follow-up, its text. It is pure. Code: invalid.
func ChatBodyOf(d Delivery) (ChatBody, error) {
	if d.Type == FollowUpCreated {
		var f FollowUp
		if err := json.Unmarshal([]byte(d.Body), &f); err != nil {
			return ChatBody{}, Invalidf("body", "is no follow-up: %v", err)
		}
		return ChatBody{Text: f.Text, Reply: true}, nil
	}
	var b ChatBody
	if err := json.Unmarshal([]byte(d.Body), &b); err != nil {
		return ChatBody{}, Invalidf("body", "is no text for a chat: %v", err)
	}
	return b, nil
}

// CodeBlock returns a text as a block of code in Markdown, whatever it contains.
func CodeBlock(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + text + "\n" + fence
}

// CodeSpan returns a text without line breaks as Markdown that shows it literally within a line.
func CodeSpan(text string) string {
	fence, longest := "`", 0
	for run := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '`' }) {
		longest = max(longest, len(run))
	}
	if longest > 0 {
		fence = strings.Repeat("`", longest+1)
		text = " " + text + " "
	}
	return fence + text + fence
}

// Chat is what is known of a place in a chat where a person has written: where its conversation continues, and where an answer goes.
type Chat struct {
	Account AccountID `json:"account"`
	Channel ChannelID `json:"channel"`
	Kind    string    `json:"kind"`
	// Name is the conversation's as the first message made it. Begun counts how often a new one was asked for.
	Name    ConversationID  `json:"name"`
	Begun   int             `json:"begun,omitzero"`
	BegunBy string          `json:"begun_by,omitzero"` // the event of the last one that was asked for
	Route   json.RawMessage `json:"route"`
	User    string          `json:"user,omitzero"` // who wrote last
	// Fetching is the last message with files, and FetchingSince when it came; Before is the one before that. What is written after such
	// a message waits for it.
	Fetching      FollowUpID `json:"fetching,omitzero"`
	FetchingSince time.Time  `json:"fetching_since,omitzero"`
	Before        FollowUpID `json:"before,omitzero"`
	Updated       time.Time  `json:"updated"`
}

// After returns the message with files that was written before message id and is still being fetched, for [FilesWithin] at most. Empty:
// there is none. It is pure.
func (c Chat) After(id FollowUpID, now time.Time) FollowUpID {
	if now.Sub(c.FetchingSince) > FilesWithin {
		return ""
	}
	if c.Fetching == id {
		return c.Before
	}
	return c.Fetching
}

// newBegins stands between the name of a chat and which of its conversations it is.
const newBegins = "#"

// ChatName names the conversation of a place in a chat: what the service calls the place, and the channel, for two bots in one room
// have a conversation each. What ids may not have in them is replaced, and what is too long is shortened, each by a hash, so that
// two places never share a name.
func ChatName(channel ChannelID, place string) ConversationID {
	const most = 120
	clean := strings.Map(func(r rune) rune {
		if notAlnum(r) && !strings.ContainsRune("_.:-/", r) {
			return '_'
		}
		return r
	}, place)
	if clean != place || len(clean) > most {
		clean = clean[:min(len(clean), most)] + "." + shortHash(place)
	}
	return ConversationID(clean + "@" + string(channel))
}

// Conversation is where the chat continues.
func (c Chat) Conversation() ConversationID {
	if c.Begun == 0 {
		return c.Name
	}
	return ConversationID(string(c.Name) + newBegins + strconv.Itoa(c.Begun))
}

// Origin is where an answer to the chat goes.
func (c Chat) Origin() Origin {
	return Origin{Kind: OriginChannel, Channel: c.Kind, ChannelID: c.Channel, Route: c.Route}
}

// ChatKey is the place of the chat in its bucket that a conversation belongs to.
func ChatKey(a AccountID, conversation ConversationID) string {
	name, _, _ := strings.Cut(string(conversation), newBegins)
	return string(a) + "." + shortHash(name)
}

// Key is the chat's place in its bucket.
func (c Chat) Key() string { return ChatKey(c.Account, c.Name) }

// Received says in which conversation a message of a chat was received, and the outcome of its files. The service may post it again after
// the chat has moved to another conversation.
type Received struct {
	Conversation ConversationID `json:"conversation"`
	Workspace    WorkspaceID    `json:"workspace,omitzero"`
	Files        []ChatFile     `json:"files,omitzero"`
}

// ReceivedKey is the place of a message in its bucket.
func ReceivedKey(a AccountID, id FollowUpID) string { return string(a) + "." + string(id) }

// MakeMessageID is the id of the turn that a message of a chat begins.
func MakeMessageID(channel ChannelID, event string) FollowUpID {
	return FollowUpID("in_" + shortHash("message\x00"+string(channel)+"\x00"+event))
}

// MessageReceivedID is the id of the event about a message.
func MessageReceivedID(a AccountID, id FollowUpID) string {
	return string(a) + "." + string(id) + ".received"
}

// MessageTurn is the turn that a message begins.
func MessageTurn(c Chat, agent AgentID, m ChatMessage) FollowUp {
	origin := c.Origin()
	return FollowUp{
		ID: MakeMessageID(m.Channel, m.Event), Account: c.Account, Conversation: c.Conversation(), Agent: agent,
		Origin: &origin, Results: []JobResult{}, Message: &m, Text: m.Said(), Created: m.Received,
	}
}

// MessageEvent is the event about a message on its conversation.
func MessageEvent(f FollowUp) (Event, error) {
	if f.Message == nil {
		return Event{}, fmt.Errorf("the turn %s begins with no message", f.ID)
	}
	return Event{
		SpecVersion: "1.0", ID: MessageReceivedID(f.Account, f.ID), Type: MessageReceived, Source: AccountSource(f.Account),
		Subject: string(f.ID), Time: f.Created.UTC(), Conversation: f.Conversation, Account: f.Account, Data: mustJSON(f.Message),
	}, nil
}

// ChatDeliveryID is the id of the delivery that [ChatDelivery] makes for an event.
func ChatDeliveryID(event string, to Origin, receiver string) DeliveryID {
	return MakeDeliveryID(event, "channel:"+string(to.ChannelID)+receiver)
}

// ChatDelivery carries a text to a chat. Receiver distinguishes the deliveries for one event: "" if there is only one.
func ChatDelivery(e Event, to Origin, receiver string, body ChatBody, now time.Time) Delivery {
	return Delivery{
		ID: ChatDeliveryID(e.ID, to, receiver), Account: e.Account, Channel: to.Channel, ChannelID: to.ChannelID,
		Route: to.Route, Event: e.ID, Type: e.Type, Conversation: e.Conversation, Body: string(mustJSON(body)), Created: now.UTC(),
	}
}
