package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/discord/discordtest"
	"github.com/sandjet/sandjet/delivery/github/githubtest"
	"github.com/sandjet/sandjet/delivery/pancake/pancaketest"
	"github.com/sandjet/sandjet/delivery/slack/slacktest"
	"github.com/sandjet/sandjet/delivery/telegram/telegramtest"
	"github.com/sandjet/sandjet/delivery/zalo/zalotest"
	"github.com/sandjet/sandjet/gateway/inbound"
	"github.com/sandjet/sandjet/schemas"
)

// double is a local stand-in for a chat service, with which channels can be tried without an account there.
type double struct {
	*chatfake.Server

	// says returns the signed request for a person's action, of a service that signs with a key of its own. If it is nil, the gateway
	// simulates requests itself.
	says func(doubleSaid) channel.Request
	key  string // public key that verifies the signatures
}

// doubleSaid is a simulated action of a person, for which a double makes the service's request.
type doubleSaid struct {
	channel.Said

	Press string `json:"press,omitzero"` // data of the button that is pressed
}

// plainDouble returns a double of a service whose requests the gateway simulates.
func plainDouble(s *chatfake.Server) double { return double{Server: s} }

// discordDouble returns a double of Discord, which signs its requests.
func discordDouble() double {
	s := discordtest.New(discordtest.Options{})
	return double{Server: s.Server, key: s.PublicKey(), says: func(said doubleSaid) channel.Request {
		if said.Press != "" {
			return s.Press(discordtest.Guild, said.Place, said.User, "", said.Press)
		}
		return s.Command(discordtest.Guild, said.Said)
	}}
}

// doubles returns the constructors of the doubles, by the kind of the service.
func doubles() map[string]func() double {
	return map[string]func() double{
		"telegram": func() double { return plainDouble(telegramtest.New(telegramtest.Options{})) },
		"discord":  discordDouble,
		"zalo":     func() double { return plainDouble(zalotest.New(zalotest.Options{})) },
		"slack":    func() double { return plainDouble(slacktest.New(slacktest.Options{})) },
		"github":   func() double { return plainDouble(githubtest.New(githubtest.Options{}).Server) },
		"pancake":  func() double { return plainDouble(pancaketest.New(pancaketest.Options{})) },
	}
}

type channelsFakeCommand struct {
	Kind   string   `arg:"" help:"Chat service: see \"sandjet channels kinds\"."`
	Listen string   `default:"127.0.0.1:8765" placeholder:"ADDRESS" use:"" help:"Address to serve on. Default: 127.0.0.1:8765."`
	File   []string `placeholder:"PATH" use:"" help:"A file that it has, for \"sandjet channels simulate --file NAME\"; may be given several times."`
}

// Help returns the detailed help, for kong.
func (*channelsFakeCommand) Help() string {
	return `A double of a chat service, to try channels without an account there: it takes the requests of the real one, keeps what it is
sent in memory, and prints it. Whatever looks like a token is taken. Give its address to "sandjet up", and write to the channel
with "sandjet channels simulate".

Examples:
  sandjet channels fake telegram
  sandjet up --chat-urls telegram=http://127.0.0.1:8765
  sandjet channels create telegram support --secret bot_token=1:any --secret secret_token=any --place 4711 --setting run=true
  sandjet channels simulate support '/run uname -a'
  sandjet channels fake telegram --file report.pdf
  sandjet channels simulate support 'What is in it?' --file report.pdf
  sandjet channels fake discord                    signs what "sandjet channels simulate --double" asks for
  curl http://127.0.0.1:8765/fake                  what it has, as JSON`
}

// Run serves the double until ctx ends.
func (c *channelsFakeCommand) Run(ctx context.Context, t terminal) error {
	open := doubles()[c.Kind]
	if open == nil {
		return schemas.Invalidf("kind", "there is no double of %q: see \"sandjet channels kinds\"", schemas.Quotable(c.Kind))
	}
	double := open()
	for _, name := range c.File {
		content, err := os.ReadFile(name)
		if err != nil {
			return schemas.OpErrorf(schemas.Invalid, "file", "%s cannot be read: %v", schemas.Quotable(name), err)
		}
		double.Put(filepath.Base(name), chatfake.Reply{Status: http.StatusOK, Header: http.Header{
			"Content-Type": {cmp.Or(mime.TypeByExtension(filepath.Ext(name)), "application/octet-stream")},
		}, Body: content}, nil)
	}
	var mu sync.Mutex // keeps the lines of one message together
	double.Kept = func(m chatfake.Message) {
		mu.Lock()
		defer mu.Unlock()
		if t.json {
			_ = printJSON(t.out, m)
			return
		}
		fmt.Fprint(t.out, keptMessage(m))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return schemas.Errorf(schemas.Unavailable, "the address %s cannot be served on: %v", c.Listen, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fake", double.Show)
	if double.says != nil {
		mux.HandleFunc("POST /fake/says", func(w http.ResponseWriter, r *http.Request) { signed(w, r, double.says) })
	}
	mux.Handle("/", double)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if !t.json {
		fmt.Fprintf(t.out, "A double of %s serves on http://%s. Ctrl-C ends it, and it forgets all.\n", c.Kind, l.Addr())
		if double.key != "" {
			fmt.Fprintf(t.out, "Its public_key is %s\n", double.key)
		}
	}
	stop := context.AfterFunc(ctx, func() {
		double.Close()
		_ = server.Close()
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the double: %w", err)
	}
	return nil
}

// signedRequest is a signed request as a service would post it.
type signedRequest struct {
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// signed answers with the signed request that the service would post for the action in the body.
func signed(w http.ResponseWriter, r *http.Request, says func(doubleSaid) channel.Request) {
	var said doubleSaid
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, inbound.MaxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&said); err != nil {
		http.Error(w, "the body is not what somebody says: "+err.Error(), http.StatusBadRequest)
		return
	}
	request := says(said)
	w.Header().Set("Content-Type", "application/json")
	_ = printJSON(w, signedRequest{request.Header, request.Body}) // the client may have disconnected
}

// keptMessage returns a message that the double received, as text for people.
func keptMessage(m chatfake.Message) string {
	var b strings.Builder
	verb := "message"
	if m.Edits > 0 {
		verb = "edited "
	}
	fmt.Fprintf(&b, "%s %s in %s", verb, printable(m.ID), printable(m.Place))
	if m.Reply != "" {
		fmt.Fprintf(&b, ", an answer to %s", printable(m.Reply))
	}
	b.WriteString("\n")
	for line := range strings.Lines(m.Text) {
		fmt.Fprintf(&b, "  %s\n", printable(strings.TrimRight(line, "\n")))
	}
	if m.File != nil {
		fmt.Fprintf(&b, "  file %s, %d bytes\n", printable(m.File.Name), len(m.File.Data))
	}
	for _, p := range m.Press {
		fmt.Fprintf(&b, "  [%s] %s\n", printable(p.Label), printable(p.Data))
	}
	return b.String()
}
