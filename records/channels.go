package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Channels are the chat channels of accounts.
type Channels struct{ *cache }

// List returns the chat channels of an account with their secrets, the oldest first. It costs no round trip. One that another
// process has just added may be missing. Code: unavailable (one of them cannot be read here).
func (s Channels) List(_ context.Context, a schemas.AccountID) ([]schemas.ChatChannel, error) {
	list, err := s.of(a)
	slices.SortFunc(list, func(a, b schemas.ChatChannel) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, err
}

// of returns copies of an account's channels, in no order.
func (s Channels) of(a schemas.AccountID) (list []schemas.ChatChannel, err error) {
	if err := s.lockedOf(a, kindChannel); err != nil {
		return nil, err
	}
	if t := s.tenantOf(a); t != nil {
		for _, c := range t.channels.byID {
			list = append(list, cloneChannel(c))
		}
	}
	return list, nil
}

// Get returns a chat channel of an account with its secrets. One that the copy does not have yet is read from the log.
// Codes: not_found, in the same words for another account's; unavailable (its secrets cannot be opened here).
func (s Channels) Get(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) (schemas.ChatChannel, error) {
	if id.Validate() != nil || a.Validate() != nil {
		return schemas.ChatChannel{}, noChannel(id)
	}
	c, err := find(ctx, s.cache, channelKey(a, id), func(t *tenant) (schemas.ChatChannel, bool) {
		c, ok := t.channels.byID[id]
		return c, ok
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return c, noChannel(id)
	}
	return cloneChannel(c), err
}

// ChannelWorkspace returns where the commands and files of a chat channel are: in the channel's own workspace, else in the first of its
// agent, else in the default one. Code: not_found.
func (s *Store) ChannelWorkspace(ctx context.Context, c schemas.ChatChannel) (schemas.WorkspaceFiles, error) {
	if c.Workspace != "" {
		if _, err := s.Workspace(ctx, c.Account, c.Workspace); err != nil { // the copy may lag behind
			return schemas.WorkspaceFiles{}, err
		}
	}
	t := s.tenantOf(c.Account)
	if t == nil {
		return schemas.WorkspaceFiles{}, missing("workspace", DefaultName, "none")
	}
	return t.channelFiles(c)
}

// channelFiles finds them as the channel's calls do: in the sandbox of its agent, if that has one.
func (t *tenant) channelFiles(c schemas.ChatChannel) (files schemas.WorkspaceFiles, err error) {
	g, n, id := schemas.Agent{}, -1, c.Workspace
	if c.Agent != "" {
		g = t.agents.byID[c.Agent]
		n = slices.IndexFunc(g.Workspaces, func(e schemas.AgentWorkspace) bool { return id == "" || e.Workspace == id })
		if id == "" && n < 0 {
			return files, schemas.OpErrorf(schemas.NotFound, "workspace", "the channel's agent has none")
		}
	}
	if n >= 0 {
		id = g.Workspaces[n].Workspace
	}
	w, ok := t.workspaces.byID[id]
	if id == "" {
		w, ok = t.workspaces.find(DefaultName)
	}
	if !ok {
		return files, missing("workspace", cmp.Or(string(id), DefaultName), t.workspaces.known())
	}
	files = t.filesOf(w)
	if n >= 0 {
		if at, m := t.placed(g, n); m == nil {
			files.Provider = at.provider
		}
	}
	return files, nil
}

// Add adds a chat channel. Codes: invalid (also: its agent, workspace or fallback is not there), exhausted (the account
// has as many as it may), conflict (its name or id is taken). Adding at many gateways at the same moment may pass the limit by a
// few, and have a name twice.
func (s Channels) Add(ctx context.Context, c schemas.ChatChannel) error {
	if err := errors.Join(c.ID.Validate(), c.Account.Validate()); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	have, err := s.List(ctx, c.Account)
	if err != nil {
		return err
	}
	if len(have) >= schemas.MaxChatChannels {
		return schemas.Errorf(schemas.Exhausted, "the account has %d chat channels, the most it may: remove one", len(have))
	}
	if err := s.check(ctx, c, schemas.ChatChannel{}); err != nil {
		return err
	}
	c = cloneChannel(c)
	r := record{Channel: &c}
	if _, err := s.write(ctx, streams.BucketEntry[record]{}, r, true); err != nil {
		return fmt.Errorf("create the record %s: %w", r.key(), err)
	}
	return nil
}

// check checks what a channel names now and did not name before, and its own name.
func (s Channels) check(ctx context.Context, c, before schemas.ChatChannel) error {
	have, err := s.List(ctx, c.Account)
	if err != nil {
		return err
	}
	for _, other := range have {
		if other.Name == c.Name && other.ID != c.ID {
			return &schemas.Error{Code: schemas.Conflict, Field: "name",
				Message: fmt.Sprintf("the account has a chat channel %q already: %s", schemas.Quotable(c.Name), other.ID)}
		}
	}
	if f := c.Fallback; f != nil && (before.Fallback == nil || before.Fallback.Channel != f.Channel) {
		_, err := s.Get(ctx, c.Account, f.Channel)
		if err := named(err, "fallback.channel", "chat channel", string(f.Channel)); err != nil {
			return err
		}
	}
	if c.Agent != "" && c.Agent != before.Agent {
		_, err := Documents(s).Get(ctx, c.Account, schemas.Agents, string(c.Agent))
		if err := named(err, "agent", "agent", string(c.Agent)); err != nil {
			return err
		}
	}
	if c.Workspace != "" && c.Workspace != before.Workspace {
		_, err := Documents(s).Get(ctx, c.Account, schemas.Workspaces, string(c.Workspace))
		return named(err, "workspace", "workspace", string(c.Workspace))
	}
	return nil
}

// named describes the error of looking up what a field names.
func named(err error, field, noun, id string) error {
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Invalidf(field, "there is no %s %q", noun, schemas.Quotable(id))
	}
	return err
}

// Update changes a chat channel by change, which is called again with what is there then when another has changed it at the
// same time. It must not block; its error ends the update and is returned. Id, account, kind and creation stay. Codes: not_found,
// invalid, conflict (the name is taken; too many others change it).
func (s Channels) Update(
	ctx context.Context, a schemas.AccountID, id schemas.ChannelID, change func(*schemas.ChatChannel) error,
) (schemas.ChatChannel, error) {
	if id.Validate() != nil || a.Validate() != nil {
		return schemas.ChatChannel{}, noChannel(id)
	}
	r, _, err := s.change(ctx, channelKey(a, id), 0, func(r record) (record, error) {
		if r.Channel == nil {
			return record{}, noChannel(id)
		}
		before := *r.Channel
		c := cloneChannel(before)
		if err := change(&c); err != nil {
			return record{}, err
		}
		c.ID, c.Account, c.Kind, c.Created = before.ID, before.Account, before.Kind, before.Created
		if err := c.Validate(); err != nil {
			return record{}, err
		}
		return record{Channel: &c}, s.check(ctx, c, before)
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.ChatChannel{}, noChannel(id)
	}
	if err != nil {
		return schemas.ChatChannel{}, err
	}
	return cloneChannel(*r.Channel), nil
}

// Remove removes a chat channel, also one whose secrets cannot be opened any more. Codes: not_found.
func (s Channels) Remove(ctx context.Context, a schemas.AccountID, id schemas.ChannelID) error {
	if id.Validate() != nil || a.Validate() != nil {
		return noChannel(id)
	}
	err := s.remove(ctx, channelKey(a, id), 0)
	if errors.Is(err, schemas.ErrNotFound) {
		return noChannel(id)
	}
	return err
}

func noChannel(id schemas.ChannelID) error {
	return schemas.Errorf(schemas.NotFound, "there is no chat channel %q", schemas.Quotable(string(id)))
}

// cloneChannel returns a copy that callers may change.
func cloneChannel(c schemas.ChatChannel) schemas.ChatChannel {
	c.Places, c.Users = slices.Clone(c.Places), slices.Clone(c.Users)
	c.Settings, c.Secrets = maps.Clone(c.Settings), maps.Clone(c.Secrets)
	if c.Fallback != nil {
		f := *c.Fallback
		f.Route = slices.Clone(f.Route)
		c.Fallback = &f
	}
	return c
}
