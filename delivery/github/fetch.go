package github

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"regexp"
	"slices"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// attached matches the links that GitHub writes into a comment for attached files: their label (1), which is the file's name, and their
// address (2).
var attached = regexp.MustCompile(`(?:\[([^\[\]\n]{0,200})\]\()?(https://(?:github\.com/(?:user-attachments/(?:assets|files)` +
	`|[\w.-]+/[\w.-]+/(?:assets|files)/[0-9]+)|user-images\.githubusercontent\.com/[0-9]+)/[\w./%-]+)`)

// filesOf returns the files to which a text links, without duplicates.
func filesOf(text string) (files []channel.InboundFile) {
	for _, m := range attached.FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(files, func(f channel.InboundFile) bool { return f.Ref == m[2] }) {
			files = append(files, channel.InboundFile{Name: cmp.Or(m[1], path.Base(m[2])), Ref: m[2]})
		}
	}
	return files
}

// Fetch implements [channel.Fetcher]. The token is sent only to github.com, which redirects to the hosts that store files.
func (a *Adapter) Fetch(ctx context.Context, to channel.Destination, f channel.InboundFile) (channel.Content, error) {
	route, err := parseRoute(to.Route)
	if err != nil {
		return channel.Content{}, chatapi.Refuse("%s", err)
	}
	bearer, failed := a.bearer(ctx, to, route)
	if failed != nil {
		return channel.Content{}, chatapi.Again(failed)
	}
	return a.api.Fetch(ctx, chatapi.Fetch{
		URL: f.Ref,
		Hosts: chatapi.Hosts{"github.com", "user-images.githubusercontent.com", "private-user-images.githubusercontent.com",
			"objects.githubusercontent.com", "github-production-user-asset-6210df.s3.amazonaws.com",
			"github-production-repository-file-5c1aeb.s3.amazonaws.com"},
		Trusted: chatapi.Hosts{"github.com"}, Header: http.Header{"Authorization": {"Bearer " + bearer}},
		Secrets: chatapi.Secrets(to.Credential, bearer),
	})
}
