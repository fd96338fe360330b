// Package channels serves the chat channels of accounts: their records and secrets, and messages that try them out.
package channels

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Records stores the chat channels of all accounts, with their secrets. It must be safe for concurrent use. [records.Channels] implements
// it.
type Records interface {
	// List lists those of an account, the oldest first, without a round trip.
	List(ctx context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error)
	Get(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error)
	// Add adds one. Codes: exhausted when the account has as many as it may, conflict when it has one of this name.
	Add(ctx context.Context, c schemas.ChatChannel) error
	// Update changes one by change, which may be called several times; its error is returned.
	Update(ctx context.Context, a schemas.AccountID, id schemas.ChannelID,
		change func(*schemas.ChatChannel) error) (schemas.ChatChannel, error)
	Remove(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) error
}

// Kind is a kind of chat channel that this build supports.
type Kind struct {
	Name    string
	Secrets []Secret
	// Route validates a place of this kind. Code: invalid, with the field.
	Route func(json.RawMessage) error
}

// Secret is one of the secrets of a kind.
type Secret struct {
	Name     string
	Required bool
	About    string // where a person finds it
}

// List is the response with an account's chat channels.
type List struct {
	Channels []schemas.ChatChannel `json:"channels"`
}

// request is the body that adds a chat channel.
type request struct {
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

// patch is the body that changes a chat channel; absent fields stay as they are.
type patch struct {
	Name        *string              `json:"name,omitzero"`
	Description *string              `json:"description,omitzero"`
	Agent       *schemas.AgentID     `json:"agent,omitzero"`
	Workspace   *schemas.WorkspaceID `json:"workspace,omitzero"`
	Places      *[]string            `json:"places,omitzero"`
	Users       *[]string            `json:"users,omitzero"`
	// Settings and Secrets change the entries that they name; an empty value removes the entry.
	Settings    map[string]string    `json:"settings,omitzero"`
	Secrets     map[string]string    `json:"secrets,omitzero"`
	OnAmbiguous *schemas.OnAmbiguous `json:"on_ambiguous,omitzero"`
	// Fallback removes the fallback if its channel is empty.
	Fallback *schemas.ChannelPlace `json:"fallback,omitzero"`
	Disabled *bool                 `json:"disabled,omitzero"`
}

// Options are the settings of [Channels].
type Options struct {
	Bus     *streams.Bus
	Records Records // nil: the routes answer unsupported
	Kinds   []Kind  // the chats that channels may be of
	// Setup registers an address with a chat service, and reports whether the service has an API for that. It may block for a request.
	// Nil: no service has one. Codes: invalid (the record lacks what is needed), denied (the service refuses), unavailable.
	Setup func(ctx context.Context, c schemas.ChatChannel, hook *url.URL) (registered bool, err error)
}

// Channels has the HTTP handlers of chat channels. It is safe for concurrent use.
type Channels struct{ o Options }

// New returns the handlers.
func New(o Options) *Channels { return &Channels{o} }

// records returns the records of chat channels. Code unsupported: this gateway has none.
func (h *Channels) records() (Records, error) {
	if h.o.Records == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway keeps no chat channels")
	}
	return h.o.Records, nil
}

// ID returns the channel id in a request's path.
func ID(r *http.Request) schemas.ChannelID {
	return schemas.ChannelID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// List lists the account's chat channels.
func (h *Channels) List(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	list, err := records.List(r.Context(), a)
	if err != nil {
		return err
	}
	out := List{Channels: make([]schemas.ChatChannel, len(list))}
	for i, c := range list {
		out.Channels[i] = shown(c)
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// Post adds a chat channel.
func (h *Channels) Post(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	records, err := h.records()
	if err != nil {
		return err
	}
	var in request
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := h.o.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	c := schemas.ChatChannel{
		ID: schemas.ChannelID(schemas.NewID(schemas.ChannelPrefix)), Account: a, Kind: in.Kind, Name: in.Name, Description: in.Description,
		Agent: in.Agent, Workspace: in.Workspace, Places: in.Places, Users: in.Users, Settings: in.Settings, Secrets: in.Secrets,
		OnAmbiguous: in.OnAmbiguous, Fallback: in.Fallback, Created: h.o.Bus.Now().UTC(),
	}
	if err := h.check(r.Context(), c, nil); err != nil {
		return err
	}
	if err := records.Add(r.Context(), c); err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/channels/"+string(c.ID))
	web.WriteJSON(w, http.StatusCreated, shown(c))
	return nil
}

// check validates a channel. Values that are unchanged since before are not checked again, so a build that no longer knows a secret can
// still change other fields. It blocks only to read a fallback. Code: invalid.
func (h *Channels) check(ctx context.Context, c schemas.ChatChannel, before *schemas.ChatChannel) error {
	if err := c.Validate(); err != nil {
		return err
	}
	kind, err := h.kind(c.Kind)
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
		case c.Secrets[name] == web.Masked:
			return schemas.Invalidf("secrets."+name, "is what stands in place of a secret: leave it out to keep the one that is there")
		case !slices.Contains(known, name) && (before == nil || before.Secrets[name] == ""):
			return schemas.Invalidf("secrets", "%s has no secret %q: use %s", c.Kind, schemas.Quotable(name), strings.Join(known, ", "))
		}
	}
	if c.Fallback == nil || before != nil && before.Fallback != nil && before.Fallback.Channel == c.Fallback.Channel &&
		string(before.Fallback.Route) == string(c.Fallback.Route) {
		return nil
	}
	to, err := h.o.Records.Get(ctx, c.Account, c.Fallback.Channel)
	if schemas.CodeOf(err) == schemas.NotFound {
		return schemas.Invalidf("fallback.channel", "there is no chat channel %q", schemas.Quotable(string(c.Fallback.Channel)))
	}
	if err != nil {
		return err
	}
	if kind, err = h.kind(to.Kind); err != nil {
		return err
	}
	if err := kind.Route(c.Fallback.Route); err != nil {
		return schemas.Invalidf("fallback.route", "is not a place of %s: %s", to.Kind, err)
	}
	return nil
}

// kind returns a kind by name. Codes: invalid, unsupported.
func (h *Channels) kind(name string) (Kind, error) {
	if len(h.o.Kinds) == 0 {
		return Kind{}, schemas.OpErrorf(schemas.Unsupported, "kind", "this gateway speaks to no chats")
	}
	names := make([]string, len(h.o.Kinds))
	for i, k := range h.o.Kinds {
		if k.Name == name {
			return k, nil
		}
		names[i] = k.Name
	}
	return Kind{}, schemas.Invalidf("kind", "%q is not a chat that this Sandjet speaks to: use %s", schemas.Quotable(name),
		strings.Join(names, ", "))
}

// Get returns a chat channel.
func (h *Channels) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	c, err := records.Get(r.Context(), a, ID(r))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(c))
	return nil
}

