package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

type channelsSimulateCommand struct {
	channelTarget

	Text   string   `arg:"" optional:"" help:"Text of the simulated message."`
	File   []string `placeholder:"NAME" use:"" help:"Name of a file of the double that comes with it; may be given several times."`
	Press  string   `placeholder:"DATA" use:"" help:"Data of a button that is pressed, in place of a text. Needs --double."`
	Double string   `placeholder:"URL" use:"" help:"Double that signs the request, of a service that signs with a key of its own: Discord."`
	Place  string   `placeholder:"PLACE" use:"" help:"Chat, channel or repository. Default: the first of the channel's places."`
	User   string   `placeholder:"USER" use:"" help:"User who appears to have written it. Default: the first of the channel's users."`
}

// Help returns the detailed help, for kong.
func (*channelsSimulateCommand) Help() string {
	return `The gateway makes up a request as the service would post it, signs it with the channel's secret, and then verifies, reads and
takes it as every request of the service. So a channel can be tried without a bot: what is answered goes to the service, see
"sandjet channels get". Discord signs with a key of its own: with --double its double signs, and the request is posted to the
gateway as Discord posts it.

Examples:
  sandjet channels simulate support /help
  sandjet channels simulate support '/run ls -l' --place 4711
  sandjet channels simulate support 'What is the weather?' --user 7
  sandjet channels simulate support 'What is in it?' --file report.pdf
  sandjet channels simulate dc /help --double http://127.0.0.1:8765
  sandjet channels simulate dc --press approve:appr_… --double http://127.0.0.1:8765`
}

// Run sends the simulated message and prints the result.
func (c *channelsSimulateCommand) Run(ctx context.Context, t terminal) error {
	cl, found, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	m := client.ChannelMessage{Text: c.Text, Place: c.Place, User: c.User, Files: c.File}
	switch {
	case c.Press != "" && c.Double == "":
		return schemas.Invalidf("press", "needs --double: where the gateway makes the request up, write /approve ID")
	case c.Press != "" && (c.Text != "" || len(c.File) > 0):
		return schemas.Invalidf("press", "stands alone: who presses a button writes nothing")
	}
	if m.Place == "" {
		if m.Place = named(found.Places); m.Place == "" {
			return schemas.Invalidf("place", "the channel listens to no place by name: give --place")
		}
	}
	if m.User == "" {
		m.User = named(found.Users)
	}
	if c.Double != "" {
		return c.posted(ctx, t, cl.URL(), found, m)
	}
	out, err := cl.Channels().Simulate(ctx, found.ID, m)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, out)
	}
	switch out.Done {
	case "ignore":
		return say(t, "Ignored: %s.", out.Reason)
	case "deliver":
		if found.Agent == "" {
			return say(t, "On the conversation %s. The channel has no agent, so no turn begins.", out.Conversation)
		}
		return say(t, "A turn begins on the conversation %s.", out.Conversation)
	}
	return say(t, "Accepted as %s %s, on the conversation %s.", article(out.Done), out.Done, out.Conversation)
}

// posted has a double sign the request, and posts it to the gateway as the service would.
func (c *channelsSimulateCommand) posted(
	ctx context.Context, t terminal, gateway string, found schemas.ChatChannel, m client.ChannelMessage,
) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked, err := json.Marshal(doubleSaid{channel.Said{Place: m.Place, User: cmp.Or(m.User, "1"), Text: m.Text, Files: m.Files}, c.Press})
	if err != nil {
		return fmt.Errorf("ask the double: %w", err)
	}
	status, answer, err := post(ctx, strings.TrimRight(c.Double, "/")+"/fake/says", http.Header{"Content-Type": {"application/json"}}, asked)
	if err != nil {
		return schemas.OpErrorf(schemas.Unavailable, "double", "%s does not answer: %v", schemas.Quotable(c.Double), err)
	}
	var r signedRequest
	if status != http.StatusOK || json.Unmarshal(answer, &r) != nil {
		return schemas.Invalidf("double", "%s answers %d and signs nothing: it is of a service whose requests the gateway makes up",
			schemas.Quotable(c.Double), status)
	}
	hook := gateway + "/webhooks/" + string(found.Account) + "/" + string(found.ID)
	if status, answer, err = post(ctx, hook, r.Header, r.Body); err != nil {
		return schemas.OpErrorf(schemas.Unavailable, "url", "the gateway does not answer: %v", err)
	}
	if t.json {
		return printJSON(t.out, map[string]any{"status": status, "answer": string(answer)})
	}
	return say(t, "The gateway answered %d %s", status, strings.TrimSpace(string(answer)))
}

// post posts a body and reads the answer.
func post(ctx context.Context, to string, h http.Header, body []byte) (status int, answer []byte, err error) {
	const most = 2 << 20
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("the address is none: %w", err)
	}
	req.Header = h
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer, err = io.ReadAll(io.LimitReader(res.Body, most))
	return res.StatusCode, answer, err
}

// article returns the indefinite article of a word.
func article(word string) string {
	if word != "" && strings.ContainsRune("aeiou", rune(word[0])) {
		return "an"
	}
	return "a"
}

// named returns the first entry that is not the wildcard "*"; empty if there is none.
func named(list []string) string {
	if i := slices.IndexFunc(list, func(s string) bool { return s != "*" }); i >= 0 {
		return list[i]
	}
	return ""
}
