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

// sent is a message in Discord's responses, with only the fields that are read.
type sent struct {
	ID      string `json:"id"`
	Channel string `json:"channel_id"`
	Flags   int    `json:"flags"`
	Command *struct {
		ID string `json:"id"`
	} `json:"interaction_metadata"`
}

// thinking is the flag of a message that is the placeholder of a pending answer.
const thinking = 1 << 7

func receipt(r Route, s sent) channel.Receipt {
	return channel.Receipt{ID: s.ID,
		URL: "https://discord.com/channels/" + cmp.Or(r.Guild, "@me") + "/" + cmp.Or(s.Channel, r.Channel) + "/" + s.ID}
}

// Send implements [channel.Adapter].
//
// The first part of an answer to a command replaces the placeholder that the command opened, which is idempotent. If the command's token
// has expired or is not accepted, the answer is posted to the channel, unless the placeholder turns out to be replaced already. If the bot
// may not write to the channel, later parts are posted with the command's token; these have no nonce.
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

// closed reports whether Discord certainly no longer accepts a command's token.
func closed(said problem, err error) bool {
	e, ok := errors.AsType[*channel.Error](err)
	return ok && e.Outcome == channel.Refused && (e.Status == http.StatusUnauthorized || e.Status == http.StatusNotFound ||
		said.Code == invalidToken || said.Code == unknownWebhook)
}

// outside reports whether the bot has no access to a channel or may not write to it.
func outside(said problem, err error) bool {
	return channel.OutcomeOf(err) == channel.Refused &&
		slices.Contains([]int{unknownChannel, missingAccess, missingPermissions}, said.Code)
}

func (r Route) webhook() string {
	return "/webhooks/" + r.Application + "/" + url.PathEscape(r.Token)
}

// write sends a message and returns the receipt from the response.
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
	_ = chatapi.DecodeRoute(to.Route, &route) // it was parsed before
	r := receipt(route, got)
	r.Rest = rest(answer.Header)
	return r, said, nil
}

// filled checks whether an earlier try, whose response was lost, replaced the placeholder of a command's answer. If the bot may not read
// the channel's messages, it reports false.
func (a *Adapter) filled(ctx context.Context, to channel.Destination, r Route) (channel.Receipt, bool, error) {
	var list []sent
	_, _, err := a.call(ctx, to, false, chatapi.Call{Method: http.MethodGet, Path: "/channels/" + r.Channel + "/messages",
		Query: url.Values{"after": {r.Interaction}, "limit": {"100"}}, Into: &list})
	if e, ok := errors.AsType[*channel.Error](err); ok {
		switch {
		case e.Outcome == channel.Refused && !e.Credential:
			return channel.Receipt{}, false, nil
		case e.Outcome == channel.Ambiguous:
			e.Outcome = channel.NotSent // a search sends nothing
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

// Edit implements [channel.Editor]. Buttons of the old message that m does not have are removed.
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
