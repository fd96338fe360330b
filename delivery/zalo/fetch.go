package zalo

import (
	"context"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fetch implements [channel.Fetcher]. The address of a picture needs no credential. Zalo does not document the hosts that serve pictures;
// the accepted ones are its own domains.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	return a.api.Fetch(ctx, chatapi.Fetch{
		URL:     f.Ref,
		Hosts:   chatapi.Hosts{".zdn.vn", ".zadn.vn", ".zaloplatforms.com", ".zaloapp.com", ".zalo.me"},
		Secrets: chatapi.Secrets(to.Credential),
	})
}
