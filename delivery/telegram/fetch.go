package telegram

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fetch implements [channel.Fetcher]. Telegram serves files of up to 20 MB to bots.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	var got struct {
		Path string `json:"file_path"`
	}
	if _, err := a.call(ctx, to, "getFile", chatapi.Call{JSON: map[string]string{"file_id": f.Ref}}, &got); err != nil {
		return channel.Content{}, chatapi.Again(err)
	}
	parts := strings.Split(got.Path, "/")
	if slices.ContainsFunc(parts, func(s string) bool { return s == "" || s == "." || s == ".." }) {
		return channel.Content{}, chatapi.Refuse("Telegram does not say where the file is")
	}
	for i, s := range parts {
		parts[i] = url.PathEscape(s)
	}
	token := to.Credential[botToken]
	_, key, _ := strings.Cut(token, ":")
	return a.api.Fetch(ctx, chatapi.Fetch{
		URL:     a.api.Path("/file/bot" + url.PathEscape(token) + "/" + strings.Join(parts, "/")),
		Secrets: chatapi.Secrets(to.Credential, key),
	})
}
