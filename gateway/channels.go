package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// Channels keeps the chat channels of all accounts, with their secrets. Its methods may be called from many goroutines.
// [records.Store] is one.
type Channels interface {
	// Channels lists those of an account, the oldest first, without a round trip.
	Channels(ctx context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error)
	Channel(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error)
	// PutChannel adds one. Codes: exhausted when the account has as many as it may, conflict when it has one of this name.
	PutChannel(ctx context.Context, c schemas.ChatChannel) error
	// UpdateChannel changes one by change, which may be called several times; its error is returned.
	UpdateChannel(ctx context.Context, a schemas.AccountID, id schemas.ChannelID,
		change func(*schemas.ChatChannel) error) (schemas.ChatChannel, error)
	DeleteChannel(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) error
}

// ChannelKind is a kind of chat channel that this build speaks to.
type ChannelKind struct {
	Name    string
	Secrets []ChannelSecret
	// Route reports what is wrong with a place of this kind: code invalid, with the field.
	Route func(json.RawMessage) error
}

// ChannelSecret is a field of the credential of a kind.
type ChannelSecret struct {
	Name     string
	Required bool
	About    string // where a person finds it
}

// ChannelList is the answer about an account's chat channels.
type ChannelList struct {
	Channels []schemas.ChatChannel `json:"channels"`
}

// channelRequest is a chat channel as a client asks for it.
type channelRequest struct {
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

// channelPatch changes a chat channel; what is absent stays.
type channelPatch struct {
	Name        *string              `json:"name,omitzero"`
	Description *string              `json:"description,omitzero"`
	Agent       *schemas.AgentID     `json:"agent,omitzero"`
	Workspace   *schemas.WorkspaceID `json:"workspace,omitzero"`
	Places      *[]string            `json:"places,omitzero"`
	Users       *[]string            `json:"users,omitzero"`
	// Settings and Secrets change the entries that they name; an empty value takes the entry away.
	Settings    map[string]string    `json:"settings,omitzero"`
	Secrets     map[string]string    `json:"secrets,omitzero"`
	OnAmbiguous *schemas.OnAmbiguous `json:"on_ambiguous,omitzero"`
	// Fallback with no channel in it takes the fallback away.
	Fallback *schemas.ChannelPlace `json:"fallback,omitzero"`
	Disabled *bool                 `json:"disabled,omitzero"`
}

// channels are the records of chat channels, unless this gateway has none.
func (g *Gateway) channels() (Channels, error) {
	if g.Channels == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "", "this gateway keeps no chat channels")
	}
	return g.Channels, nil
}