// Patch changes a chat channel.
func (h *Channels) Patch(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	records, err := h.records()
	if err != nil {
		return err
	}
	var in patch
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	if err := h.o.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	c, err := records.Update(r.Context(), a, ID(r), func(c *schemas.ChatChannel) error {
		before := *c
		in.apply(c)
		c.Updated = h.o.Bus.Now().UTC()
		return h.check(r.Context(), *c, &before)
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(c))
	return nil
}

// apply changes the fields that the patch sets.
func (p patch) apply(c *schemas.ChatChannel) {
	web.Set(&c.Name, p.Name)
	web.Set(&c.Description, p.Description)
	web.Set(&c.Agent, p.Agent)
	web.Set(&c.Workspace, p.Workspace)
	web.Set(&c.Places, p.Places)
	web.Set(&c.Users, p.Users)
	web.Set(&c.OnAmbiguous, p.OnAmbiguous)
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

// mixed returns a copy of have with the entries of change; an empty value removes the entry.
func mixed(have, change map[string]string) map[string]string {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, change)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "" })
	return out
}

// Delete removes a chat channel.
func (h *Channels) Delete(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	if err := records.Remove(r.Context(), a, ID(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// shown returns a channel for a response: its secrets are masked.
func shown(c schemas.ChatChannel) schemas.ChatChannel {
	c.Secrets = maps.Clone(c.Secrets)
	for name := range c.Secrets {
		c.Secrets[name] = web.Masked
	}
	return c
}

// testRequest is the body of a request to send a test message.
type testRequest struct {
	Route json.RawMessage `json:"route"`
	Text  string          `json:"text,omitzero"`
}

// Tested is the response to a test of a channel.
type Tested struct {
	Delivery schemas.DeliveryID `json:"delivery"`
	// Conversation is where delivery.sent or delivery.failed will be.
	Conversation schemas.ConversationID `json:"conversation"`
}

const testText = "This is a test message of Sandjet."

// Test sends a message to a place of a channel, in one try.
func (h *Channels) Test(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in testRequest
	if err := web.DecodeBody(w, r, false, &in); err != nil {
		return err
	}
	records, err := h.records()
	if err != nil {
		return err
	}
	c, err := records.Get(r.Context(), a, ID(r))
	if err != nil {
		return err
	}
	if c.Disabled {
		return schemas.Errorf(schemas.Conflict, "the channel is disabled (%s): enable it first", schemas.Quotable(c.Reason))
	}
	kind, err := h.kind(c.Kind)
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
	if err := h.o.Bus.Room(r.Context(), int(max(r.ContentLength, 0))); err != nil {
		return err
	}
	conversation := schemas.NewConversationID()
	event := schemas.Event{
		ID: string(a) + "." + schemas.NewID("ev_") + ".test", Type: schemas.Message, Conversation: conversation, Account: a,
	}
	to := schemas.Origin{Channel: c.Kind, ChannelID: c.ID, Route: in.Route}
	d := schemas.ChatDelivery(event, to, "", schemas.ChatBody{Text: cmp.Or(in.Text, testText)}, h.o.Bus.Now())
	d.Tries = 1
	if err := lifecycle.Deliver(r.Context(), h.o.Bus, d); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, Tested{d.ID, conversation})
	return nil
}
