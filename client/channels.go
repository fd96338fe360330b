package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/sandjet/sandjet/schemas"
)

// ChannelSpec describes a chat channel to add. Kind, Name and the secrets that the kind requires must be set; see [schemas.ChatChannel]
// for the rest.
type ChannelSpec struct {
	Kind        string                `json:"kind"`
	Name        string                `json:"name"`
	Description string                `json:"description,omitzero"`
	Agent       schemas.AgentID       `json:"agent,omitzero"`
	Workspace   schemas.WorkspaceID   `json:"workspace,omitzero"`
	Places      []string              `json:"places,omitzero"`
	Users       []string              `json:"users,omitzero"`
	Settings    map[string]string     `json:"settings,omitzero"`
	Secrets     map[string]string     `json:"secrets,omitzero"`
	OnAmbiguous schemas.OnAmbiguous   `json:"on_ambiguous,omitzero"`
	Fallback    *schemas.ChannelPlace `json:"fallback,omitzero"`
}

// ChannelPatch changes a chat channel. Nil fields stay as they are.
type ChannelPatch struct {
	Name        *string              `json:"name,omitzero"`
	Description *string              `json:"description,omitzero"`
	Agent       *schemas.AgentID     `json:"agent,omitzero"`     // empty: no agent
	Workspace   *schemas.WorkspaceID `json:"workspace,omitzero"` // empty: the agent's
	Places      *[]string            `json:"places,omitzero"`
	Users       *[]string            `json:"users,omitzero"`
	// Settings and Secrets change the entries that they name; an empty value takes the entry away.
	Settings    map[string]string    `json:"settings,omitzero"`
	Secrets     map[string]string    `json:"secrets,omitzero"`
	OnAmbiguous *schemas.OnAmbiguous `json:"on_ambiguous,omitzero"`
	// Fallback with no channel in it takes the fallback away.
	Fallback *schemas.ChannelPlace `json:"fallback,omitzero"`
	Disabled *bool                 `json:"disabled,omitzero"` // false enables it again
}

// Channels reads and changes the chat channels of an account.
type Channels struct{ transport }

// Channels returns access to the account's chat channels. It sends no request.
func (c *Client) Channels() Channels { return Channels{c.transport()} }

// List returns the account's chat channels, the oldest first, with masked secrets.
func (c Channels) List(ctx context.Context) ([]schemas.ChatChannel, error) {
	var out struct {
		Channels []schemas.ChatChannel `json:"channels"`
	}
	err := c.ask(ctx, http.MethodGet, channelsPath, nil, &out)
	return out.Channels, err
}

// Get returns a chat channel, with masked secrets. Code: not_found.
func (c Channels) Get(ctx context.Context, id schemas.ChannelID) (schemas.ChatChannel, error) {
	return c.one(ctx, http.MethodGet, id, nil)
}

// Add adds a chat channel. It is tried once: after unavailable, check with [Channels.List] whether it was added. Codes: invalid, conflict
// (there is one with this name), exhausted (the account has reached its limit).
func (c Channels) Add(ctx context.Context, spec ChannelSpec) (schemas.ChatChannel, error) {
	var out schemas.ChatChannel
	err := c.postOnce(ctx, channelsPath, spec, &out)
	return out, err
}

// Update changes a chat channel. Codes: invalid, conflict, not_found.
func (c Channels) Update(ctx context.Context, id schemas.ChannelID, patch ChannelPatch) (schemas.ChatChannel, error) {
	return c.one(ctx, http.MethodPatch, id, patch)
}

// Remove removes a chat channel; deliveries that wait for it become dead letters. Code: not_found, also if an earlier try of this call
// removed it.
func (c Channels) Remove(ctx context.Context, id schemas.ChannelID) error {
	return c.ask(ctx, http.MethodDelete, channelPath(id), nil, nil)
}

// ChannelMessage is a simulated message.
type ChannelMessage struct {
	Place string `json:"place"` // the chat, channel or repository, as the channel's record names it
	User  string `json:"user"`
	Text  string `json:"text"`
	// Files are names of files that come with it, which the service, or a double of it, has.
	Files []string `json:"files,omitzero"`
}

// ChannelOutcome is the result of a simulated message.
type ChannelOutcome struct {
	Done         string                 `json:"done"` // ignore, greet, deliver, command or answer
	Reason       string                 `json:"reason,omitzero"`
	Conversation schemas.ConversationID `json:"conversation,omitzero"`
}

// Simulate makes a channel process a message as if its service had posted it. It is tried once, since each try is another message. Codes:
// not_found, unsupported (the service signs with a private key of its own).
func (c Channels) Simulate(ctx context.Context, id schemas.ChannelID, m ChannelMessage) (ChannelOutcome, error) {
	var out ChannelOutcome
	err := c.postOnce(ctx, channelPath(id)+"/simulate", m, &out)
	return out, err
}

// TestedChannel names the delivery of a test message, and the conversation on which its outcome is reported.
type TestedChannel struct {
	Delivery schemas.DeliveryID `json:"delivery"`
	// Conversation is where [schemas.DeliverySent] or [schemas.DeliveryFailed] will be.
	Conversation schemas.ConversationID `json:"conversation"`
}

// Test sends a message to a place of a channel, in one try. If markdown is empty, the text says that it is a test. The request is tried
// once. Codes: invalid (the route), not_found, conflict (the channel is disabled).
func (c Channels) Test(ctx context.Context, id schemas.ChannelID, route json.RawMessage, markdown string) (TestedChannel, error) {
	in := struct {
		Route json.RawMessage `json:"route"`
		Text  string          `json:"text,omitzero"`
	}{route, markdown}
	var out TestedChannel
	err := c.postOnce(ctx, channelPath(id)+"/test", in, &out)
	return out, err
}

// ChannelSetup is the result of [Channels.SetUp]: the address that the service must post to.
type ChannelSetup struct {
	Address    string `json:"address"`
	Registered bool   `json:"registered"` // the address is registered with the service; else a person enters it there
}

// SetUp registers the gateway's address, below publicURL, with a channel's service, if that has an API for it. It may be repeated. Codes:
// invalid, not_found, denied (the service refuses), unavailable.
func (c Channels) SetUp(ctx context.Context, id schemas.ChannelID, publicURL string) (ChannelSetup, error) {
	in := struct {
		URL string `json:"url"`
	}{publicURL}
	var out ChannelSetup
	err := c.ask(ctx, http.MethodPost, channelPath(id)+"/setup", in, &out)
	return out, err
}

func (c Channels) one(ctx context.Context, method string, id schemas.ChannelID, in any) (schemas.ChatChannel, error) {
	var out schemas.ChatChannel
	err := c.ask(ctx, method, channelPath(id), in, &out)
	return out, err
}

const channelsPath = "/v1/channels"

func channelPath(id schemas.ChannelID) string {
	return channelsPath + "/" + url.PathEscape(string(id))
}