func pathChannel(r *http.Request) schemas.ChannelID {
	return schemas.ChannelID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// getChannels lists the account's chat channels.
func (g *Gateway) getChannels(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	channels, err := g.channels()
	if err != nil {
		return err
	}
	list, err := channels.Channels(r.Context(), a)
	if err != nil {
		return err
	}
	out := ChannelList{Channels: make([]schemas.ChatChannel, len(list))}
	for i, c := range list {
		out.Channels[i] = shownChannel(c)
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// postChannel adds a chat channel.
func (g *Gateway) postChannel(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	channels, err := g.channels()
	if err != nil {
		return err
	}
	var in channelRequest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := g.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	c := schemas.ChatChannel{
		ID: schemas.ChannelID(schemas.NewID(schemas.ChannelPrefix)), Account: a, Kind: in.Kind, Name: in.Name, Description: in.Description,
		Agent: in.Agent, Workspace: in.Workspace, Places: in.Places, Users: in.Users, Settings: in.Settings, Secrets: in.Secrets,
		OnAmbiguous: in.OnAmbiguous, Fallback: in.Fallback, Created: g.Bus.Now().UTC(),
	}
	if err := g.checkChannel(r.Context(), c, nil); err != nil {
		return err
	}
	if err := channels.PutChannel(r.Context(), c); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/channels/"+string(c.ID))
	web.WriteJSON(w, http.StatusCreated, shownChannel(c))
	return nil
}

// checkChannel reports what is wrong with a channel as a client wants it. Values that were there before are not checked again, so a build
// that no longer knows a secret can still change something else. It must not block except for reading a fallback.
func (g *Gateway) checkChannel(ctx context.Context, c schemas.ChatChannel, before *schemas.ChatChannel) error {
	if err := c.Validate(); err != nil {
		return err
	}
	kind, err := g.channelKind(c.Kind)
	if err != nil {
		return err
	}
	known := make([]string, len(kind.Secrets))
	for i, s := range kind.Secrets {
		known[i] = s.Name
		if s.Required && c.Secrets[s.Name] == "" {
			return schemas.Invalidf("secrets."+s.Name, "is missing: %s", s.About)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		switch {
		case c.Secrets[name] == masked:
			return schemas.Invalidf("secrets."+name, "is what stands in place of a secret: leave it out to keep the one that is there")
		case !slices.Contains(known, name) && (before == nil || before.Secrets[name] == ""):
			return schemas.Invalidf("secrets", "%s has no secret %q: use %s", c.Kind, schemas.Quotable(name), strings.Join(known, ", "))
		}
	}
	if c.Fallback == nil || before != nil && before.Fallback != nil && before.Fallback.Channel == c.Fallback.Channel &&
		string(before.Fallback.Route) == string(c.Fallback.Route) {
		return nil
	}
	to, err := g.Channels.Channel(ctx, c.Account, c.Fallback.Channel)
	if schemas.CodeOf(err) == schemas.NotFound {
		return schemas.Invalidf("fallback.channel", "there is no chat channel %q", schemas.Quotable(string(c.Fallback.Channel)))
	}
	if err != nil {
		return err
	}
	if kind, err = g.channelKind(to.Kind); err != nil {
		return err
	}
	if err := kind.Route(c.Fallback.Route); err != nil {
		return schemas.Invalidf("fallback.route", "is not a place of %s: %s", to.Kind, err)
	}
	return nil
}

// channelKind finds a kind of this build.
func (g *Gateway) channelKind(name string) (ChannelKind, error) {
	if len(g.ChannelKinds) == 0 {
		return ChannelKind{}, schemas.Errorf(schemas.Unsupported, "kind", "this gateway speaks to no chats")
	}
	names := make([]string, len(g.ChannelKinds))
	for i, k := range g.ChannelKinds {
		if k.Name == name {
			return k, nil
		}
		names[i] = k.Name
	}
	return ChannelKind{}, schemas.Invalidf("kind", "%q is not a chat that this Sandjet speaks to: use %s", schemas.Quotable(name),
		strings.Join(names, ", "))
}

// getChannel shows a chat channel.
func (g *Gateway) getChannel(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	channels, err := g.channels()
	if err != nil {
		return err
	}
	c, err := channels.Channel(r.Context(), a, pathChannel(r))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shownChannel(c))
	return nil
}

// patchChannel changes a chat channel.
func (g *Gateway) patchChannel(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	channels, err := g.channels()
	if err != nil {
		return err
	}
	var in channelPatch
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := g.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	c, err := channels.UpdateChannel(r.Context(), a, pathChannel(r), func(c *schemas.ChatChannel) error {
		before := *c
		in.apply(c)
		c.Updated = g.Bus.Now().UTC()
		return g.checkChannel(r.Context(), *c, &before)
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shownChannel(c))
	return nil
}

// apply changes what the patch names.
func (p channelPatch) apply(c *schemas.ChatChannel) {
	set(&c.Name, p.Name)
	set(&c.Description, p.Description)
	set(&c.Agent, p.Agent)
	set(&c.Workspace, p.Workspace)
	set(&c.Places, p.Places)
	set(&c.Users, p.Users)
	set(&c.OnAmbiguous, p.OnAmbiguous)
	c.Settings, c.Secrets = mixed(c.Settings, p.Settings), mixed(c.Secrets, p.Secrets)
	if p.Fallback != nil {
		c.Fallback = p.Fallback
		if p.Fallback.Channel == "" {
			c.Fallback = nil
		}
	}
	switch {
	case p.Disabled == nil:
	case *p.Disabled && !c.Disabled:
		c.Disabled, c.Reason = true, "its owner disabled it"
	case !*p.Disabled:
		c.Disabled, c.Reason = false, ""
	}
}

// mixed is a map with the entries of another, of which the empty ones are taken away.
func mixed(have, change map[string]string) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, change)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// deleteChannel removes a chat channel.
func (g *Gateway) deleteChannel(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	channels, err := g.channels()
	if err != nil {
		return err
	}
	if err := channels.DeleteChannel(r.Context(), a, pathChannel(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// shownChannel is a chat channel as it leaves the gateway: it says which secrets there are and nothing of them.
func shownChannel(c schemas.ChatChannel) schemas.ChatChannel {
	c.Secrets = maps.Clone(c.Secrets)
	for name := range c.Secrets {
		c.Secrets[name] = masked
	}
	return c
}

// channelTest is a message that is sent to try a channel out.
type channelTest struct {
	Route json.RawMessage `json:"route"`
	Text  string          `json:"text,omitzero"`
}

// ChannelTested is the answer to a test of a channel.
type ChannelTested struct {
	Delivery schemas.DeliveryID `json:"delivery"`
	// Conversation is where delivery.sent or delivery.failed will be.
	Conversation schemas.ConversationID `json:"conversation"`
}

const testText = "This is a test message of Sandjet."

// postChannelTest has a message sent to a place of a channel, in one try.
func (g *Gateway) postChannelTest(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in channelTest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	channels, err := g.channels()
	if err != nil {
		return err
	}
	c, err := channels.Channel(r.Context(), a, pathChannel(r))
	if err != nil {
		return err
	}
	if c.Disabled {
		return schemas.Errorf(schemas.Conflict, "", "the channel is disabled (%s): enable it first", schemas.Quotable(c.Reason))
	}
	kind, err := g.channelKind(c.Kind)
	if err != nil {
		return err
	}
	if err := (schemas.ChannelPlace{Channel: c.ID, Route: in.Route}).Validate(); err != nil {
		return err
	}
	if err := kind.Route(in.Route); err != nil {
		return schemas.Invalidf("route", "is not a place of %s: %s", c.Kind, err)
	}
	if len(in.Text) > schemas.MaxChatText {
		return schemas.Invalidf("text", "is %d bytes long: the limit is %d", len(in.Text), schemas.MaxChatText)
	}
	if err := g.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	conversation := schemas.NewConversationID()
	event := schemas.Event{
		ID: string(a) + "." + schemas.NewID("ev_") + ".test", Type: schemas.Message, Conversation: conversation, Account: a,
	}
	to := schemas.Origin{Channel: c.Kind, ChannelID: c.ID, Route: in.Route}
	d := schemas.ChatDelivery(event, to, "", schemas.ChatBody{Text: cmp.Or(in.Text, testText)}, g.Bus.Now())
	d.Tries = 1
	if err := lifecycle.Deliver(r.Context(), g.Bus, d); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, ChannelTested{d.ID, conversation})
	return nil
}
