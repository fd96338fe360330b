package pancake

import (
	"cmp"
	"context"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// attachment is a file that came with a message. Pancake does not document its format; the fields are those seen in its web pages.
type attachment struct {
	Kind string `json:"type"`
	URL  string `json:"url"`
	Name string `json:"name"`
	Type string `json:"mime_type"`
	Size int64  `json:"size"`
}

// filesOf returns the attachments that have an address. Others, such as shared links and stickers, are skipped.
func filesOf(list []attachment) (files []channel.InboundFile) {
	for _, a := range list {
		var name string
		switch {
		case a.URL == "":
			continue
		case a.Kind == "photo" || a.Kind == "image":
			name = "photo.jpg"
		case a.Kind == "video":
			name = "video.mp4"
		}
		files = append(files, channel.InboundFile{Name: cmp.Or(a.Name, name, "file"), Type: a.Type, Size: max(a.Size, 0), Ref: a.URL})
	}
	return files
}

// Fetch implements [channel.Fetcher]. Attachments are served by Pancake or by the network behind it: Facebook, Instagram, Zalo.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	return a.api.Fetch(ctx, chatapi.Fetch{
		URL: f.Ref,
		Hosts: chatapi.Hosts{"pages.fm", ".pages.fm", "pancake.vn", ".pancake.vn", ".fbcdn.net", ".fbsbx.com", ".cdninstagram.com",
			".zdn.vn", ".zadn.vn"},
		Secrets: chatapi.Secrets(to.Credential),
	})
}
