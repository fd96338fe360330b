package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type artifactsCommand struct {
	LS  artifactsListCommand   `cmd:"" name:"ls" help:"List the artifacts of a conversation."`
	Get artifactsGetCommand    `cmd:"" help:"Download an artifact."`
	RM  artifactsRemoveCommand `cmd:"" name:"rm" help:"Remove artifacts."`
}

// Help returns the detailed help, for kong.
func (*artifactsCommand) Help() string {
	return `Files that calls have left for people: what a call has made or changed below outputs in its workspace, or where a
sandbox or the call itself says. Each is kept as it was when the call ended, whatever becomes of the file, until a day after
events of its age go.

Examples:
  sandjet call bash --conversation chat-7 'mkdir -p outputs; date > outputs/now.txt'
  sandjet artifacts ls chat-7
  sandjet artifacts get art_5d0c… .`
}

type artifactsListCommand struct {
	listTarget

	Conversation string `arg:"" help:"Conversation of the calls."`
}

// Run lists the artifacts of a conversation.
func (c *artifactsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		var all []schemas.Artifact
		for after := schemas.ArtifactID(""); ; {
			page, next, err := cl.Artifacts().List(ctx, schemas.ConversationID(c.Conversation), 0, after)
			if err != nil {
				return err
			}
			if all = append(all, page...); next == "" {
				break
			}
			after = next
		}
		return printList(t, all, "No artifacts.", "ID\tPATH\tKIND\tSIZE\tCREATED\tCALL*\tTYPE*\tSHA256*", func(a schemas.Artifact) string {
			return strings.Join([]string{string(a.ID), printable(a.Path), string(a.Kind), strconv.FormatInt(a.Size, 10), ago(a.Created),
				string(a.Call), printable(a.MIMEType), printable(a.SHA256)}, "\t")
		})
	})
}

type artifactsGetCommand struct {
	gatewayTarget

	ID string `arg:"" help:"Artifact."`
	To string `arg:"" optional:"" default:"." help:"File or folder to save it to; - is the standard output. Default: this folder."`
}

// Run downloads an artifact.
func (c *artifactsGetCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	id := schemas.ArtifactID(c.ID)
	if c.To == "-" {
		_, _, err := cl.Artifacts().Download(ctx, id, t.out)
		return err
	}
	to, folder := c.To, strings.HasSuffix(c.To, "/")
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		folder = true
	}
	at := to
	if folder {
		at = filepath.Join(to, c.ID)
	}
	var size int64
	at, err = saveFile(at, func(out io.Writer) (string, error) {
		name, n, err := cl.Artifacts().Download(ctx, id, out)
		size = n
		// The file name that the server sends is not trusted: only a plain name inside the folder is used.
		if err == nil && folder && name != "" && filepath.IsLocal(name) && filepath.Base(name) == name {
			return filepath.Join(to, name), nil
		}
		return at, err
	})
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]any{"path": at, "size": size})
	}
	_, err = fmt.Fprintf(t.out, "Saved %s, %s\n", printable(at), count(int(size), "byte"))
	return wrapOutput(err)
}

type artifactsRemoveCommand struct {
	gatewayTarget

	IDs []string `arg:"" name:"id" help:"Artifacts."`
}

// Run removes artifacts.
func (c *artifactsRemoveCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	for _, id := range c.IDs {
		if err := cl.Artifacts().Remove(ctx, schemas.ArtifactID(id)); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// artifactLines returns a line for each artifact that was stored, and for each file that was not, with the reason.
func artifactLines(a schemas.JobArtifacts) (lines []string) {
	for _, f := range a.Artifacts {
		lines = append(lines, fmt.Sprintf("kept %s (%s) as %s", printable(f.Path), count(f.Size, "byte"), f.ID))
	}
	if a.MoreArtifacts > 0 {
		lines = append(lines, fmt.Sprintf("kept %d more: artifacts ls lists them", a.MoreArtifacts))
	}
	for _, s := range a.SkippedArtifacts {
		if s.Count > 0 {
			lines = append(lines, fmt.Sprintf("%d more not kept as artifacts", s.Count))
			continue
		}
		lines = append(lines, fmt.Sprintf("not kept as an artifact: %s: %s", printable(s.Path), s.Reason))
	}
	return lines
}
