package main

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/chat"
	"github.com/sandjet/sandjet/delivery/discord"
	"github.com/sandjet/sandjet/delivery/github"
	"github.com/sandjet/sandjet/delivery/markdown"
	"github.com/sandjet/sandjet/delivery/pancake"
	"github.com/sandjet/sandjet/delivery/slack"
	"github.com/sandjet/sandjet/delivery/telegram"
	"github.com/sandjet/sandjet/delivery/zalo"
	"github.com/sandjet/sandjet/gateway/channels"
	"github.com/sandjet/sandjet/schemas"
)

// chats returns the chat services of this program. Everything else about them is derived from this table; no other code names one.
func chats() []chatService {
	return []chatService{
		{new: func(base string) channel.Adapter { return opened(telegram.New(channel.Options{Base: base})) }},
		{new: func(base string) channel.Adapter { return opened(discord.New(channel.Options{Base: base})) }},
		{new: func(base string) channel.Adapter { return opened(zalo.New(channel.Options{Base: base})) }},
		{new: func(base string) channel.Adapter { return opened(pancake.New(channel.Options{Base: base})) }},
		{new: func(base string) channel.Adapter { return opened(github.New(channel.Options{Base: base})) }},
		{new: func(base string) channel.Adapter { return opened(slack.New(channel.Options{Base: base})) }},
	}
}

// opened returns the adapter. It panics on an error: the address is the service's own, or was validated before.
func opened[A channel.Adapter](a A, err error) channel.Adapter {
	if err != nil {
		panic(err)
	}
	return a
}

// chatService is a chat service. Its name is the kind in its adapter's profile.
type chatService struct {
	// new returns its adapter. baseURL is empty for the service's own address; tests and proxies pass another.
	new func(baseURL string) channel.Adapter
}

// channelKinds returns the services as the gateway needs them: their names and secrets, and how routes are validated.
func channelKinds(all []chatService) []channels.Kind {
	var kinds []channels.Kind
	for _, c := range all {
		a := c.new("")
		p := a.Profile()
		k := channels.Kind{Name: p.Kind, Route: func(route json.RawMessage) error {
			_, err := a.Destination(route)
			return err
		}}
		for _, s := range p.Secrets {
			k.Secrets = append(k.Secrets, channels.Secret{Name: s.Name, Required: s.Required, About: s.About})
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// chatReceiver returns a lookup of the receiver that reads the webhook requests of a service; false if the service has none.
func chatReceiver(all []chatService) func(kind string) (channel.Receiver, bool) {
	receivers := map[string]channel.Receiver{}
	for _, c := range all {
		a := c.new("")
		if r, ok := a.(channel.Receiver); ok {
			receivers[a.Profile().Kind] = r
		}
	}
	return func(kind string) (channel.Receiver, bool) {
		r, ok := receivers[kind]
		return r, ok
	}
}

// openChats returns the adapters of all services. An entry KIND=URL of urls replaces a service's own address. Code: invalid.
func openChats(all []chatService, urls []string) ([]channel.Adapter, error) {
	elsewhere := map[string]string{}
	for _, text := range urls {
		kind, base, _ := strings.Cut(text, "=")
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, schemas.Invalidf("chat-urls", "%q is not KIND=URL, such as telegram=https://bots.example.com", schemas.Quotable(text))
		}
		elsewhere[kind] = base
	}
	var adapters []channel.Adapter
	for _, c := range all {
		a := c.new("")
		if base, ok := elsewhere[a.Profile().Kind]; ok {
			delete(elsewhere, a.Profile().Kind)
			a = c.new(base)
		}
		adapters = append(adapters, a)
	}
	for _, kind := range slices.Sorted(maps.Keys(elsewhere)) {
		return nil, schemas.Invalidf("chat-urls", "%q is not a chat service: sandjet channels kinds lists them", schemas.Quotable(kind))
	}
	return adapters, nil
}

// rendered renders a Markdown document as the parts of a chat message, and reports whether it was cut.
func rendered(document string, l chat.Layout) ([]chat.Part, bool) {
	r := markdown.Render(document, markdown.Options{Format: l.Format, Limit: l.Limit, Unit: l.Unit, MaxParts: l.MaxParts})
	parts := make([]chat.Part, len(r.Parts))
	for i, p := range r.Parts {
		parts[i] = chat.Part(p)
	}
	return parts, r.Cut
}
