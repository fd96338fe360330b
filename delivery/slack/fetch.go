package slack

import (
	"context"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// fileHosts are the hosts from which Slack serves files. Requests to them must carry the bot's token.
var fileHosts = chatapi.Hosts{"files.slack.com"} //nolint:gochecknoglobals // never changed

// Fetch implements [channel.Fetcher]. The bot needs the scope files:read: without it Slack responds with an HTML sign-in page instead of
// the file, which Fetch reports as refused.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	token := to.Credential[botToken]
	if token == "" {
		return channel.Content{}, &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel has no bot_token"}
	}
	got, err := a.api.Fetch(ctx, chatapi.Fetch{
		URL: f.Ref, Hosts: fileHosts, Trusted: fileHosts, Header: http.Header{"Authorization": {"Bearer " + token}},
		Secrets: chatapi.Secrets(to.Credential),
	})
	if err != nil {
		return got, err
	}
	if strings.HasPrefix(got.Type, "text/html") && !strings.HasPrefix(f.Type, "text/html") {
		_ = got.Close() // it is the sign-in page
		return channel.Content{}, chatapi.Refuse("Slack answers with a page in place of the file: the bot needs the scope files:read")
	}
	return got, nil
}
