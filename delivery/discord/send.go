package discord

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// sent is the part of a message that is read.
type sent struct {
	ID      string `json:"id"`
	Channel string `json:"channel_id"`
	Flags   int    `json:"flags"`
	Command *struct {
		ID string `json:"id"`
	} `json:"interaction_metadata"`
}

// thinking marks the place of an answer that is not there yet.
const thinking = 1 << 7

func receipt(r Route, s sent) channel.Receipt {
	return channel.Receipt{ID: s.ID,
		URL: "https://discord.com/channels/" + cmp.Or(r.Guild, "@me") + "/" + cmp.Or(s.Channel, r.Channel) + "/" + s.ID}
}

// Send implements [channel.Adapter].
//
// The first part of an answer to a command fills the place that the command has opened; filling it twice is filling it once. When the
// command's token is too old, or is not taken, the answer goes into the channel, unless the place is found to be filled. Where the bot may
// not write into the channel, later parts follow the first one by the token: these have no key.
func (a *Adapter) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	route, err := routeOf(to)
	if err != nil {
		return channel.Receipt{}, chatapi.Refuse("%s", err)
	}
	b, failed := body(m)
	if failed != nil {
		return channel.Receipt{}, failed
	}
	open := route.open(a.api.Now())
	if m.Reply && open {
		r, said, err := a.write(ctx, to, true, http.MethodPatch, route.webhook()+"/messages/@original", b, m.File)
		if err == nil || !closed(said, err) {
			return r, err
		}
		open = false
	}
	if m.Reply && route.Interaction != "" {
		if r, found, err := a.filled(ctx, to, route); err != nil || found {
			return r, err
		}
	}
	keyed := b
	keyed.Nonce, keyed.Enforce = nonce(m.Key), true
	if m.Reply && route.Message != "" {
		keyed.Reference = &reference{Message: route.Message}
	}
	r, said, err := a.write(ctx, to, false, http.MethodPost, "/channels/"+route.Channel+"/messages", keyed, m.File)
	if err == nil || !open || !outside(said, err) {
		return r, err
	}
	r, _, err = a.write(ctx, to, true, http.MethodPost, route.webhook()+"?wait=true", b, m.File)
	if e, ok := errors.AsType[*channel.Error](err); ok {
		e.Keyless = true
	}
	return r, err
}

// closed reports whether a command's token is certainly not taken any more.
func closed(said problem, err error) bool {
	e, ok := errors.AsType[*channel.Error](err)
	return ok && e.Outcome == channel.Refused && (e.Status == http.StatusUnauthorized || e.Status == http.StatusNotFound ||
		said.Code == invalidToken || said.Code == unknownWebhook)
}

// outside reports whether a bot may not write into a channel, or does not see it.
func outside(said problem, err error) bool {
	return channel.OutcomeOf(err) == channel.Refused &&
		slices.Contains([]int{unknownChannel, missingAccess, missingPermissions}, said.Code)
}

func (r Route) webhook() string {
	return "/webhooks/" + r.Application + "/" + url.PathEscape(r.Token)
}

// write sends a message and reads its receipt.
func (a *Adapter) write(ctx context.Context, to channel.Destination, byToken bool, method, path string, b outgoing, f *channel.File) (
	channel.Receipt, problem, error) {
	c, failed := request(method, path, b, f)
	if failed != nil {
		return channel.Receipt{}, problem{}, failed
	}
	var got sent
	c.Into = &got
	answer, said, err := a.call(ctx, to, byToken, c)
	if err != nil {
		return channel.Receipt{}, said, err
	}
	if !snowflake(got.ID) {
		return channel.Receipt{}, said, a.api.NotUnderstood(answer)
	}
	var route Route
	_ = chatapi.DecodeRoute(to.Route, &route) // it was read before
	r := receipt(route, got)
	r.Rest = rest(answer.Header)
	return r, said, nil
}

// filled checks whether the place of a command's answer was filled after all, by a try whose answer was lost. If the bot cannot read the
// messages there, that is unknown, and it reports false.
func (a *Adapter) filled(ctx context.Context, to channel.Destination, r Route) (channel.Receipt, bool, error) {
	var list []sent
	_, _, err := a.call(ctx, to, false, chatapi.Call{Method: http.MethodGet, Path: "/channels/" + r.Channel + "/messages",
		Query: url.Values{"after": {r.Interaction}, "limit": {"100"}}, Into: &list})
	if e, ok := errors.AsType[*channel.Error](err); ok {
		switch {
		case e.Outcome == channel.Refused && !e.Credential:
			return channel.Receipt{}, false, nil
		case e.Outcome == channel.Ambiguous:
			e.Outcome = channel.NotSent // it was a search
		}
		return channel.Receipt{}, false, e
	}
	for _, s := range list {
		if s.Command != nil && s.Command.ID == r.Interaction && s.Flags&thinking == 0 && snowflake(s.ID) {
			return receipt(r, s), true, nil
		}
	}
	return channel.Receipt{}, false, nil
}

// Edit implements [channel.Editor]. Buttons that m does not have are taken away.
func (a *Adapter) Edit(ctx context.Context, to channel.Destination, id string, m channel.Message) error {
	route, err := routeOf(to)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	if !snowflake(id) {
		return chatapi.Refuse("%q is the id of no message", id)
	}
	m.File = nil
	b, failed := body(m)
	if failed != nil {
		return failed
	}
	_, said, err := a.write(ctx, to, false, http.MethodPatch, "/channels/"+route.Channel+"/messages/"+id, b, nil)
	if err != nil && route.open(a.api.Now()) && outside(said, err) {
		_, _, err = a.write(ctx, to, true, http.MethodPatch, route.webhook()+"/messages/"+id, b, nil)
	}
	return err
}
