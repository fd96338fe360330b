package discord

import (
	"context"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fetch implements [channel.Fetcher]. Who has the address of an attachment may have it, for a day.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	return a.api.Fetch(ctx, chatapi.Fetch{
		URL: f.Ref, Hosts: chatapi.Hosts{"cdn.discordapp.com", "media.discordapp.net"}, Secrets: chatapi.Secrets(to.Credential),
	})
}
