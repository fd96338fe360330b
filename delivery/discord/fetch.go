package discord

import (
	"context"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fetch implements [channel.Fetcher]. The address of an attachment needs no credential and is valid for a day.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	return a.api.Fetch(ctx, chatapi.Fetch{
		URL: f.Ref, Hosts: chatapi.Hosts{"cdn.discordapp.com", "media.discordapp.net"}, Secrets: chatapi.Secrets(to.Credential),
	})
}
